# SPDX-License-Identifier: Apache-2.0
"""What the kernel does for the cluster's nodes, with real processes that die at the wrong moment."""

import csv
import os
import re
import time

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.programs import binary
from deploy.lab.servers.hedgerow_node import NodeSettings
from harness.product import wait_until

TAG = f"self{os.getpid()}6"
# How often; `./dev test --long` asks for 200.
KILLS = int(os.environ.get("HR_KERNEL_KILLS", "5"))
# The kernel speaks for a process that stands still for as long as this floor: time enough for a write from Python.
FLOOR_S = 0.4
SLOW = NodeSettings(durability="memory", election=(f"{FLOOR_S * 1000:g}ms", "4s"))


def leader_of(cluster: Cluster, within_s: float = 20.0):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        leader = cluster.leader()
        if leader is not None and leader.state().ready:
            return leader
        time.sleep(0.02)
    raise AssertionError(f"nobody leads: {cluster.states()}")


def write(lab: Lab, node, key: bytes, value: bytes) -> None:
    """A session of its own: one that lives through restarts has nothing to do with this."""
    with hkv.Client(node.host.ipv4, node.port, 5.0, lab.client.socket()) as client:
        client.open()
        client.put(key, value)


def read(lab: Lab, node, key: bytes) -> bytes | None:
    with hkv.Client(node.host.ipv4, node.port, 5.0, lab.client.socket()) as client:
        return client.get(key)


def counters_of(node) -> dict[str, int]:
    return {name: int(value) for name, value in node.status()["counters"].items()}


def offloads_of(node) -> dict[str, dict]:
    return {offload["name"]: offload for offload in node.status()["offloads"]}


def test_what_only_a_kernel_has_acknowledged_outlives_the_process():
    """One follower is cut off; the other is stopped, its kernel acknowledges a write, and then it and the leader are
    killed: the write is nowhere but in the maps of a process that is dead, and in the log of a leader that stays away."""
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SLOW) as cluster):
        adopted = 0
        for number in range(KILLS):
            leader = cluster.wait_ready()
            holder, absent = (node for node in cluster.nodes if node is not leader)
            value = str(number).encode()
            with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
                client.open()
                lab.cut(absent.host.name, "both")  # stopped, it would find the write in its socket afterwards
                holder.stall()
                client.put(b"key", value)
            holder.kill_at_once()
            leader.kill_at_once()
            holder.start()
            lab.heal(absent.host.name)
            assert leader_of(cluster) is holder, "the other one lacks the write"
            assert read(lab, holder, b"key") == value
            adopted += holder.status()["counters"].get("kernel_bridge.adopted", 0)
            leader.start()
        assert adopted >= KILLS, "the log had it: nothing was shown"


def test_a_leader_that_stands_still_resigns_and_that_is_counted():
    """`./dev chaos no-false-elections` wants these counters to be 0, so they must not be 0 whatever happens."""
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SLOW) as cluster):
        leader = cluster.wait_ready()
        others = [node for node in cluster.nodes if node is not leader]
        heard = sum(counters_of(node)["resigns_heard"] for node in others)
        sent = counters_of(leader)["kernel.resigned"]
        leader.stall()
        try:
            time.sleep(3 * FLOOR_S)
            assert sum(counters_of(node)["resigns_heard"] for node in others) > heard
        finally:
            leader.resume()
        assert counters_of(leader)["kernel.resigned"] > sent
        # The leader says that it stood still. A follower's own timeout, drawn at random, may end just before the RESIGN.
        assert sum(counters_of(node)[f"elections_begun.{why}"] for node in others for why in ("resigned", "silent_leader")) >= 1
        longest_s = max(still_s(incident["what"]) for incident in leader.status()["incidents"])
        assert 0.4 <= longest_s <= 5.0


def test_a_leader_that_is_killed_resigns_and_its_successor_says_so():
    """The RESIGN comes within milliseconds, long before any follower's timeout."""
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SLOW) as cluster):
        leader = cluster.wait_ready()
        others = [node for node in cluster.nodes if node is not leader]
        before = sum(counters_of(node)["elections_begun.resigned"] for node in others)
        leader.kill_at_once()
        wait_until(lambda: sum(counters_of(node)["elections_begun.resigned"] for node in others) > before,
                   timeout_s=5, what="an election because the leader resigned")
        assert any("resigned" in incident["what"] for node in others for incident in node.status().get("incidents", []))


def still_s(what: str) -> float:
    """How long a node's loop stood still, as it says; 0: it says something else."""
    found = re.search(r"stood still for ([0-9.]+)(ms|s)$", what)
    return float(found[1]) / (1000 if found[2] == "ms" else 1) if found else 0.0


