# SPDX-License-Identifier: Apache-2.0
"""Tries out what Hedgerow needs from the kernel and prints one line each: `ok|missing<TAB>what<TAB>text`.

Called by kernel.sh (`./dev doctor`, and before tests, demo and experiments). Everything happens in a network
namespace of this process's own, which is gone when it ends; exit status 1 says that something is missing.
"""

import ctypes
import os
import platform
import subprocess
import sys

CLONE_NEWNET = 0x40000000
SYS_BPF = {"x86_64": 321, "aarch64": 280}
BPF_MAP_CREATE = 0
BPF_PROG_LOAD = 5
BPF_MAP_TYPE_HASH = 1
BPF_PROG_TYPE_SCHED_CLS = 3
KERNEL_FLOOR = (6, 1)

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes) -> int:
    """One bpf(2) call; returns a descriptor or raises OSError."""
    number = SYS_BPF.get(platform.machine())
    if number is None:
        raise OSError(0, f"does not know the bpf system call of {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    descriptor = _libc.syscall(number, command, buffer, 128)
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return descriptor


def check_version() -> str:
    release = platform.release()
    major, minor = (int(part) for part in release.split(".")[:2])
    if (major, minor) < KERNEL_FLOOR:
        raise OSError(0, f"{release}; the oldest that works is {KERNEL_FLOOR[0]}.{KERNEL_FLOOR[1]}")
    return release


def check_btf() -> str:
    path = "/sys/kernel/btf/vmlinux"
    if not os.access(path, os.R_OK):
        raise OSError(0, f"{path} is not here: a kernel with CONFIG_DEBUG_INFO_BTF is needed")
    return path


def check_map() -> str:
    fields = (BPF_MAP_TYPE_HASH, 4, 8, 1, 0)
    os.close(_bpf(BPF_MAP_CREATE, b"".join(field.to_bytes(4, "little") for field in fields)))
    return "a hash map can be made"


def check_program() -> str:
    code = ctypes.create_string_buffer(bytes.fromhex("b700000000000000" "9500000000000000"))  # r0 = 0; exit
    licence = ctypes.create_string_buffer(b"GPL")
    head = BPF_PROG_TYPE_SCHED_CLS.to_bytes(4, "little") + (2).to_bytes(4, "little")
    pointers = b"".join(ctypes.addressof(part).to_bytes(8, "little") for part in (code, licence))
    os.close(_bpf(BPF_PROG_LOAD, head + pointers))
    return "a traffic control program can be loaded"


def check_namespace() -> str:
    if _libc.unshare(CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{os.strerror(error)}: in a container, run it privileged")
    return "can be made"


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(0, f"`{' '.join(argv)}`: {done.stderr.strip() or done.returncode}")


def check_links() -> str:
    _run("ip", "link", "add", "hrv0", "type", "veth", "peer", "name", "hrv1")
    _run("ip", "link", "add", "hrb0", "type", "bridge")
    return "veth and bridge"


def check_queues() -> str:
    _run("tc", "qdisc", "add", "dev", "hrv0", "clsact")
    _run("tc", "qdisc", "add", "dev", "hrv0", "root", "handle", "1:", "htb")
    return "clsact and htb"


# In this order: what comes after the namespace happens inside it.
CHECKS = (
    ("kernel version", check_version),
    ("kernel types (BTF)", check_btf),
    ("BPF maps", check_map),
    ("BPF programs", check_program),
    ("network namespaces", check_namespace),
    ("virtual links", check_links),
    ("traffic control", check_queues),
)


def main() -> int:
    missing = 0
    for index, (what, check) in enumerate(CHECKS):
        try:
            answer, text = "ok", check()
        except (OSError, ValueError) as error:
            answer, text = "missing", getattr(error, "strerror", None) or str(error)
            missing += 1
        print(f"{answer}\t{what}\t{text}")
        if answer == "missing" and check is check_namespace:
            for rest, _ in CHECKS[index + 1:]:
                print(f"missing\t{rest}\tnot tried without a namespace of its own")
            break
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
