# SPDX-License-Identifier: Apache-2.0
"""Changes a cluster's members as an operator does: `hedgerow-node members` at the leader, asked again while something is in
the way. And what shows that no member sends to a former one. `./dev bench membership` and the end-to-end tests use it.
"""

import re

from deploy.lab.cluster import Cluster
from deploy.lab.host import Host
from deploy.lab.lab import Lab
from deploy.lab.servers.hedgerow_node import PEER_PORT, HedgerowNode
from deploy.lab.waiting import until

WITHIN_S = 30.0
# Of a datagram between nodes (docs/WIRE_FORMAT.md): where its kind is, from the UDP header on; and one of them.
_KIND_AT, _HELLO_ACK = 8 + 5, 2


class Operator:
    def __init__(self, cluster: Cluster):
        self.cluster = cluster

    def leader(self) -> HedgerowNode:
        """One that is ready."""
        found: list[HedgerowNode] = []

        def leads() -> bool:
            node = self.cluster.leader()
            state = node.state() if node is not None else None
            found[:] = [node] if state is not None and state.leads and state.ready else []
            return bool(found)

        until(leads, WITHIN_S, lambda: f"no node leads: {self.cluster.states()}", 0.05)
        return found[0]

    def add(self, node: HedgerowNode) -> None:
        """A learner; `node` runs already, and is one of the cluster's from now on."""
        self.change("add", node.number, f"{node.host.ipv4}:{PEER_PORT}")
        if node not in self.cluster.nodes:
            self.cluster.nodes.append(node)

    def wait_until_caught_up(self, node: HedgerowNode) -> None:
        def is_so() -> bool:
            return any(member.get("caught_up") for member in self._members() if int(member["id"]) == node.number)

        until(is_so, WITHIN_S, lambda: f"node {node.number} does not catch up: {self._members()}", 0.05)

    def move(self, node: HedgerowNode, port: int) -> None:
        """To another port of its host: it is stopped, finds the port in its file, and is moved once it listens there."""
        node.host.stop(node.process)
        own = next(member for member in node.config["members"] if member["id"] == node.number)
        own["peer"] = f"{node.host.ipv4}:{port}"
        node.start()
        self.change("move", node.number, own["peer"])

    def change(self, *words: str | int) -> None:
        """Until it is done: while leadership moves, or an earlier change is under way, it is refused."""
        said = ["no node was asked"]

        def done() -> bool:
            said[0] = self.leader().change_members(*words)
            return not said[0]

        until(done, WITHIN_S, lambda: f"members {' '.join(map(str, words))}: {said[0]}", 0.05)

    def role(self, node: HedgerowNode) -> str:
        """As the leader sees it: of who has left and is not even told so any more, `none`."""
        return next((member["role"] for member in self._members() if int(member["id"]) == node.number), "none")

    def _members(self) -> list[dict]:
        return (self.leader().status() or {}).get("members", [])


class Delivered:
    """Inside the `with` block: what is sent to a port of a host, by any sender. Counted where the switch hands it over, since at the
    host a kernel program may take it before any socket gets it, and a listener there does not matter either. Without HELLO_ACKs:
    a node that was removed asks, and is told so."""

    def __init__(self, lab: Lab, host: Host, port: int = PEER_PORT):
        self._lab, self._host, self._port = lab, host, port
        self._table = f"netdev to_{host.name}_{port}"

    def __enter__(self) -> "Delivered":
        self._nft(f"""table {self._table} {{
            chain wire {{
                type filter hook egress device "{self._host.name}" priority 0
                udp dport {self._port} @th,{8 * _KIND_AT},8 {_HELLO_ACK} accept
                udp dport {self._port} counter
                tcp dport {self._port} counter
            }}
        }}""")
        return self

    def __exit__(self, *_exc) -> None:
        self._nft(f"delete table {self._table}")

    def count(self) -> int:
        return sum(map(int, re.findall(r"counter packets (\d+)", self._nft(f"list table {self._table}"))))

    def _nft(self, commands: str) -> str:
        return self._lab.switch(["nft", "-f", "-"], stdin=commands)
