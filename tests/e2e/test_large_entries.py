# SPDX-License-Identifier: Apache-2.0
"""Entries that are larger than a packet, on a network that carries no IP fragments: they travel in pieces."""

import os
import re
import time

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import MEMCACHED_PORT, NodeSettings
from harness.memcached import Client

TAG = f"large{os.getpid()}"
# What IPv6 asks of every link (RFC 8200, section 5).
MTU = 1280
# One that fits a datagram, one that fits none, one for many pieces, and the largest that memcached.value_max allows here.
SIZES = (900, 1400, 8192, 60000)
NO_FRAGMENTS = """
table bridge no_fragments {
  chain forwarded {
    type filter hook forward priority 0; policy accept;
    ip frag-off & 0x3fff != 0 counter drop
  }
}
"""


def fragments(lab: Lab) -> int:
    return int(re.search(r"counter packets (\d+)", lab.switch(["nft", "list", "table", "bridge", "no_fragments"]))[1])


def store(node, key: bytes, value: bytes) -> bytes | None:
    """Asked on the node's own host: the switch would drop the fragments of such requests, too."""
    with Client(node.host, node.host.ipv4, MEMCACHED_PORT) as client:
        return client.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))


def stored(node, key: bytes) -> bytes | None:
    with Client(node.host, node.host.ipv4, MEMCACHED_PORT) as client:
        return client.ask(b"get %s\r\n" % key)


def put(lab: Lab, node, key: bytes) -> None:
    """From elsewhere, and no larger than any packet: what must go on whatever became of the entry before it."""
    with hkv.Client(node.host.ipv4, node.port, 5.0, lab.client.socket()) as client:
        client.open()
        client.put(key, b"small")


def counters_of(node) -> dict[str, int]:
    return {name: int(value) for name, value in node.status()["counters"].items()}


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_large_entries_need_no_ip_fragments(durability):
    """At the leader, and at a follower that forwards them to it; then once more at the next leader."""
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, durability) as data:
        lab.switch(["nft", "-f", "-"], stdin=NO_FRAGMENTS)
        for host in lab.replicas:
            host.set_mtu(MTU)
        settings = NodeSettings(durability=durability, memcached=(("value_max", 60000),), trusted=("10.0.0.0/8",),
                                election=("200ms", "4s"))  # one leader for a round, on a busy machine too
        with hedgerow_cluster(lab, data.path, settings) as cluster:
            for round_number in range(2):
                leader = cluster.wait_ready()
                follower = next(node for node in cluster.nodes if node is not leader)
                for at, node in (("leader", leader), ("follower", follower)):
                    for size in SIZES:
                        key = f"{round_number}-{at}-{size}".encode()
                        value = bytes(97 + index % 26 for index in range(size))
                        assert store(node, key, value) == b"STORED\r\n", (at, size, cluster.states())
                        put(lab, leader, key)
                        for reader in cluster.nodes:
                            assert stored(reader, key) == b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, size, value)
                counters = counters_of(leader)
                assert counters["peer_split_messages.sent"] >= len(SIZES), counters
                assert counters["peer_split_messages.received"] >= 1, "the follower forwards in pieces"
                assert counters.get("kernel.broadcast_failed", 0) == 0
                leader.kill_at_once()
                time.sleep(1.0)
                leader.start()
            assert fragments(lab) == 0, "no node sends any"
