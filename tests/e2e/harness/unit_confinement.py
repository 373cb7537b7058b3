# SPDX-License-Identifier: Apache-2.0
"""Runs a program as a shipped systemd unit would, without systemd: as a plain user with the unit's capabilities, its
read-only file systems, its seccomp filter and its limits, all read from the unit's file. For tests of what the units take
away; what is not named in `Confinement.wrapper` (cgroups, namespaces for /tmp and /dev) is not done here.

The mounts are made in the mount namespace of the program alone, so the machine sees nothing of it.
"""

import ctypes
import dataclasses
import errno
import functools
import json
import os
import platform
import re
import resource
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.lab.unit_file import UnitFile

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17}
# Classic BPF (linux/filter.h) and what seccomp(2) gives it to look at.
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

# The last stage, as the unit's user: it may read nothing of the project, so it is given as text.
_LAST_STAGE = """
import ctypes, os, sys
code = bytes.fromhex(sys.argv[1])
buffer = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(code) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    raise OSError(ctypes.get_errno(), "seccomp")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclasses.dataclass(frozen=True)
class Confinement:
    unit: UnitFile
    uid: int
    gid: int
    groups: tuple[int, ...]  # those of SupplementaryGroups=, in its order
    writable: tuple[Path, ...]  # instead of the folders of StateDirectory= and RuntimeDirectory=

    def wrapper(self) -> list[str]:
        """To stand before an absolute command line. The program runs under the same pid."""
        given = {"unit": str(self.unit.path), "uid": self.uid, "gid": self.gid, "groups": self.groups,
                 "writable": [str(path) for path in self.writable], "seccomp": seccomp_filter(self.unit).hex()}
        project = Path(__file__).resolve().parents[3]
        return ["unshare", "--mount", "--propagation", "private", "env", f"PYTHONPATH={project}", sys.executable, "-B", "-m",
                "tests.e2e.harness.unit_confinement", json.dumps(given)]


def _enter(given: dict, command: list[str]) -> None:
    unit = UnitFile(Path(given["unit"]))
    _mounts(unit, given)
    _set_limits(unit)
    capabilities = "-all" + "".join(f",+{name.removeprefix('CAP_').lower()}" for name in unit.words("AmbientCapabilities"))
    bounding = "-all" + "".join(f",+{name.removeprefix('CAP_').lower()}" for name in unit.words("CapabilityBoundingSet"))
    os.umask(int(unit.last("UMask", "0022"), 8))
    groups = ",".join(map(str, given["groups"]))
    os.execvp("setpriv", [
        "setpriv", f"--reuid={given['uid']}", f"--regid={given['gid']}", f"--groups={groups}" if groups else "--clear-groups",
        f"--bounding-set={bounding}", f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "--no-new-privs",
        sys.executable, "-I", "-c", _LAST_STAGE, given["seccomp"], *command])


def _set_limits(unit: UnitFile) -> None:
    """Those that the machine lets us have. LimitNICE is not among them: a node does without."""
    for key, limit in (("LimitNOFILE", resource.RLIMIT_NOFILE), ("LimitCORE", resource.RLIMIT_CORE)):
        if unit.last(key):
            hard = resource.getrlimit(limit)[1]
            wanted = int(unit.last(key))
            wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(limit, (wanted, wanted))


# -- file systems ------------------------------------------------------------------------------------------------------


def _mounts(unit: UnitFile, given: dict) -> None:
    for name in unit.words("RuntimeDirectory"):  # where the program's locks are
        folder = Path("/run") / name
        folder.mkdir(exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"uid={given['uid']},gid={given['gid']},mode={unit.last('RuntimeDirectoryMode')}",
             "tmpfs", str(folder))
    writable = [*given["writable"], *(f"/run/{name}" for name in unit.words("RuntimeDirectory")),
                *unit.words("ReadWritePaths")]
    for path in writable:
        _run("mount", "--rbind", path, path)
    if unit.last("ProtectSystem") != "strict" or unit.last("ProtectKernelTunables") != "yes":
        raise ValueError(f"{unit.path}: expected ProtectSystem=strict and ProtectKernelTunables=yes")
    _set_read_only("/", True)
    for path in ("/proc", "/dev", *writable):
        _set_read_only(path, False)
    _run("mount", "--bind", "/proc/sys", "/proc/sys")
    _set_read_only("/proc/sys", True)


def _set_read_only(path: str, wanted: bool) -> None:
    """Of everything mounted there and below: mount_setattr(2)."""
    attributes = struct.pack("<4Q", wanted, not wanted, 0, 0)  # MOUNT_ATTR_RDONLY is 1: set, cleared, propagation, user
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(442, -100, path.encode(), 0x8000, attributes, len(attributes)) != 0:  # AT_FDCWD, AT_RECURSIVE
        raise OSError(ctypes.get_errno(), f"mount_setattr {path}")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=10)


# -- seccomp -----------------------------------------------------------------------------------------------------------


def seccomp_filter(unit: UnitFile) -> bytes:
    """SystemCallFilter= and RestrictAddressFamilies= as a program for seccomp(2)."""
    numbers = _numbers()
    allowed = sorted(numbers[name] for name in allowed_calls(unit.all("SystemCallFilter")) if name in numbers)
    number = unit.last("SystemCallErrorNumber")
    denied = _ERRNO | getattr(errno, number) if number else _KILL
    families = [_FAMILIES[name] for name in unit.words("RestrictAddressFamilies")]
    code = [(_LOAD, 0, 0, _ARCH_AT), (_IF_EQUAL, 1, 0, _AUDIT_ARCH[platform.machine()]), (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, _NUMBER_AT), (_IF_EQUAL, 0, 2 * len(families) + 2, numbers["socket"]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    for family in families:
        code += [(_IF_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT)]
    for number in allowed:
        code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, denied)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def allowed_calls(lines: Sequence[str]) -> set[str]:
    """As systemd reads them (systemd.exec(5)): the first line is an allow list, and each line adds to it or, with `~`, takes away.
    @default is always allowed."""
    allowed = set(_members("@default"))
    for line in lines:
        words = line.removeprefix("~").split()
        named = {call for word in words for call in (_members(word) if word.startswith("@") else {word})}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


@functools.cache
def _members(group: str) -> set[str]:
    shown = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", group], capture_output=True, text=True,
                           check=True, timeout=20).stdout
    found = set()
    for word in re.findall(r"^    ([@\w-]+)$", shown, re.MULTILINE):
        found |= _members(word) if word.startswith("@") else {word}
    return found


@functools.cache
def _numbers() -> dict[str, int]:
    """By name, of this machine."""
    macros = subprocess.run(["clang", "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"], capture_output=True,
                            text=True, check=True, timeout=20).stdout
    return {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", macros, re.MULTILINE)}


if __name__ == "__main__":
    _enter(json.loads(sys.argv[1]), sys.argv[2:])
