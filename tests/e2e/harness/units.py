# SPDX-License-Identifier: Apache-2.0
"""The shipped units on a machine without systemd: their users as plain numbers, their folders on the BPF file system made
by systemd-tmpfiles from the shipped file, their programs confined as the units say (unit_confinement.py).
"""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from deploy.lab.unit_file import UNITS, UnitFile
from harness.unit_confinement import Confinement

BPFFS = Path("/sys/fs/bpf")
# Numbers that no account of this machine has.
USERS = {"hedgerow": 64701, "hedgerow-node": 64702}
GROUPS = {**USERS, "hedgerow-bpf": 64703, "hedgerow-monitor": 64704}


def confinement(unit: str, *writable: Path) -> Confinement:
    file = UnitFile(UNITS / f"{unit}.service")
    return Confinement(file, uid=USERS[file.last("User")], gid=GROUPS[file.last("Group")],
                       groups=tuple(GROUPS[name] for name in file.words("SupplementaryGroups")), writable=writable)


@contextlib.contextmanager
def bpffs_folders(scratch: Path) -> Iterator[None]:
    """What the shipped tmpfiles.d makes on the BPF file system, and the machine's own rights afterwards."""
    mounted = BPFFS.is_mount()
    if not mounted:
        subprocess.run(["mount", "-t", "bpf", "bpf", BPFFS], check=True, timeout=10)
    before = BPFFS.stat()
    try:
        lines = (UNITS / "tmpfiles.d/hedgerow.conf").read_text(encoding="utf-8").splitlines()
        shipped = "\n".join(line for line in lines if str(BPFFS) in line and not line.startswith("#"))
        numbered = re.sub(r"\b(hedgerow-\w+)$", lambda name: str(GROUPS[name[1]]), shipped, flags=re.MULTILINE)
        conf = scratch / "tmpfiles.conf"
        conf.write_text(f"{numbered}\n".replace(" root ", " 0 "), encoding="utf-8")
        subprocess.run(["systemd-tmpfiles", "--create", conf], check=True, timeout=20)
        yield
    finally:
        with contextlib.suppress(OSError):
            (BPFFS / "hedgerow").rmdir()
        BPFFS.chmod(before.st_mode & 0o7777)
        shutil.chown(BPFFS, before.st_uid, before.st_gid)
        if not mounted:
            subprocess.run(["umount", BPFFS], check=False, timeout=10, capture_output=True)


def give(path: Path, owner: int, group: int, mode: int) -> Path:
    shutil.chown(path, owner, group)
    path.chmod(mode)
    return path


def program(name: str, build: Path, folder: Path) -> Path:
    """A copy that every user may run: the build's folder may be closed to others."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    copy = folder / name
    if not copy.exists():
        shutil.copy2(build / name, copy)
        copy.chmod(0o755)
    return copy
