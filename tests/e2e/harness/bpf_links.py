# SPDX-License-Identifier: Apache-2.0
"""bpf(2) by hand: links of a process, taking one off as an administrator would (as `bpftool link detach` does it: the process
that made it is not asked), and whether an object still exists."""

import ctypes
import errno
import os
import platform
import re
import struct
from pathlib import Path

_SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_PROG_GET_FD_BY_ID, _MAP_GET_FD_BY_ID, _LINK_GET_FD_BY_ID, _LINK_DETACH = 13, 14, 30, 34
_PROG_LOAD, _LINK_CREATE, _PROG_TYPE_SCHED_CLS, _TCX_INGRESS, _BEFORE, _AFTER = 5, 28, 3, 46, 1 << 3, 1 << 4
_BY_ID = {"prog": _PROG_GET_FD_BY_ID, "map": _MAP_GET_FD_BY_ID, "link": _LINK_GET_FD_BY_ID}


def links_of(pid: int, kind: str) -> list[int]:
    """Ids of the links of this kind ("xdp") that the process has open."""
    found = []
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = entry.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:  # closed since it was listed
            continue
        if re.search(rf"^link_type:\s+{kind}$", text, re.MULTILINE):
            found.append(int(re.search(r"^link_id:\s+(\d+)$", text, re.MULTILINE).group(1)))
    return found


def exists(kind: str, number: int) -> bool:
    """A program ("prog"), map or link of the kernel's with this id."""
    try:
        os.close(_bpf(_BY_ID[kind], struct.pack("<4I", number, 0, 0, 0)))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def attach_verdict(ifindex: int, before: bool, verdict: int) -> int:
    """A program that returns one verdict for every packet, at an interface's TCX ingress (Linux 6.6): the link, which ends with
    its descriptor."""
    code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, verdict, 0x95, 0, 0, 0))  # r0 = verdict; exit
    licence = ctypes.create_string_buffer(b"GPL")
    program = _bpf(_PROG_LOAD, struct.pack("<IIQQIIQIi16s", _PROG_TYPE_SCHED_CLS, 2, ctypes.addressof(code),
                                           ctypes.addressof(licence), 0, 0, 0, 0, 0, b"foreign"))
    try:
        return _bpf(_LINK_CREATE, struct.pack("<IIIIIIQ", program, ifindex, _TCX_INGRESS, _BEFORE if before else _AFTER, 0, 0, 0))
    finally:
        os.close(program)


def detach(link: int) -> None:
    fd = _bpf(_LINK_GET_FD_BY_ID, struct.pack("<4I", link, 0, 0, 0))
    try:
        _bpf(_LINK_DETACH, struct.pack("<4I", fd, 0, 0, 0))
    finally:
        os.close(fd)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(attributes, len(attributes))
    result = libc.syscall(ctypes.c_long(_SYS_BPF), ctypes.c_int(command), memory, ctypes.c_uint(len(attributes)))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return result
