# SPDX-License-Identifier: Apache-2.0
"""The event loop of each daemon sleeps while there is nothing to do: its turns are counted, and few."""

import os
import re
import time
from collections.abc import Callable

import pytest

from deploy.lab import Lab
from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import MODES, DataDirs
from deploy.lab.servers.hedgerow_node import NodeSettings
from harness.steer import Group, made_folder, made_netns, scraped

TAG = f"self{os.getpid()}7"
# Timers, the second's look, and what asks for the page: 13 wake-ups a second were counted of hedgerowd.
OF_A_DAEMON_PER_S = 100
# Rounds, leases and their answers: 250 of a leader and 150 of a follower were counted with the kernel part.
OF_A_NODE_PER_S = 1000


def turns_per_s(read: Callable[[], float], seconds: float = 2.0) -> float:
    before, began = read(), time.monotonic()
    time.sleep(seconds)
    return (read() - before) / (time.monotonic() - began)


def test_hedgerowd_at_rest(servers, product):
    proxy = product.up(metrics={"listen": "127.0.0.1:9464"})
    assert 0 < turns_per_s(lambda: proxy.metric("hedgerow_loop_turns_total")) < OF_A_DAEMON_PER_S
    assert proxy.metric("hedgerow_loop_turns_total", worked="true") > 0


def test_steer_at_rest():
    with made_netns(f"hr-turns-{os.getpid()}") as net, made_folder() as folder:
        group = Group(net, folder, f"turns-{os.getpid()}")
        group.start("--metrics", f"unix:{folder}/metrics.sock")

        def turns() -> float:
            return sum(map(float, re.findall(r"^hedgerow_steer_loop_turns_total\{.*\} (\S+)$", scraped(folder / "metrics.sock"), re.M)))

        assert 0 < turns_per_s(turns) < OF_A_DAEMON_PER_S
        group.stop()


@pytest.mark.parametrize("mode", MODES)
def test_nodes_with_their_kernel_part_at_rest_and_without_a_member(mode):
    def turns(node) -> int:
        return sum(int(value) for name, value in node.status()["counters"].items() if name.startswith("loop_turns."))

    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, mode) as data, hedgerow_cluster(lab, data.path, NodeSettings(durability=mode)) as cluster:
        leader = cluster.wait_ready()
        for node in cluster.nodes:
            assert 0 < turns_per_s(lambda node=node: turns(node)) < OF_A_NODE_PER_S, node.status()["role"]
        gone = next(node for node in cluster.nodes if node is not leader)
        gone.kill_at_once()
        time.sleep(0.5)
        for node in cluster.nodes:
            if node is not gone:
                assert 0 < turns_per_s(lambda node=node: turns(node)) < OF_A_NODE_PER_S, node.status()["role"]
        gone.start()
