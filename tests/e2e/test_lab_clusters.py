# SPDX-License-Identifier: Apache-2.0
"""Replicated stores as lab hosts: ready, killed, stopped, cut off, started again; ours and etcd through one interface."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.client import hkv
from deploy.lab import Lab, names, netns, node_pins
from deploy.lab.cluster import Cluster, etcd_cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs, file_system
from deploy.lab.servers.hedgerow_node import NodeSettings

TAG = f"self{os.getpid()}4"
STORES = {"hedgerow": hedgerow_cluster, "etcd": etcd_cluster}


def another_leads(cluster: Cluster, former: int, within_s: float = 15.0) -> int:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        leader = cluster.leader()
        if leader is not None and leader.number != former:
            return leader.number
        time.sleep(0.05)
    raise AssertionError(f"node {former} is not replaced: {cluster.states()}")


@pytest.mark.parametrize("store", STORES)
def test_a_killed_leader_is_replaced_and_comes_back(store):
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data, STORES[store](lab, data.path) as cluster:
        leader = cluster.wait_ready()
        leader.kill_at_once()
        assert not leader.running and leader.number not in cluster.states()
        another_leads(cluster, leader.number)
        leader.start()
        assert cluster.wait_ready().running
        assert len(cluster.states()) == 3


# Stopping and cutting are the lab's, and the same for both stores: etcd meets one of them always, the rest with --long.
@pytest.mark.parametrize("fault, store", [
    *((fault, "hedgerow") for fault in ("pause", "both", "out", "in")),
    ("pause", "etcd"), *(pytest.param(fault, "etcd", marks=pytest.mark.long) for fault in ("out", "both", "in"))])
def test_a_leader_that_is_stopped_or_cut_off_is_replaced_and_follows_afterwards(store, fault):
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data, STORES[store](lab, data.path) as cluster:
        leader = cluster.wait_ready()
        begin, end = _fault(lab, leader, fault)
        begin()
        # Of the others: who is cut off, and still taken for the leader by itself, has the lower term.
        another_leads(cluster, leader.number)
        end()
        cluster.wait_ready()


def _fault(lab: Lab, node, fault: str) -> tuple[Callable[[], None], Callable[[], None]]:
    if fault == "pause":
        return node.stall, node.resume
    return (lambda: lab.cut(node.host.name, fault)), (lambda: lab.heal(node.host.name))


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_what_was_written_is_there_after_every_node_was_killed(mode):
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, mode) as data,
          hedgerow_cluster(lab, data.path, NodeSettings(durability=mode)) as cluster):
        leader = cluster.wait_ready()
        with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
            client.open()
            assert [client.incr(b"n") for _ in range(3)] == [1, 2, 3]
        for node in cluster.nodes:
            node.kill_at_once()
        for node in cluster.nodes:
            node.start()
        for node in [cluster.wait_ready(), *cluster.nodes]:
            with hkv.Client(node.host.ipv4, node.port, 5.0, lab.client.socket()) as client:
                assert client.get(b"n") == b"3"


def test_five_replicas_are_ready_too():
    with Lab(TAG, replicas=5) as lab, DataDirs(TAG, "memory") as data, hedgerow_cluster(lab, data.path) as cluster:
        assert cluster.wait_ready().state().leads
        assert len(cluster.states()) == 5


@pytest.mark.parametrize(("said", "detail"), [((), "generic XDP on eth0 (a veth copies each datagram for native XDP)"), ((("xdp", "native"),), "native XDP on eth0")])
def test_nodes_answer_by_generic_xdp_on_a_veth_unless_they_are_told_otherwise(said, detail):
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, NodeSettings(offloads=said)) as cluster):
        leader = cluster.wait_ready()
        with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
            client.open()
            assert [client.incr(b"n") for _ in range(50)] == list(range(1, 51))
        for node in cluster.nodes:
            status = node.status()
            hooks = {offload["name"]: offload for offload in status["offloads"]}
            assert hooks["append"]["on"] and hooks["append"]["detail"] == detail
        follower = next(node for node in cluster.nodes if node is not leader)
        assert int(follower.status()["counters"]["kernel.append_stored"]) > 0


def test_the_switch_is_as_it_was_when_the_nodes_are_gone():
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data:
        with hedgerow_cluster(lab, data.path, NodeSettings(offloads=(("xdp", "native"),))):
            assert _programs_on_the_switch(lab) == 3
        assert _programs_on_the_switch(lab) == 0
        with hedgerow_cluster(lab, data.path):
            assert _programs_on_the_switch(lab) == 0


def _programs_on_the_switch(lab: Lab) -> int:
    with netns.entered(names.netns_name(lab.tag, names.SWITCH)):
        shown = subprocess.run(["ip", "-d", "link"], capture_output=True, text=True, check=True).stdout
    return shown.count("prog/xdp")


def test_data_directories_are_where_the_mode_says_and_go():
    with DataDirs(TAG, "memory") as memory, DataDirs(TAG, "disk") as disk:
        assert file_system(memory.path) == "tmpfs" and file_system(disk.path) != "tmpfs"
        paths = [memory.path, disk.path]
        (memory.path / "log").write_text("x", encoding="ascii")
    assert not any(path.exists() for path in paths)


def test_what_a_killed_run_left_goes_with_the_next():
    left = DataDirs(TAG, "memory")
    left.__enter__()
    (left.path / "a").mkdir()
    pins = node_pins.of(left.path / "a", 1)
    pins.mkdir(parents=True)
    with DataDirs(TAG, "memory") as data:
        assert not left.path.exists() and not pins.exists()
        assert list(data.parent.glob(f"hedgerow-lab-{TAG}-*")) == [data.path]


def test_the_file_system_of_a_path_is_that_of_the_longest_mount():
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/dev/shm")) == "tmpfs"
