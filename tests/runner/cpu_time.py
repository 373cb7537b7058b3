# SPDX-License-Identifier: Apache-2.0
"""How much processor time a process took with all that it started, also what outlived it. Used by run_pytest.py.

A control group (cgroup2) below the caller's own accounts for it, in the kernel's words: no controller is switched on, so no priority
and no limit changes.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path


class CpuTime:
    """`group`: what the process is to join, by writing its pid into the file `cgroup.procs` there; None where groups cannot be made."""

    def __init__(self, group: Path | None):
        self.group = group
        self.seconds = 0.0

    def read(self) -> None:
        with contextlib.suppress(OSError):
            lines = (self.group / "cpu.stat").read_text(encoding="ascii").splitlines() if self.group else []
            self.seconds = sum(int(line.split()[1]) for line in lines if line.startswith("usage_usec ")) / 1e6


@contextlib.contextmanager
def measured(name: str) -> Iterator[CpuTime]:
    """`name`: of the group, unlike those beside it. `seconds` is there after the block."""
    parent = _own_group()
    group = parent / name if parent else None
    try:
        if group:
            group.mkdir()
    except OSError:
        group = None
    time = CpuTime(group)
    try:
        yield time
    finally:
        time.read()
        if group:
            _remove(group)


def _own_group() -> Path | None:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
    mount = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    return Path(mount, own) if mount and own is not None else None


def _remove(group: Path) -> None:
    """With groups that a booted system left below. One with a process that is still there stays."""
    for folder in (*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group):
        with contextlib.suppress(OSError):
            folder.rmdir()
