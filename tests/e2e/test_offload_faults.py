# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with a node's kernel programs from outside: refused, in the way of others, taken off, lied to."""

import contextlib
import os
import socket
import struct
import threading
import time

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.programs import bpf_object
from deploy.lab.servers.hedgerow_node import PEER_PORT, NodeSettings
from tests.e2e.harness import bpf_links

TAG = f"self{os.getpid()}9"
MEMORY = NodeSettings(durability="memory")
PATIENT = NodeSettings(durability="memory", election=("200ms", "4s"))  # the leader stays, on a busy machine too
ANSWERING = ("heartbeat", "vote", "append", "quorum")


def offloads_of(node) -> dict[str, dict]:
    return {offload["name"]: offload for offload in node.status()["offloads"]}


def counters_of(node) -> dict[str, int]:
    return {name: int(value) for name, value in node.status()["counters"].items()}


def wait_until(done, what: str, within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def put_and_get(lab: Lab, cluster: Cluster) -> None:
    leader = cluster.wait_ready()
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        client.open()
        client.put(b"key", b"value")
        assert client.get(b"key") == b"value"


class Writer:
    """Puts one key after another, wherever the leader is; `acked` are those that were acknowledged."""

    def __init__(self, lab: Lab, cluster: Cluster):
        self._lab, self._cluster = lab, cluster
        self.acked: list[int] = []
        self.errors = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            leader = self._cluster.leader()
            if leader is None:
                time.sleep(0.02)
                continue
            with contextlib.suppress(hkv.HkvError), hkv.Client(leader.host.ipv4, leader.port, 1.0,
                                                               self._lab.client.socket()) as client:
                client.open()
                while not self._stop.is_set():
                    number += 1
                    client.put(b"key %d" % number, b"%d" % number)
                    self.acked.append(number)
            self.errors += not self._stop.is_set()

    def check(self) -> None:
        leader = self._cluster.wait_ready()
        with hkv.Client(leader.host.ipv4, leader.port, 5.0, self._lab.client.socket()) as client:
            lost = [number for number in self.acked if client.get(b"key %d" % number) != b"%d" % number]
        assert lost == [], f"{len(lost)} of {len(self.acked)} acknowledged writes are lost"


@pytest.mark.parametrize(("program", "off"), [("hr_node_xdp", ANSWERING), ("hr_node_broadca", ("broadcast",))])
def test_a_program_that_the_kernel_refuses_costs_its_own_offload(program, off):
    settings = NodeSettings(durability="memory", refused=(program,))
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data, hedgerow_cluster(lab, data.path, settings) as cluster:
        put_and_get(lab, cluster)
        for node in cluster.nodes:
            offloads = offloads_of(node)
            for name in (*ANSWERING, "broadcast", "watchdog"):
                assert offloads[name]["on"] == (name not in off), offloads[name]
            assert all(offloads[name]["detail"].startswith("the kernel refused") for name in off)
            assert (counters_of(node)["kernel.heartbeat_answered"] == 0) or "heartbeat" not in off


def test_a_hook_that_somebody_has_is_his_until_he_leaves():
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data:
        held = lab.replicas[0]
        held.run(["ip", "link", "set", "dev", "eth0", "xdpdrv", "object", bpf_object("node_pass"), "section", "xdp.frags"])
        with hedgerow_cluster(lab, data.path, MEMORY) as cluster:
            put_and_get(lab, cluster)
            node = cluster.nodes[0]
            for name in ANSWERING:
                said = offloads_of(node)[name]
                assert not said["on"] and "has an XDP program already" in said["detail"], said
            assert offloads_of(node)["broadcast"]["on"] and offloads_of(cluster.nodes[1])["append"]["on"]
            assert counters_of(node)["kernel.append_stored"] == 0
            held.run(["ip", "link", "set", "dev", "eth0", "xdpdrv", "off"])
            wait_until(lambda: offloads_of(node)["append"]["on"], "the hook is free, and not taken")
            put_and_get(lab, cluster)


def test_programs_that_are_taken_off_under_load_lose_nothing_and_come_back():
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data, hedgerow_cluster(lab, data.path, MEMORY) as cluster:
        cluster.wait_ready()
        with Writer(lab, cluster) as writer:
            for number in range(4):  # each once, and one of them again
                node = cluster.nodes[number % 3]
                wait_until(lambda node=node: offloads_of(node)["append"]["on"], "not attached")
                links, before = bpf_links.links_of(node.process.pid, "xdp"), counters_of(node)
                assert len(links) == 1
                written = len(writer.acked)
                bpf_links.detach(links[0])
                wait_until(lambda node=node, before=before: counters_of(node)["kernel_detached"] > before["kernel_detached"],
                           "not noticed")
                wait_until(lambda node=node: offloads_of(node)["append"]["on"], "not attached again")
                wait_until(lambda written=written: len(writer.acked) > written, "no more writes")
        assert len(writer.acked) > 100
        writer.check()
        put_and_get(lab, cluster)


def _with_payload(frame: bytes, payload: bytes) -> bytes:
    """An IPv4 frame with another UDP payload, without a UDP checksum."""
    ip, udp = bytearray(frame[14:34]), bytearray(frame[34:42])
    struct.pack_into("!H", ip, 2, 28 + len(payload))
    struct.pack_into("!H", ip, 10, 0)
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", ip, 10, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    struct.pack_into("!HH", udp, 4, 8 + len(payload), 0)
    return frame[:14] + bytes(ip) + bytes(udp) + payload


def test_what_is_replayed_forged_or_cut_changes_nothing_and_is_counted():
    """From the leader's own wire, with its own bytes."""
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data, hedgerow_cluster(lab, data.path, PATIENT) as cluster:
        put_and_get(lab, cluster)
        leader = cluster.wait_ready()
        victim = next(node for node in cluster.nodes if node is not leader)
        wait_until(lambda: offloads_of(victim)["append"]["on"], "not attached")
        wire = leader.host.socket(socket.AF_PACKET, socket.SOCK_RAW)
        with wire, leader.host.entered():
            wire.bind(("eth0", 0x0003))
            wire.settimeout(5)
            to_victim = socket.inet_aton(victim.host.ipv4) + struct.pack("!HH", PEER_PORT, PEER_PORT)
            frames = []
            while len(frames) < 20:
                frame = wire.recv(65535)
                if frame[12:14] == b"\x08\x00" and frame[30:38] == to_victim:
                    frames.append(frame)
            before, status = counters_of(victim), victim.status()
            for frame in frames:
                payload = frame[42:]
                forged = bytearray(payload)
                forged[-1] ^= 1
                for sent in (payload, bytes(forged), payload[:-3]):
                    wire.send(_with_payload(frame, sent))
        wait_until(lambda: counters_of(victim)["kernel.dropped_tag"] >= before["kernel.dropped_tag"] + len(frames),
                   "forged datagrams are not counted")
        after = counters_of(victim)
        grown = {name: after[name] - before[name] for name in after if name.startswith(("kernel.", "peer_dropped."))}
        assert grown["kernel.dropped_replayed"] >= len(frames), grown
        assert grown["kernel.passed_malformed"] >= len(frames), grown
        assert sum(count for name, count in grown.items() if name.startswith("peer_dropped.")) >= len(frames), grown
        now = victim.status()
        assert (now["term"], now["leader"]) == (status["term"], status["leader"])
        put_and_get(lab, cluster)
