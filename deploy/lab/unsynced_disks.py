# SPDX-License-Identifier: Apache-2.0
"""Disks that forget, on command, what was not synced, and that can be slow or full: one hr-unsynced-fs for each replica
(chaos/unsynced). Nodes keep their logs on them; chaos cuts their power.

    with DataDirs("mine", "disk") as data, UnsyncedDisks(lab, data.path) as disks:
        with hedgerow_cluster(lab, disks.path, NodeSettings(durability="disk")) as cluster:
            node.kill_at_once(); print(disks.cut(node.host.name)); node.start()

The program ends, and its mount with it, when the process that started it ends, however that happens.
"""

import contextlib
import dataclasses
import json
import select
import subprocess
from pathlib import Path

from deploy.lab.host import Host
from deploy.lab.lab import Lab
from deploy.lab.programs import binary

_ANSWERS_WITHIN_S = 30.0


class DiskFailed(RuntimeError):
    """The file system did not come up, or does not answer; the message carries what it said."""


@dataclasses.dataclass(frozen=True)
class DiskSettings:
    names: str = "strict"  # strict | journal; whose names a sync covers
    torn: bool = False  # some of what was not synced is there after a cut all the same
    ignore_sync: str = ""  # a planted fault: syncs of what matches this pattern cover nothing


class UnsyncedDisks:
    """`path` has a folder for each replica, by its name, each a mount of its own; inside the `with` block."""

    def __init__(self, lab: Lab, folder: Path, settings: DiskSettings = DiskSettings()):
        self.path, self.settings = folder / "mounts", settings
        self._disks = {host.name: _Disk(host, folder / "disks" / host.name, self.path / host.name, settings)
                       for host in lab.replicas}

    def __enter__(self) -> "UnsyncedDisks":
        try:
            for disk in self._disks.values():
                disk.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exc) -> None:
        self.stop()

    def stop(self) -> None:
        for disk in self._disks.values():
            disk.stop()

    def cut(self, host: str, seed: int = 0) -> dict:
        """What the replica's disk has lost, and it is lost when this returns. No process may be using the disk; `seed` is for
        what is torn."""
        return self._disks[host].ask(f"cut {seed}" if self.settings.torn else "cut")

    def ask(self, host: str, command: str) -> dict:
        """`slow MILLISECONDS`: each sync takes so much longer; `full`: there is no room for another byte; `hang`: nothing that
        writes returns; `well`: none of these. How many syncs were slowed, calls refused, and calls kept waiting, so far."""
        return self._disks[host].ask(command)


class _Disk:
    def __init__(self, host: Host, backing: Path, mount: Path, settings: DiskSettings):
        self._host, self._mount = host, mount
        self._log = host.scratch("disk") / "log"
        self._argv = [binary("hr-unsynced-fs"), f"--names={settings.names}", f"--ignore_sync={settings.ignore_sync}", backing,
                      mount]
        self._child: subprocess.Popen | None = None

    def start(self) -> None:
        self._mount.mkdir(parents=True)
        with open(self._log, "ab") as errors:
            self._child = self._host.popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                           text=True)
        if (said := self._line()) != "ready":
            raise DiskFailed(f"{self._mount}: it said {said!r} and\n{self._said()}")

    def ask(self, command: str) -> dict:
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._line())
        if "error" in answer:
            raise DiskFailed(f"{self._mount}: {command}: {answer['error']}")
        return answer

    def stop(self) -> None:
        if self._child is None:
            return
        child, self._child = self._child, None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        self._host.stop(child)
        child.stdout.close()

    def _line(self) -> str:
        """One answer at a time, so that nothing waits in a buffer where select does not see it."""
        if not select.select([self._child.stdout], [], [], _ANSWERS_WITHIN_S)[0]:
            raise DiskFailed(f"{self._mount}: no answer in {_ANSWERS_WITHIN_S:g} s\n{self._said()}")
        line = self._child.stdout.readline()
        if not line:
            raise DiskFailed(f"{self._mount}: it has ended\n{self._said()}")
        return line.strip()

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]
