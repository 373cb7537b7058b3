# SPDX-License-Identifier: Apache-2.0
"""Who lives in a lab: a lock that says its owner is alive, and a list of the processes started in it.

The lock dies with the python that holds it, so a lab whose lock is free is stale (or was kept on purpose). A
process is killed by its pid only after its network namespace was compared with the lab's, through a pidfd, so
that a pid used again by a stranger is never hit.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from deploy.lab import names, netns


class Registry:
    def __init__(self, tag: str):
        self.tag = tag
        self.path = names.run_dir(tag)
        self._lock_fd = -1

    @property
    def pid_dir(self) -> Path:
        return self.path / "pids"

    def try_lock(self) -> bool:
        """True when no living owner holds this tag; the caller is the owner from now on."""
        self.path.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._lock_fd = fd
        return True

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def add(self, pid: int, host: str, argv: list[str]) -> None:
        self.pid_dir.mkdir(parents=True, exist_ok=True)
        entry = {"pid": pid, "host": host, "argv": argv}
        (self.pid_dir / str(pid)).write_text(json.dumps(entry), encoding="utf-8")

    def discard(self, pid: int) -> None:
        (self.pid_dir / str(pid)).unlink(missing_ok=True)

    def entries(self) -> list[dict]:
        found = []
        for path in sorted(self.pid_dir.glob("*")):
            # A half-written entry of a killed python is no reason to fail: the namespaces are searched as well.
            with contextlib.suppress(ValueError, OSError):
                found.append(json.loads(path.read_text(encoding="utf-8")))
        return found

    def living(self) -> list[int]:
        """Processes in the lab's namespaces: the registered ones and whatever they forked."""
        spaces = {netns.identity(netns.path_of(name)) for name in netns.of_lab(self.tag)}
        return netns.pids_in(spaces) if spaces else []

    def kill_all(self, timeout_s: float = 5.0) -> None:
        """SIGKILL to every process of the lab."""
        kill_in(netns.of_lab(self.tag), timeout_s)

    def remove_files(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        # The parent goes with its last lab; another lab in it is a reason to leave it.
        with contextlib.suppress(OSError):
            names.RUN_DIR.rmdir()


def kill_in(namespaces: Sequence[str], timeout_s: float = 5.0) -> None:
    """SIGKILL to every process in them, repeated until none is left: one may fork while we look."""
    spaces = {netns.identity(netns.path_of(name)) for name in namespaces}
    if not spaces:
        return
    deadline = time.monotonic() + timeout_s
    while pids := [pid for pid in netns.pids_in(spaces) if pid != os.getpid()]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{', '.join(namespaces)}: processes {pids} do not die")
        for pid in pids:
            _kill_checked(pid, spaces, max(0.0, deadline - time.monotonic()))


def _kill_checked(pid: int, spaces: set[tuple[int, int]], timeout_s: float) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The pidfd fixes the process; only now does looking at its namespace say something about who is hit.
        if netns.identity(f"/proc/{pid}/ns/net") not in spaces:
            return
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], min(timeout_s, 1.0))
    except (ProcessLookupError, FileNotFoundError):
        pass
    finally:
        os.close(pidfd)
