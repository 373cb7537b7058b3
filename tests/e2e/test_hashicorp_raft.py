# SPDX-License-Identifier: Apache-2.0
"""The store on hashicorp/raft that `bench kv` measures beside ours: it keeps what is put, its followers name the leader,
it goes on without one that was killed, and our own load measures it as it measures ours.
"""

import json
import os
import time

import pytest

from bench import kv
from chaos.systems import HASHICORP, Settings, running
from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.servers.hashicorp_node import READS
from deploy.lab.servers.store_node import StoreNode
from tests import needs

TAG = f"self{os.getpid()}6"
pytestmark = needs.program("hr-hashicorp-raft")


def ask(lab: Lab, node: StoreNode) -> hkv.Client:
    return hkv.Client(node.host.ipv4, node.port, 5.0, lab.client.socket())


@pytest.mark.parametrize("reads", READS)
def test_it_keeps_what_is_put_and_goes_on_without_its_leader(reads):
    with Lab(TAG, replicas=3) as lab, running(HASHICORP, lab, Settings(reads=reads)) as up:
        leader = up.cluster.wait_ready()
        with ask(lab, leader) as client:
            client.open()
            assert client.get(b"k") is None
            client.put(b"k", b"v1")
            assert client.get(b"k") == b"v1"
        for node in up.cluster.nodes:
            if node is not leader:
                with ask(lab, node) as client, pytest.raises(hkv.HkvError) as refused:
                    client.open()
                assert (refused.value.status, refused.value.hint) == (hkv.STATUSES.index("NOT_LEADER"), leader.number)
        leader.kill_at_once()
        others = [node for node in up.cluster.nodes if node is not leader]
        successor = wait_for_successor(others)
        with ask(lab, successor) as client:
            client.open()
            assert client.get(b"k") == b"v1"
            client.put(b"k", b"v2")
            assert client.get(b"k") == b"v2"


def wait_for_successor(nodes: list[StoreNode]) -> StoreNode:
    deadline = time.monotonic() + 30
    while True:
        for node in nodes:
            state = node.state()
            if state is not None and state.leads and state.ready:
                return node
        assert time.monotonic() < deadline, [node.state() for node in nodes]
        time.sleep(0.05)


@pytest.mark.parametrize("replicas", [kv.REPLICAS[0], *(pytest.param(each, marks=pytest.mark.long) for each in kv.REPLICAS[1:])])
def test_our_load_measures_it(replicas, tmp_path):
    status = kv.EXPERIMENT.main(["--rounds", "1", "--replicas", replicas, "--modes", "memory,disk", "--clients", "1,64", "--systems", "hashicorp-raft",
                      "--values", kv.VALUES[0], "--seconds", "0.5", "--warm-up", "0.2", "--quiet-wait", "0", "--into", str(tmp_path)])
    assert status == 1  # one round is never enough
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="ascii"))
    assert [(row["mode"], row["clients"], row["operation"]) for row in summary["rows"]] == [
        ("memory", clients, operation) for clients in (1, 64) for operation in ("put", "get")]
    for row in summary["rows"]:
        assert row["n"] > 20 and row["failed"] == 0, row
        assert summary["manifest"]["configs"][row["config_hash"]]["replicas"] == int(replicas)
