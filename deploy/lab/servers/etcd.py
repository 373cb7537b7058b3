# SPDX-License-Identifier: Apache-2.0
"""A node of etcd, Debian's package, to compare our own store with. Its state comes from its gateway for JSON, which costs
nothing without a question.
"""

import http.client
import json
from collections.abc import Sequence
from pathlib import Path

from deploy.lab.host import Host
from deploy.lab.servers.store_node import NodeState, StoreNode

CLIENT_PORT, PEER_PORT = 2379, 2380


class EtcdNode(StoreNode):
    name = "etcd"

    def __init__(self, host: Host, number: int, members: Sequence[Host], data_dir: Path,
                 timing_ms: tuple[int, int] | None = None):
        """`timing_ms`: heartbeat interval and election time-out; None: etcd's defaults, 100 and 1000."""
        super().__init__(host, CLIENT_PORT, number, data_dir)
        self.members, self.timing_ms = members, timing_ms
        self._number_of: dict[int, int] = {}  # etcd's own ids of the members -> ours

    def command(self) -> list[str]:
        peers = [f"n{number}=http://{member.ipv4}:{PEER_PORT}" for number, member in enumerate(self.members, start=1)]
        peer, client = (f"http://{self.host.ipv4}:{port}" for port in (PEER_PORT, CLIENT_PORT))
        command = ["/usr/bin/etcd", "--name", f"n{self.number}", "--data-dir", str(self.data_dir),
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--initial-cluster", ",".join(peers), "--initial-cluster-token", "lab",
                   "--initial-cluster-state", "new", "--logger", "zap", "--log-level", "error"]
        if self.timing_ms is not None:
            command += ["--heartbeat-interval", str(self.timing_ms[0]), "--election-timeout", str(self.timing_ms[1])]
        return command

    def state(self) -> NodeState | None:
        status = self._ask("/v3/maintenance/status") if self.running else None
        if status is None:
            return None
        leader, own = int(status.get("leader", 0)), int(status["header"]["member_id"])
        if leader and leader not in self._number_of:
            self._learn_members()
        return NodeState(leads=leader == own, ready=leader != 0, leader=self._number_of.get(leader, 0),
                         term=int(status.get("raftTerm", 0)))

    def _learn_members(self) -> None:
        listed = self._ask("/v3/cluster/member/list") or {}
        self._number_of = {int(member["ID"]): int(member["name"].removeprefix("n"))
                           for member in listed.get("members", []) if member.get("name")}

    def _ask(self, path: str) -> dict | None:
        connection = http.client.HTTPConnection(self.host.ipv4, self.port, timeout=2.0)
        try:
            with self.host.entered():
                connection.connect()  # a socket stays in the namespace in which it was made
            connection.request("POST", path, body="{}")
            answer = connection.getresponse()
            return json.loads(answer.read()) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()
