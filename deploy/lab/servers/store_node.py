# SPDX-License-Identifier: Apache-2.0
"""One node of a replicated store, ours or another: a process that can be started, killed, stopped and woken, and that says
who leads. The processes of a cluster need each other to become ready, so `start` waits for nothing;
deploy/lab/cluster.py does.
"""

import dataclasses
import os
import signal
import time
from pathlib import Path

from deploy.lab.host import Host
from deploy.lab.servers.server import Server


@dataclasses.dataclass(frozen=True)
class NodeState:
    """What a node says about itself."""

    leads: bool
    ready: bool  # it knows a leader and has caught up
    leader: int  # the id of the node that leads, as it knows; 0: none
    term: int


class StoreNode(Server):
    def __init__(self, host: Host, port: int, number: int, data_dir: Path):
        """`number` counts the nodes from 1."""
        super().__init__(host, port)
        self.number, self.data_dir = number, data_dir

    @property
    def addresses(self) -> list[str]:
        return []

    @property
    def endpoint(self) -> str:
        return f"{self.host.ipv4}:{self.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def state(self) -> NodeState | None:
        """None when it does not answer."""
        raise NotImplementedError

    def kill_at_once(self) -> int:
        """SIGKILL; returns when, on the monotonic clock, in nanoseconds. The dead are collected afterwards."""
        at_ns = time.monotonic_ns()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.host.stop(self.process, signal.SIGKILL)
        return at_ns

    def lose_memory(self) -> None:
        """What the host's kernel keeps for the node's next life; a dead node's host that loses its power loses it."""

    def log_tail(self) -> str:
        return self._log_tail()
