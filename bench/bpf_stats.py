# SPDX-License-Identifier: Apache-2.0
"""How long the kernel programs of one daemon ran, and how often: the kernel's own statistics (BPF_ENABLE_STATS).

They are on only while the `with` block of enabled() is open, since they add some tens of ns to every run of every
program on the machine. bench/parking.py divides time by runs.
"""

import contextlib
import ctypes
import functools
import json
import os
import platform
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_BPF_PROG_GET_FD_BY_ID, _BPF_ENABLE_STATS = 13, 32  # enum bpf_cmd of linux/bpf.h
_ATTR_BYTES = 16        # union bpf_attr, enable_stats.type = BPF_STATS_RUN_TIME = 0
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    attribute = ctypes.create_string_buffer(_ATTR_BYTES)
    fd = _libc.syscall(_BPF_SYSCALL[platform.machine()], _BPF_ENABLE_STATS, attribute, _ATTR_BYTES)
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot switch on program statistics: {os.strerror(error)}")
    try:
        yield
    finally:
        os.close(fd)


def programs_of(pid: int) -> dict[str, dict]:
    """Name -> {"runs", "ns"} so far, of every program the process holds by itself or through a link. Quick: it is asked while a load
    is measured."""
    ids = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            ids.update(re.findall(r"^prog_id:\s*(\d+)$", entry.read_text(encoding="ascii"), re.MULTILINE))
    found = {}
    for program_id in sorted(map(int, ids)):
        entry = found.setdefault(_name_of(program_id), {"runs": 0, "ns": 0})
        entry["runs"] += (shown := _statistics(program_id))["run_cnt"]
        entry["ns"] += shown["run_time_ns"]
    if not found:
        raise RuntimeError(f"process {pid} holds no kernel program")
    return found


@functools.cache
def _name_of(program_id: int) -> str:
    done = subprocess.run(["bpftool", "--json", "prog", "show", "id", str(program_id)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout).get("name", str(program_id))


def _statistics(program_id: int) -> dict[str, int]:
    """As the kernel shows them of an open program."""
    attribute = struct.pack("I", program_id).ljust(_ATTR_BYTES, b"\0")
    fd = _libc.syscall(_BPF_SYSCALL[platform.machine()], _BPF_PROG_GET_FD_BY_ID, attribute, _ATTR_BYTES)
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"kernel program {program_id}: {os.strerror(error)}")
    try:
        shown = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
    finally:
        os.close(fd)
    return {key: int(value) for key, value in re.findall(r"^(run_\w+):\s*(\d+)$", shown, re.MULTILINE)}


def between(before: dict[str, dict], after: dict[str, dict]) -> dict[str, dict]:
    """Runs and ns per run of each program that ran."""
    spent = {}
    for name, totals in after.items():
        start = before.get(name, {"runs": 0, "ns": 0})
        runs, total_ns = totals["runs"] - start["runs"], totals["ns"] - start["ns"]
        spent[name] = {"runs": runs, "total_ns": total_ns, "ns_per_run": total_ns / runs if runs else None}
    return spent
