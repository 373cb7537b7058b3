# SPDX-License-Identifier: Apache-2.0
"""Followers that are too far behind for the log: real nodes, with and without the kernel's help, killed at the wrong moment."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.programs import binary
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings

TAG = f"self{os.getpid()}6"
ALL_OFF = tuple((name, "off") for name in ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog"))
# Not what is tried here; the default is too eager for a busy machine.
PATIENT = ("200ms", "4s")
EVERY, TAIL = 2000, 200
PATIENCE_S = 40.0


def snapshots_of(node: HedgerowNode) -> dict:
    status = node.status()
    return {} if status is None else {**status["snapshots"], "counters": status["counters"], "applied": int(status["applied"]),
                                      "commit": int(status["commit"])}


def number(values: dict, key: str) -> int:
    return int(values.get(key, 0))


def wait_for(what: str, holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.02)


def load_command(leader: HedgerowNode, seconds: float, clients: int, rate: int = 0) -> list[str]:
    return [str(binary("hr-kv-load")), f"--server={leader.endpoint}", f"--clients={clients}", "--keys=50", "--value_bytes=900",
            "--warm_up=100ms", f"--measured={seconds}s", f"--rate={rate}"]


def write_until(lab: Lab, leader: HedgerowNode, holds: Callable[[], bool]) -> None:
    """Fills the store with some three megabytes, over and over."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        lab.client.run(load_command(leader, 1, 64), timeout=30)


@contextmanager
def under_load(lab: Lab, leader: HedgerowNode, seconds: float) -> Iterator[subprocess.Popen]:
    child = lab.client.popen(load_command(leader, seconds, 8, rate=1000), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        lab.client.stop(child)


def ask_again(lab: Lab, node: HedgerowNode, session: tuple[int, int], seq: int) -> list[bytes]:
    """A late copy of an increment, at this node."""
    copy = hkv.encode_request(hkv.WRITE, 5_000_000, session[0], seq, seq, operations=[hkv.incr_operation(b"n")], token=session[1])
    with lab.client.socket() as socket:
        socket.settimeout(5.0)
        socket.sendto(copy, (node.host.ipv4, node.port))
        return hkv.parse_answer(socket.recv(2048)).values


@pytest.mark.parametrize(("mode", "offloads"), [("memory", ()), ("disk", ALL_OFF), ("disk", ())],
                         ids=["memory-offloads", "disk-alone", "disk-offloads"])
def test_a_follower_far_behind_catches_up_under_load_and_does_nothing_twice(mode, offloads):
    settings = NodeSettings(durability=mode, offloads=offloads, election=PATIENT,
                            snapshots=(("every_entries", EVERY), ("tail_entries", TAIL)))
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, mode) as data, hedgerow_cluster(lab, data.path, settings) as cluster:
        leader = cluster.wait_ready()
        behind = next(node for node in cluster.nodes if node is not leader)
        with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
            client.open()
            behind.kill_at_once()
            assert [client.incr(b"n") for _ in range(3)] == [1, 2, 3]
            session = (client.session, client.token)
        last = snapshots_of(leader)["applied"]
        write_until(lab, leader, lambda: number(snapshots_of(leader), "log_start") > last)
        with under_load(lab, leader, 8):
            behind.start()
            wait_for("a snapshot is installed", lambda: number(snapshots_of(behind).get("counters", {}), "snapshots.installed"))
            wait_for("it keeps up", lambda: snapshots_of(behind)["applied"] + 500 > snapshots_of(leader)["commit"])
        # The third write was applied where this node's log does not reach: only the snapshot can know of it.
        assert ask_again(lab, behind, session, 3) == [b"3"]
        with hkv.Client(behind.host.ipv4, behind.port, 5.0, lab.client.socket()) as client:
            assert client.get(b"n") == b"3"
        # And it is a member like any other.
        leader.kill_at_once()
        wait_for("somebody else leads", lambda: (cluster.leader() or leader) is not leader)
        assert ask_again(lab, behind, session, 3) == [b"3"]
        for node in cluster.nodes:
            if node.running:
                node.kill_at_once()
        for node in cluster.nodes:
            node.start()
        leader = cluster.wait_ready()
        assert number(snapshots_of(leader), "last_index") > last, "from snapshot and tail"
        assert ask_again(lab, leader, session, 3) == [b"3"]


def in_the_midst(follower: HedgerowNode) -> bool:
    return any(transfer["direction"] == "receives" and 5 < transfer.get("percent", 0) < 60
               for transfer in snapshots_of(follower).get("transfers", []))


def test_transfers_whose_sender_or_receiver_is_killed_arrive_in_the_end():
    settings = NodeSettings(durability="disk", election=PATIENT,
                            snapshots=(("every_entries", EVERY), ("tail_entries", TAIL), ("rate", "1MiB")))
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data, hedgerow_cluster(lab, data.path, settings) as cluster:
        leader = cluster.wait_ready()
        behind = next(node for node in cluster.nodes if node is not leader)
        behind.kill_at_once()
        with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
            client.open()
            assert client.incr(b"n") == 1
            session = (client.session, client.token)
        last = snapshots_of(leader)["applied"]
        write_until(lab, leader, lambda: number(snapshots_of(leader), "log_start") > last)

        behind.start()
        wait_for("a transfer is under way", lambda: in_the_midst(behind))
        behind.kill_at_once()
        behind.start()
        wait_for("another one is", lambda: in_the_midst(behind))
        assert len(list((behind.data_dir / "snapshots").glob("*.receiving"))) == 1, "nothing is left of the first"
        leader.kill_at_once()
        other = next(node for node in cluster.nodes if node not in (leader, behind))
        leader.start()
        wait_for("a snapshot is installed", lambda: number(snapshots_of(behind).get("counters", {}), "snapshots.installed"))
        cluster.wait_ready()
        wait_for("it has all", lambda: snapshots_of(behind)["applied"] == snapshots_of(other)["applied"])
        assert ask_again(lab, behind, session, 1) == [b"1"]
        assert not list((behind.data_dir / "snapshots").glob("*.receiving"))
