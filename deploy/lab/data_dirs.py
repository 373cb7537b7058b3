# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a replicated store keep their logs: a folder on a disk, or one in memory.

A lab's own folder is under /run, which is a tmpfs on some machines and not on others; an experiment must know which.
Named after the lab, so that the next one with its tag removes what a killed run left, mounts and the nodes' pins included.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.lab import node_pins
from deploy.lab.names import DATA, check_tag

MODES = tuple(DATA)


def remove_all(tag: str) -> None:
    """What killed runs of this tag have left. The lab must be down."""
    for mode in MODES:
        _remove(mode, tag)


def _remove(mode: str, tag: str) -> None:
    for path in DATA[mode].glob(f"{_prefix(tag)}*"):
        _unmount_below(path)
        for node in path.glob("*"):
            node_pins.remove(node)
        shutil.rmtree(path, ignore_errors=True)


def _prefix(tag: str) -> str:
    return f"hedgerow-lab-{check_tag(tag)}-"


class DataDirs:
    """`path` exists inside the `with` block. One at a time for a tag and mode."""

    def __init__(self, tag: str, mode: str):
        self.parent = DATA[mode]
        self._mode, self._tag = mode, check_tag(tag)
        kind = file_system(self.parent)
        if (kind == "tmpfs") != (mode == "memory"):
            raise RuntimeError(f"{self.parent} is a {kind}: mode {mode} needs "
                               f"{'a tmpfs' if mode == 'memory' else 'a file system on a disk'} there")

    def __enter__(self) -> "DataDirs":
        self.remove()
        self.path = Path(tempfile.mkdtemp(prefix=_prefix(self._tag), dir=self.parent))
        return self

    def __exit__(self, *_exc) -> None:
        self.remove()

    def remove(self) -> None:
        _remove(self._mode, self._tag)


def _unmount_below(folder: Path) -> None:
    """Lazily: a mount whose file system has died cannot be looked into, and a process may still stand in it."""
    points = [Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    for point in sorted((point for point in points if point.is_relative_to(folder)), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True)


def file_system(path: Path) -> str:
    """Its type, from the longest mount point that holds the path; a later mount covers an earlier one."""
    found, kind = Path("/"), "unknown"
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, mount_kind, *_ = line.split()
        if path.is_relative_to(mount) and len(Path(mount).parts) >= len(found.parts):
            found, kind = Path(mount), mount_kind
    return kind
