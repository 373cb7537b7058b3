# SPDX-License-Identifier: Apache-2.0
"""A node of a store on hashicorp/raft (bench/baselines/hashicorp_raft), to compare our own with: in memory only, asked
with our client protocol. It reports the leader on a unix socket, which costs nothing without a question. What a node knew is
gone when it ends: a cluster whose nodes are started again under their names may forget, so only kill them.
"""

import json
import socket
from collections.abc import Sequence

from deploy.lab.host import Host
from deploy.lab.programs import binary
from deploy.lab.servers.store_node import NodeState, StoreNode

SERVE_PORT, PEER_PORT = 4801, 4802
READS = ("verify", "lease")


class HashicorpNode(StoreNode):
    name = "hr-hashicorp-raft"

    def __init__(self, host: Host, number: int, members: Sequence[Host], reads: str = "verify"):
        """`reads`: `verify` asks a quorum before each read, as VerifyLeader does; `lease` trusts the leader's lease."""
        super().__init__(host, SERVE_PORT, number, host.scratch(f"{self.name}-{SERVE_PORT}"))
        self.members, self.reads = members, reads
        self.socket = self.folder / "status.sock"

    def command(self) -> list[str]:
        return [str(binary(self.name)), f"--node={self.number}",
                f"--members={','.join(f'{member.ipv4}:{PEER_PORT}' for member in self.members)}",
                f"--serve={self.endpoint}", f"--status-socket={self.socket}", f"--reads={self.reads}"]

    def state(self) -> NodeState | None:
        if not self.running:
            return None
        try:
            with socket.socket(socket.AF_UNIX) as asked:
                asked.settimeout(2.0)
                asked.connect(str(self.socket))
                said = json.loads(asked.makefile("r", encoding="ascii").readline())
        except (OSError, ValueError):
            return None
        return NodeState(leads=said["leads"], ready=said["ready"], leader=said["leader"], term=said["term"])
