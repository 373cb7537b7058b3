# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a replicated store keep their logs: a folder on a disk, or one in memory.

A lab's own folder is under /run, which is a tmpfs on some machines and not on others; an experiment must know which.
Named after the lab, so that the next one with its tag removes what a killed run left.
"""

import shutil
import tempfile
from pathlib import Path

from deploy.lab.names import check_tag

MODES = ("memory", "disk")
# Debian's own places: /dev/shm is a tmpfs everywhere, /var/tmp outlives a boot and so is on a disk.
_PARENTS = {"memory": Path("/dev/shm"), "disk": Path("/var/tmp")}


class DataDirs:
    """`path` exists inside the `with` block. One at a time for a tag and mode."""

    def __init__(self, tag: str, mode: str):
        self.parent = _PARENTS[mode]
        self._prefix = f"hedgerow-lab-{check_tag(tag)}-"
        kind = file_system(self.parent)
        if (kind == "tmpfs") != (mode == "memory"):
            raise RuntimeError(f"{self.parent} is a {kind}: mode {mode} needs "
                               f"{'a tmpfs' if mode == 'memory' else 'a file system on a disk'} there")

    def __enter__(self) -> "DataDirs":
        self.remove()
        self.path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.parent))
        return self

    def __exit__(self, *_exc) -> None:
        self.remove()

    def remove(self) -> None:
        for path in self.parent.glob(f"{self._prefix}*"):
            shutil.rmtree(path, ignore_errors=True)


def file_system(path: Path) -> str:
    """Its type, from the longest mount point that holds the path; a later mount covers an earlier one."""
    found, kind = Path("/"), "unknown"
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, mount_kind, *_ = line.split()
        if path.is_relative_to(mount) and len(Path(mount).parts) >= len(found.parts):
            found, kind = Path(mount), mount_kind
    return kind
