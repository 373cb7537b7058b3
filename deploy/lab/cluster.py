# SPDX-License-Identifier: Apache-2.0
"""A replicated store in the lab: one node on each replica, ours or another, with one interface for both, so that faults and
measurements are the same. Chaos, benchmarks, the demo and tests use it:

    with Lab("mine", replicas=3) as lab, DataDirs("mine", "memory") as data:
        with hedgerow_cluster(lab, data.path) as cluster:
            leader = cluster.wait_ready()
            leader.kill_at_once()
            leader.start()
"""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from deploy.lab.lab import Lab, XdpOnSwitch
from deploy.lab.programs import bpf_object
from deploy.lab.servers.etcd import EtcdNode
from deploy.lab.servers.hashicorp_node import HashicorpNode
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings
from deploy.lab.servers.server import ServerFailed
from deploy.lab.servers.store_node import NodeState, StoreNode

READY_WITHIN_S = 30.0


class Cluster:
    """Up inside the `with` block, which ends before the lab's; data directories are the caller's."""

    def __init__(self, nodes: Sequence[StoreNode],
                 network: contextlib.AbstractContextManager = contextlib.nullcontext()):
        """`network`: what the switch must do for the nodes while they run."""
        self.nodes = list(nodes)
        self._network = network

    def __enter__(self) -> "Cluster":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._network)
            stack.callback(self.stop)
            for node in self.nodes:
                node.start()
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._running.close()

    def stop(self) -> None:
        """In order where that works: a node that does not end in time is killed."""
        for node in self.nodes:
            node.stop()

    @property
    def endpoints(self) -> list[str]:
        return [node.endpoint for node in self.nodes]

    def states(self) -> dict[int, NodeState]:
        """By number, of those that answer."""
        found = {node.number: node.state() for node in self.nodes}
        return {number: state for number, state in found.items() if state is not None}

    def leader(self) -> StoreNode | None:
        """Who says so itself; of several, the one with the highest term: the others do not know yet."""
        leading = {number: state for number, state in self.states().items() if state.leads}
        if not leading:
            return None
        return self.nodes[max(leading, key=lambda number: leading[number].term) - 1]

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> StoreNode:
        """Until every node knows the same leader and has caught up; the leader."""
        deadline = time.monotonic() + within_s
        while True:
            states = self.states()
            leaders = {state.leader for state in states.values()}
            if len(states) == len(self.nodes) and len(leaders) == 1 and all(s.ready for s in states.values()):
                number = leaders.pop()
                if states[number].leads:
                    return self.nodes[number - 1]
            self._check(states, deadline)
            time.sleep(0.05)

    def _check(self, states: dict[int, NodeState], deadline: float) -> None:
        for node in self.nodes:
            if not node.running:
                raise ServerFailed(f"{node.name} {node.number} ended with "
                                   f"{node.process.returncode if node.process else 'no process'}:\n{node.log_tail()}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"-- node {node.number}:\n{node.log_tail()}" for node in self.nodes)
            raise ServerFailed(f"the cluster is not ready: {states}\n{logs}")


def hedgerow_cluster(lab: Lab, data: Path, settings: NodeSettings = NodeSettings(), joining: int = 0) -> Cluster:
    """Of all replicas but the last `joining`, which are no members yet."""
    hosts = lab.replicas
    network = (XdpOnSwitch(lab, hosts, bpf_object("node_pass")) if settings.uses_native_xdp
               else contextlib.nullcontext())
    members = hosts[:len(hosts) - joining]
    return Cluster([HedgerowNode(host, number, members, data / host.name, settings)
                    for number, host in enumerate(members, start=1)], network)


def joining_nodes(lab: Lab, data: Path, settings: NodeSettings, joining: int) -> list[HedgerowNode]:
    """On the last replicas; they do not run yet, and the caller starts and stops them."""
    hosts = lab.replicas
    return [HedgerowNode(hosts[number - 1], number, hosts[:number], data / hosts[number - 1].name, settings, join=True)
            for number in range(len(hosts) - joining + 1, len(hosts) + 1)]


def etcd_cluster(lab: Lab, data: Path, timing_ms: tuple[int, int] | None = None) -> Cluster:
    hosts = lab.replicas
    return Cluster([EtcdNode(host, number, hosts, data / host.name, timing_ms)
                    for number, host in enumerate(hosts, start=1)])


def hashicorp_cluster(lab: Lab, reads: str = "verify") -> Cluster:
    hosts = lab.replicas
    return Cluster([HashicorpNode(host, number, hosts, reads) for number, host in enumerate(hosts, start=1)])
