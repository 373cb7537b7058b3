# SPDX-License-Identifier: Apache-2.0
"""Faults of the machine below a node: its clock jumps, its processor is taken away, its disk is slow, full or hangs. Each is
undone at its end, and meets the targets alone.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from bench.replicas import busy
from chaos.faults.fault import TARGETS, Fault, World, number


class ClockJump(Fault):
    """The wall clock of the targets' processes jumps ahead (or back) and, at the end, home again. Only theirs, and only as they see
    it: a library of the lab stands before the C library's calls (deploy/lab/preload/clock.cc)."""

    kind = "clock-jump"
    keys = {"by_s": number(-1e9, 1e9)}
    targets = TARGETS
    needs = frozenset({"own_clocks"})
    shows = "wrong_times"  # that a program asked for the time and got

    def begin(self) -> None:
        self._before = sum(node.clock.told for node in self.world.targets)
        for node in self.world.targets:
            node.clock.jump(self.by_s)

    def end(self) -> None:
        self.shown = sum(node.clock.told for node in self.world.targets) - self._before
        for node in self.world.targets:
            node.clock.jump(0.0)


class Starvation(Fault):
    """The targets' threads get what busy processes leave of the processors: they go to the back of the queue (nice 19), and there
    are busy processes of ordinary priority. No real-time priority, no cgroup: nothing that could stop the machine."""

    kind = "starvation"
    keys = {"busy_per_cpu": number(1, 8)}
    targets = TARGETS
    shows = "waited_ms"  # for a processor, by the targets' threads all together
    _BUSY_S_AT_MOST = 60.0
    _RUN_AGAIN_S = 0.05  # a waiting thread is counted once it runs

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._busy: list[subprocess.Popen] = []
        self._pids = [node.process.pid for node in world.targets]
        self._before: dict[int, int] = {}  # each process's priority

    def begin(self) -> None:
        self._waited_ns = sum(map(_waited_ns, self._pids))
        for pid in self._pids:
            self._before[pid] = os.getpriority(os.PRIO_PROCESS, pid)
            _set_priority(pid, 19)
        command = busy(self._BUSY_S_AT_MOST)
        self._busy = [self.world.lab.client.popen(command)
                      for _ in range(int(self.busy_per_cpu) * (os.cpu_count() or 1))]

    def end(self) -> None:
        while self._busy:
            self.world.lab.client.stop(self._busy.pop(), signal.SIGKILL)
        for pid, priority in self._before.items():
            _set_priority(pid, priority)
        time.sleep(self._RUN_AGAIN_S)
        self.shown = (sum(map(_waited_ns, self._pids)) - self._waited_ns) / 1e6


def _threads(pid: int) -> list[int]:
    """None of a process that has ended."""
    with contextlib.suppress(FileNotFoundError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def _set_priority(pid: int, priority: int) -> None:
    """Of all its threads: those that have begun meanwhile have inherited another. And of its session, which is what counts
    against other programs of the lab where the kernel groups sessions (autogroup, sched(7))."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        Path(f"/proc/{pid}/autogroup").write_text(str(priority), encoding="ascii")
    for thread in _threads(pid):
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, thread, priority)


def _waited_ns(pid: int) -> int:
    """The second figure of schedstat: runnable, and not run."""
    total = 0
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="ascii").split()[1])
    return total


class _Disk(Fault):
    """A command to the targets' disks (chaos/unsynced), and the one that takes it back."""

    targets = (*TARGETS, "majority")
    needs = frozenset({"disks"})
    counts = ""

    def ask(self, command: str) -> int:
        return sum(self.world.disks.ask(node.host.name, command)[self.counts] for node in self.world.targets)

    def command(self) -> str:
        raise NotImplementedError

    def begin(self) -> None:
        self._before = self.ask(self.command())

    def end(self) -> None:
        self.shown = self.ask("well") - self._before


class SlowDisk(_Disk):
    """Every sync takes so much longer."""

    kind = "slow-disk"
    keys = {"sync_ms": number(1, 5000)}
    shows, counts = "slow_syncs", "slowed"

    def command(self) -> str:
        return f"slow {int(self.sync_ms)}"


class FullDisk(_Disk):
    """No byte can be written, no file made (ENOSPC). What is there can be read, synced and removed. A node that ends because of
    it is started again at the end, as systemd would."""

    kind = "full-disk"
    shows, counts = "refused_writes", "refused"

    def command(self) -> str:
        return "full"

    def end(self) -> None:
        super().end()
        Fault.end(self)


class HungDisk(_Disk):
    """Nothing that writes returns, and no error says why: a frozen file system, a network volume that is away."""

    kind = "hung-disk"
    shows, counts = "hung_calls", "hung"

    def command(self) -> str:
        return "hang"
