# SPDX-License-Identifier: Apache-2.0
"""Doing a fault and undoing it, with the instants on the clock that the loads use (CLOCK_MONOTONIC, nanoseconds)."""

import os
import signal
import time

from chaos.scenario import Scenario
from deploy.lab import Lab
from deploy.lab.servers.store_node import StoreNode

_DIRECTIONS = {"cut": "both", "cut-out": "out", "cut-in": "in"}


class Fault:
    """One fault at one node. `end` may be called whatever became of `begin`."""

    def __init__(self, lab: Lab, scenario: Scenario, node: StoreNode):
        self._lab, self._kind, self.node = lab, scenario.fault, node
        self._begun = False

    def begin(self) -> int:
        """Returns when."""
        self._begun = True
        if self._kind == "kill":
            return self.node.kill_at_once()
        at_ns = time.monotonic_ns()
        if self._kind == "pause":
            os.killpg(self.node.process.pid, signal.SIGSTOP)
        else:
            self._lab.cut(self.node.host.name, _DIRECTIONS[self._kind])
        return at_ns

    def end(self) -> int:
        at_ns = time.monotonic_ns()
        if not self._begun:
            return at_ns
        self._begun = False
        if self._kind == "kill":
            self.node.start()
        elif self._kind == "pause":
            self.node.resume()
        else:
            self._lab.heal(self.node.host.name)
        return at_ns
