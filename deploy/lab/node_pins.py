# SPDX-License-Identifier: Apache-2.0
"""What the kernel holds for a node's next start: maps pinned on bpffs, in a folder named after the node's data folder."""

import contextlib
import shutil
from pathlib import Path

PINS = Path("/sys/fs/bpf/hedgerow")


def of(data_dir: Path, number: int | str) -> Path:
    """`number`: of the member, or "*"."""
    place = 2166136261
    for byte in str(data_dir).encode():
        place = (place ^ byte) * 16777619 % 2**32
    return PINS / f"node-{number}-{place:08x}"


def remove(data_dir: Path) -> None:
    """Of whichever members the folder has been."""
    for pins in PINS.glob(of(data_dir, "*").name):
        shutil.rmtree(pins, ignore_errors=True)
    with contextlib.suppress(OSError):
        PINS.rmdir()
