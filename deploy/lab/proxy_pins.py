# SPDX-License-Identifier: Apache-2.0
"""What the kernel holds for a proxy: pins on bpffs, in a folder with its instance's name. Both are the machine's, no lab's: another
proxy may have the name by now, and holds the instance's lock (operate/instance_lock.h) then."""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from deploy.lab import node_pins

RUN_DIR = Path("/run/hedgerow")
_INSTANCE = re.compile(r"[a-z0-9-]{1,15}")


def remove(instance: str) -> None:
    """Unless a living daemon has this name, or it is none: `PINS / ""` is the folder of all."""
    if not _INSTANCE.fullmatch(instance):
        return
    with _locked(RUN_DIR / f"{instance}.lock") as free:
        if free:
            shutil.rmtree(node_pins.PINS / instance, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether no other process holds it, or there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)
