# SPDX-License-Identifier: Apache-2.0
"""A get at a member that does not lead needs a majority, and no leader: it is answered while the leader stands still."""

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import MODES, DataDirs
from deploy.lab.servers.hedgerow_node import NO_OFFLOADS, HedgerowNode, NodeSettings

TAG = f"self{os.getpid()}4"
# No member stands for election, whatever else this machine does: what is answered was confirmed without a leader.
PATIENT = ("2s", "4s")
STOPPED_S = 1.0
# A wait for the leader (1 ms), a round trip, and what a busy machine adds. Without these reads it is the election's.
ANSWERED_WITHIN_S = 0.5


@contextlib.contextmanager
def stopped(node: HedgerowNode) -> Iterator[None]:
    node.stall()
    try:
        yield
    finally:
        node.resume()


def longest_get_s(client: hkv.Client, keys: list[bytes], until: float) -> float:
    longest = 0.0
    while time.monotonic() < until:
        for key in keys:
            began = time.monotonic()
            assert client.get(key) == b"value of " + key
            longest = max(longest, time.monotonic() - began)
    return longest


def followers(cluster: Cluster, leader: HedgerowNode) -> list[HedgerowNode]:
    return [node for node in cluster.nodes if node is not leader]


@pytest.mark.parametrize("offloads", [(), NO_OFFLOADS], ids=["with the kernel part", "without"])
@pytest.mark.parametrize("mode", MODES)
def test_gets_are_answered_while_the_leader_stands_still(mode, offloads):
    # The leader's kernel clock would have it resign.
    settings = NodeSettings(durability=mode, election=PATIENT, offloads=offloads or (("watchdog", "off"),))
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, mode) as data, hedgerow_cluster(lab, data.path, settings) as cluster:
        leader = cluster.wait_ready()
        keys = [b"key %d" % number for number in range(10)]
        with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
            for key in keys:
                client.put(key, b"value of " + key)
        term = leader.state().term
        time.sleep(1.0)  # the followers hear that the last put is committed: a heartbeat
        for node in followers(cluster, leader):
            with stopped(leader), hkv.Client(node.host.ipv4, node.port, 5.0, lab.client.socket()) as client:
                assert longest_get_s(client, keys, time.monotonic() + STOPPED_S) < ANSWERED_WITHIN_S
            cluster.wait_ready()
        assert cluster.wait_ready().state().term == term, "there was an election"
        assert all(int(node.status()["counters"]["majority_reads"]) > 0 for node in followers(cluster, leader))