def test_nobody_is_called_silent_whose_answers_the_kernel_works_off():
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, NodeSettings(durability="memory")) as cluster):
        # A peer that is silent for a second is a leader's problem, so it must have led for longer. On a busy machine
        # leaders change, and a node that is kept from running is silent in earnest: only what lasts is a fault.
        deadline, calm, status = time.monotonic() + 30, 0, {}
        while calm < 3:
            assert time.monotonic() < deadline, status
            time.sleep(0.3)
            status = cluster.wait_ready().status() or {}
            led_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(status.get("led_since_ns", 0))
            if status.get("role") != "leader" or led_ns < 2_000_000_000:
                continue
            heard = (status["counters"]["kernel.heartbeat_counted"] > 100 and not status.get("problems")
                     and all(int(peer["heard_ago_ns"]) < 500_000_000 for peer in status["peers"]))
            calm = calm + 1 if heard else 0


def test_what_a_small_mtu_fragments_still_reaches_every_node():
    """The broadcast copies no fragments: one member gets the datagram, the others miss it, and are then sent their own."""
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SLOW) as cluster):
        cluster.wait_ready()
        time.sleep(1.5)  # the broadcast knows its neighbours
        for host in (lab.client, *(node.host for node in cluster.nodes)):
            host.run(["ip", "link", "set", "eth0", "mtu", "1000"])
        leader = cluster.wait_ready()
        write(lab, leader, b"key", b"x" * 1100)
        deadline = time.monotonic() + 10
        while any(int(peer["match_index"]) < int(leader.status()["last_index"]) for peer in leader.status()["peers"]):
            assert time.monotonic() < deadline, leader.status()["peers"]
            time.sleep(0.1)
        assert leader.status()["counters"]["kernel.broadcast_failed"] > 0, "nothing was fragmented"


def kernel_holds(node) -> bool:
    """Whether the node's identity says that the kernel may hold promises of it."""
    lines = (node.data_dir / "identity").read_text().splitlines()
    return next(line for line in lines if line.startswith("kernel ")) != "kernel - held"


def test_after_a_stop_in_order_nothing_is_pinned_and_nothing_is_owed():
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data:
        with hedgerow_cluster(lab, data.path, SLOW) as cluster:
            write(lab, cluster.wait_ready(), b"key", b"value")
            assert all(node.pins.is_dir() and kernel_holds(node) for node in cluster.nodes)
            for node in cluster.nodes:
                node.process.terminate()
                assert node.process.wait(20) == 0
            assert not any(node.pins.exists() or kernel_holds(node) for node in cluster.nodes)


def test_every_offload_can_be_off_and_status_says_so():
    names = ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog")
    settings = NodeSettings(offloads=tuple((name, "off") for name in names))
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, settings) as cluster):
        leader = cluster.wait_ready()
        write(lab, leader, b"key", b"value")
        for node in cluster.nodes:
            offloads = offloads_of(node)
            assert set(offloads) == set(names)
            assert all(not offload["on"] and offload["detail"] == "switched off" for offload in offloads.values())


def test_in_disk_mode_the_kernel_promises_nothing():
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data,
          hedgerow_cluster(lab, data.path, NodeSettings(durability="disk")) as cluster):
        leader = cluster.wait_ready()
        write(lab, leader, b"key", b"value")
        for node in cluster.nodes:
            offloads = offloads_of(node)
            assert offloads["heartbeat"]["on"] and offloads["quorum"]["on"]
            assert offloads["append"]["detail"] == "durability is disk"
            counters = node.status()["counters"]
            assert counters["kernel.append_stored"] == 0 and counters["kernel.vote_granted"] == 0


def test_on_disks_a_write_waits_for_the_disk_and_not_for_a_heartbeat():
    """A follower's kernel answered heartbeats with less than its process had just acknowledged. The leader took it for one
    that had started again, and its writes stood still, for up to 230 ms under this load."""
    seconds = 4
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data:
        with hedgerow_cluster(lab, data.path, NodeSettings(durability="disk")) as cluster:
            cluster.wait_ready()
            before = sum(counters_of(node)["append_gaps.restarted"] for node in cluster.nodes)
            history = data.path / "history.csv"
            lab.client.run([str(binary("hr-kv-chaos")), "--mode=noproxy-app", f"--servers={','.join(cluster.endpoints)}",
                            "--timeout=5s", "--hedge_delay=10ms", "--seed=5", f"--seconds={seconds}",
                            f"--history={history}", f"--report={data.path / 'report.json'}"], timeout=seconds + 30)
            restarted = sum(counters_of(node)["append_gaps.restarted"] for node in cluster.nodes) - before
        with open(history, encoding="ascii") as file:
            writes = sum(row["kind"] == "i" and row["ending"] == "ok" for row in csv.DictReader(file))
    assert writes > 250 * seconds
    assert restarted < 25, "followers were taken for restarted ones"
