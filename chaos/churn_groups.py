# SPDX-License-Identifier: Apache-2.0
"""Groups of workers that can be disturbed: one that `hedgerow steer run` supervises, and, as the mistake on purpose, one whose workers have
sockets of their own (SO_REUSEPORT), which a simple supervisor starts again. Used by chaos/worker_churn.py.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from bench.manifest import binary
from bench.steer_systems import COLLECTOR, Reuseport, Steer, System, Wanted
from deploy.lab import Host

_WITHIN_S = 10.0
POLL_S = 0.1


class Replaceable:
    """The workers' program under a name that an upgrade gives to a new file, as a package manager does."""

    def __init__(self, folder: Path):
        self.path = folder / COLLECTOR
        self.replace()

    def replace(self) -> None:
        new = self.path.with_suffix(".new")
        shutil.copy2(binary(COLLECTOR), new)
        new.rename(self.path)

    def is_run_by(self, pid: int) -> bool:
        """And not a former file of this name."""
        try:
            return os.stat(f"/proc/{pid}/exe").st_ino == self.path.stat().st_ino
        except OSError:
            return False


class Group:
    """Up inside the `with` block."""

    def __init__(self, system: System):
        self.system = system
        self.program = Replaceable(system.folder)
        system.collector = self.program.path

    def __enter__(self) -> "Group":
        self.system.__enter__()
        return self

    def __exit__(self, *exc) -> None:
        self.system.__exit__(*exc)

    def pid_of(self, slot: int) -> int:
        """Of the slot's worker; 0: none."""
        raise NotImplementedError

    def restart(self, slot: int) -> None:
        raise NotImplementedError

    def upgrade(self, slot: int) -> None:
        self.program.replace()
        self.restart(slot)

    def kill_supervisor(self) -> bool:
        """And the next one takes over; whether it did."""
        raise NotImplementedError

    def recover(self) -> None:
        """Starts what nothing else starts."""

    def wait_for_another(self, slot: int, former: int) -> int:
        """The pid of the slot's next worker; `former` where none comes in time."""
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            self.recover()
            if (pid := self.pid_of(slot)) not in (0, former):
                return pid
            time.sleep(POLL_S)
        return former


class SteeredGroup(Group):
    def __init__(self, host: Host, wanted: Wanted, more: tuple[str, ...] = ()):
        self.steer = Steer(host, wanted, "churn", more)
        super().__init__(self.steer)

    def pid_of(self, slot: int) -> int:
        """From the supervisor's record, which it writes before a new worker counts as started: `show` would start a program for each
        question, on the processors of the workers that are measured."""
        worker = next(each for each in self.steer.record()["slots"] if each.get("slot", 0) == slot).get("worker", {})
        return int(worker.get("pid", 0))

    def restart(self, slot: int) -> None:
        self.steer.call("restart", str(slot))

    def kill_supervisor(self) -> bool:
        before = {slot: self.pid_of(slot) for slot in range(self.steer.wanted.workers)}
        self.steer.kill_supervisor()
        self.steer.start_supervisor()
        return before == {slot: self.pid_of(slot) for slot in range(self.steer.wanted.workers)}


class PlainGroup(Group):
    def __init__(self, host: Host, wanted: Wanted, more: tuple[str, ...] = ()):
        assert not more
        self._plain = Reuseport(host, wanted, "churn")
        super().__init__(self._plain)
        self._workers: dict[int, subprocess.Popen] = {}

    def __enter__(self) -> "Group":
        super().__enter__()
        self._workers = dict(enumerate(self._plain.started()))
        return self

    def pid_of(self, slot: int) -> int:
        return self._workers[slot].pid if self._workers[slot].poll() is None else 0

    def restart(self, slot: int) -> None:
        os.kill(self._workers[slot].pid, signal.SIGTERM)
        self._workers[slot].wait(_WITHIN_S)
        self.recover()

    def recover(self) -> None:
        for slot, worker in self._workers.items():
            if worker.poll() is not None:
                self._workers[slot] = self._plain.start_worker(slot)

    def kill_supervisor(self) -> bool:
        return True  # it has none
