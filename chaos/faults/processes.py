# SPDX-License-Identifier: Apache-2.0
"""Faults of the nodes' processes: killed, killed with their disks' power, stopped, restarted in order one after the other."""

import os
import signal
import time
from pathlib import Path

from chaos.faults.fault import TARGETS, Fault, number
from deploy.lab.cluster import READY_WITHIN_S


class Kill(Fault):
    """SIGKILL, and started again at the end."""

    kind = "kill"
    targets = TARGETS
    shows = "killed"

    def begin(self) -> None:
        """All at once; a disk loses its power when its node is dead, for until then the node may write."""
        nodes = self.world.targets
        for node in nodes:
            os.killpg(node.process.pid, signal.SIGKILL)
        for node in nodes:
            node.kill()
        self.shown = sum(node.process.returncode == -signal.SIGKILL for node in nodes)
        if self.world.forgets:
            seed = self.world.rng.getrandbits(32)
            for node in nodes:
                node.lose_memory()
            self.lost = {node.number: self.world.disks.cut(node.host.name, seed + node.number) for node in nodes}


class PowerCut(Kill):
    """The same on disks that forget; scenario.py sees to it that there are some."""

    kind = "power-cut"
    needs = frozenset({"disks"})


class Pause(Fault):
    """SIGSTOP; goes on as if nothing had been."""

    kind = "pause"
    shows = "stopped"

    def begin(self) -> None:
        for node in self.world.targets:
            os.killpg(node.process.pid, signal.SIGSTOP)

    def end(self) -> None:
        self.shown = sum(_state(node.process.pid) == "T" for node in self.world.targets)
        for node in self.world.targets:
            node.resume()


class RollingRestart(Fault):
    """Each node in turn, followers first and the leader last, is ended in order (SIGTERM), is away for a while, and is started
    again; the next one when the cluster is whole."""

    kind = "rolling-restart"
    keys = {"away_s": number(0, 10)}
    targets = ("all",)
    shows = "restarted"

    def hold(self, seconds: float) -> None:
        followers = [node for node in self.world.targets if node is not self.world.leader]
        for node in [*followers, self.world.leader]:
            pid = node.process.pid
            node.host.stop(node.process, timeout=READY_WITHIN_S)
            time.sleep(self.away_s)
            node.start()
            self.world.cluster.wait_ready()
            self.shown += node.process.pid != pid


def _state(pid: int) -> str:
    """As /proc has it: R, S, T, ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
