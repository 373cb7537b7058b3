# SPDX-License-Identifier: Apache-2.0
"""How long the kernel programs of one daemon ran, and how often: the kernel's own statistics (BPF_ENABLE_STATS).

They are on only while the `with` block of enabled() is open, since they add some tens of ns to every run of every
program on the machine. bench/parking.py divides time by runs.
"""

import contextlib
import ctypes
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_BPF_ENABLE_STATS = 32  # enum bpf_cmd of linux/bpf.h
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
    """Name -> {"runs", "ns"} so far, of every program the process holds by itself or through a link."""
    ids = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            ids.update(re.findall(r"^prog_id:\s*(\d+)$", entry.read_text(encoding="ascii"), re.MULTILINE))
    found = {}
    for program_id in sorted(ids, key=int):
        done = subprocess.run(["bpftool", "--json", "prog", "show", "id", program_id], capture_output=True, text=True,
                              check=True)
        shown = json.loads(done.stdout)
        entry = found.setdefault(shown.get("name", program_id), {"runs": 0, "ns": 0})
        entry["runs"] += shown.get("run_cnt", 0)
        entry["ns"] += shown.get("run_time_ns", 0)
    if not found:
        raise RuntimeError(f"process {pid} holds no kernel program")
    return found


def between(before: dict[str, dict], after: dict[str, dict]) -> dict[str, dict]:
    """Runs and ns per run of each program that ran."""
    spent = {}
    for name, totals in after.items():
        start = before.get(name, {"runs": 0, "ns": 0})
        runs, total_ns = totals["runs"] - start["runs"], totals["ns"] - start["ns"]
        spent[name] = {"runs": runs, "total_ns": total_ns, "ns_per_run": total_ns / runs if runs else None}
    return spent
