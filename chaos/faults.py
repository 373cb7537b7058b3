# SPDX-License-Identifier: Apache-2.0
"""Doing a fault and undoing it, with the instants on the clock that the loads use (CLOCK_MONOTONIC, nanoseconds)."""

import os
import signal
import time
from collections.abc import Sequence

from chaos.scenario import Scenario
from deploy.lab import Lab
from deploy.lab.servers.store_node import StoreNode
from deploy.lab.unsynced_disks import UnsyncedDisks

_DIRECTIONS = {"cut": "both", "cut-out": "out", "cut-in": "in"}
_KILLS = ("kill", "power-cut")


class Fault:
    """One fault at one node, or at several at once. `end` may be called whatever became of `begin`."""

    def __init__(self, lab: Lab, scenario: Scenario, nodes: Sequence[StoreNode], disks: UnsyncedDisks | None = None,
                 seed: int = 0):
        """With `disks`, whoever is killed loses what it has not synced."""
        self._lab, self._kind, self.nodes, self._disks, self._seed = lab, scenario.fault, list(nodes), disks, seed
        self._begun = False
        self.lost: dict[int, dict] = {}  # by number of the node: what its disk has lost

    def begin(self) -> int:
        """Returns when."""
        self._begun = True
        at_ns = time.monotonic_ns()
        if self._kind in _KILLS:
            self._kill()
        elif self._kind == "pause":
            for node in self.nodes:
                os.killpg(node.process.pid, signal.SIGSTOP)
        else:
            for node in self.nodes:
                self._lab.cut(node.host.name, _DIRECTIONS[self._kind])
        return at_ns

    def _kill(self) -> None:
        """All at once; a disk loses its power when its node is dead, for until then the node may write."""
        for node in self.nodes:
            os.killpg(node.process.pid, signal.SIGKILL)
        for node in self.nodes:
            node.kill()
        if self._disks is not None:
            for node in self.nodes:
                node.lose_memory()
            self.lost = {node.number: self._disks.cut(node.host.name, self._seed + node.number) for node in self.nodes}

    def end(self) -> int:
        at_ns = time.monotonic_ns()
        if not self._begun:
            return at_ns
        self._begun = False
        for node in self.nodes:
            if self._kind in _KILLS:
                node.start()
            elif self._kind == "pause":
                node.resume()
            else:
                self._lab.heal(node.host.name)
        return at_ns
