# SPDX-License-Identifier: Apache-2.0
"""Faults of the nodes' processes: killed, killed with their disks' power, stopped, restarted in order one after the other."""

import os
import signal
import time
from pathlib import Path

from chaos.faults.fault import TARGETS, Fault, World, number
from deploy.lab.cluster import READY_WITHIN_S


class Kill(Fault):
    """SIGKILL, and started again at the end."""

    kind = "kill"
    targets = TARGETS
    shows = ("killed",)

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self.lost: dict[int, dict] = {}  # by number of the node: what its disk has lost
        self._killed = 0

    def begin(self) -> None:
        """All at once; a disk loses its power when its node is dead, for until then the node may write."""
        nodes = self.world.targets
        for node in nodes:
            os.killpg(node.process.pid, signal.SIGKILL)
        for node in nodes:
            node.kill()
        self._killed = sum(node.process.returncode == -signal.SIGKILL for node in nodes)
        if self.world.forgets:
            seed = self.world.rng.getrandbits(32)
            for node in nodes:
                node.lose_memory()
            self.lost = {node.number: self.world.disks.cut(node.host.name, seed + node.number) for node in nodes}

    def end(self) -> None:
        for node in self.world.targets:
            if not node.running:
                node.start()

    def evidence(self) -> dict[str, float]:
        return {"killed": self._killed}


class PowerCut(Kill):
    """The same on disks that forget; scenario.py sees to it that there are some."""

    kind = "power-cut"
    needs = frozenset({"disks"})


class Pause(Fault):
    """SIGSTOP; goes on as if nothing had been."""

    kind = "pause"
    shows = ("stopped",)

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._stopped = 0

    def begin(self) -> None:
        for node in self.world.targets:
            os.killpg(node.process.pid, signal.SIGSTOP)

    def end(self) -> None:
        self._stopped = sum(_state(node.process.pid) == "T" for node in self.world.targets)
        for node in self.world.targets:
            node.resume()

    def evidence(self) -> dict[str, float]:
        return {"stopped": self._stopped}


class RollingRestart(Fault):
    """Each node in turn, followers first and the leader last, is ended in order (SIGTERM), is away for a while, and is started
    again; the next one when the cluster is whole."""

    kind = "rolling-restart"
    keys = {"away_s": number(0, 10)}
    targets = ("all",)
    shows = ("restarted",)

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._restarted = 0

    def begin(self) -> None:
        pass

    def hold(self, seconds: float) -> None:
        followers = [node for node in self.world.targets if node is not self.world.leader]
        for node in [*followers, self.world.leader]:
            pid = node.process.pid
            node.host.stop(node.process, timeout=READY_WITHIN_S)
            time.sleep(self.away_s)
            node.start()
            self.world.cluster.wait_ready()
            self._restarted += node.process.pid != pid

    def end(self) -> None:
        for node in self.world.targets:
            if not node.running:
                node.start()

    def evidence(self) -> dict[str, float]:
        return {"restarted": self._restarted}


def _state(pid: int) -> str:
    """As /proc has it: R, S, T, ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
