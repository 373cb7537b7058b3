# SPDX-License-Identifier: Apache-2.0
"""The cluster's members change under load, with the kernel's help and without: no write is lost or done twice, none fails, and
nothing is sent any more to whoever has left."""

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
from deploy.lab.servers.hedgerow_node import PEER_PORT, HedgerowNode, NodeSettings

TAG = f"member{os.getpid()}"
NAMES = ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog", "reserve")
OFF = tuple((name, "off") for name in NAMES)
MODES = pytest.mark.parametrize(("durability", "offloads"), [("memory", ()), ("disk", ()), ("memory", OFF)],
                                ids=["memory", "disk", "off"])


class Writer:
    """Increments one number, one write after the other, at all nodes in turn; each until it is answered, for at most 5 s."""

    def __init__(self, lab: Lab, nodes: list):
        self._sockets = []
        for node in nodes:
            sock = lab.client.socket()
            sock.connect((node.host.ipv4, node.port))
            sock.settimeout(0.05)
            self._sockets.append(sock)
        self.done, self.slowest_s, self.error = 0, 0.0, ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._stop.set()
        self._thread.join()
        for sock in self._sockets:
            sock.close()

    def more(self, count: int = 50, within_s: float = 10.0) -> None:
        """Waits for so many more."""
        wanted, deadline = self.done + count, time.monotonic() + within_s
        while self.done < wanted and not self.error:
            assert time.monotonic() < deadline, f"{wanted - self.done} of {count} writes are missing"
            time.sleep(0.01)
        assert not self.error, self.error

    def _run(self) -> None:
        answer = self._ask(hkv.OPEN, 0, 4711)
        session, seq = (answer.session if answer else 0), 0
        while session and not self._stop.is_set():
            seq += 1
            answer = self._ask(hkv.WRITE, session, seq, lowest_unanswered=seq, operations=[hkv.incr_operation(b"n")])
            if answer is None:
                self.error = self.error or f"write {seq} was not answered"
            elif answer.values != [b"%d" % seq]:
                self.error = f"write {seq} gave {answer.values}"
            if self.error:
                return
            self.done = seq

    def _ask(self, kind: int, client_id: int, seq: int, **body) -> hkv.Answer | None:
        begun = time.monotonic()
        datagram = hkv.encode_request(kind, 2_000_000, client_id, seq, **body)
        while time.monotonic() < begun + 5.0:
            for sock in self._sockets:
                try:
                    sock.send(datagram)
                    answer = hkv.parse_answer(sock.recv(hkv.MAX_BYTES + 1))
                except OSError:
                    continue  # this node is down, or away
                if answer and (answer.client_id, answer.seq, answer.status) == (client_id, seq, hkv.OK):
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                    return answer
        return None


def leader_of(cluster: Cluster, within_s: float = 20.0) -> HedgerowNode:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        leader = cluster.leader()
        if leader is not None and leader.state().ready:
            return leader
        time.sleep(0.02)
    raise AssertionError(f"nobody leads: {cluster.states()}")


def change(cluster: Cluster, *words, within_s: float = 20.0) -> None:
    """At whoever leads, until it is taken up."""
    deadline, why = time.monotonic() + within_s, "nobody was asked"
    while time.monotonic() < deadline:
        why = leader_of(cluster).change_members(*words)
        if not why:
            return
        time.sleep(0.05)
    raise AssertionError(f"members {words}: {why}")


def role_of(node: HedgerowNode, number: int) -> str:
    members = (node.status() or {}).get("members", [])
    return next((member["role"] for member in members if int(member["id"]) == number), "none")


def peer_datagrams_to(node: HedgerowNode, for_s: float) -> int:
    """Those that arrive at its host, whether anybody listens there or not."""
    with node.host.entered():
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    deadline, count = time.monotonic() + for_s, 0
    with sniffer:
        while (left_s := deadline - time.monotonic()) > 0:
            sniffer.settimeout(left_s)
            try:
                packet, address = sniffer.recvfrom(2048)
            except TimeoutError:
                break
            header_bytes = (packet[0] & 15) * 4
            to_peer = packet[9] == socket.IPPROTO_UDP and \
                struct.unpack_from("!H", packet, header_bytes + 2)[0] == PEER_PORT
            count += to_peer and address[2] != socket.PACKET_OUTGOING
    return count


def four(lab: Lab, data, settings: NodeSettings) -> tuple[Cluster, HedgerowNode]:
    """Three of them are a cluster; the fourth waits."""
    cluster = hedgerow_cluster(lab, data.path, settings)
    hosts = lab.replicas
    members = [HedgerowNode(host, number, hosts[:3], data.path / host.name, settings)
               for number, host in enumerate(hosts[:3], start=1)]
    joins = HedgerowNode(hosts[3], 4, hosts, data.path / hosts[3].name, settings, join=True)
    cluster.nodes = [*members, joins]
    return cluster, joins


@MODES
def test_a_member_is_replaced_and_the_leader_removed_under_load(durability, offloads):
    settings = NodeSettings(durability=durability, offloads=offloads)
    with Lab(TAG, replicas=4) as lab, DataDirs(TAG, durability) as data:
        cluster, joins = four(lab, data, settings)
        with cluster, Writer(lab, cluster.nodes) as writer:
            leader = leader_of(cluster)
            writer.more()
            change(cluster, "add", 4, f"{joins.host.ipv4}:{PEER_PORT}")
            leaves = cluster.nodes[leader.number % 3]
            assert peer_datagrams_to(leaves, 0.5) > 0, "what comes later would show nothing"
            change(cluster, "replace", leaves.number, 4)
            writer.more()
            assert role_of(leader_of(cluster), 4) == "voter"
            time.sleep(0.1)  # for who learns last that it is committed
            assert peer_datagrams_to(leaves, 1.0) == 0
            # It does not know that it has left, and asks in vain.
            leaves.kill_at_once()
            leaves.start()
            time.sleep(1.0)
            leader = leader_of(cluster)
            change(cluster, "remove", leader.number)
            writer.more()
            assert leader_of(cluster).number != leader.number
            assert role_of(leader_of(cluster), leader.number) in ("left", "none")
        assert writer.slowest_s < 2.0


@MODES
def test_a_leader_that_is_killed_in_the_midst_of_a_change_loses_nothing(durability, offloads):
    settings = NodeSettings(durability=durability, offloads=offloads)
    with Lab(TAG, replicas=4) as lab, DataDirs(TAG, durability) as data:
        cluster, joins = four(lab, data, settings)
        with cluster, Writer(lab, cluster.nodes) as writer:
            leader_of(cluster)
            writer.more()
            change(cluster, "add", 4, f"{joins.host.ipv4}:{PEER_PORT}")
            for words in (("promote", 4), ("remove", 4), ("add", 4, f"{joins.host.ipv4}:{PEER_PORT}"), ("promote", 4)):
                leader = leader_of(cluster)
                asking = threading.Thread(target=leader.change_members, args=words)
                asking.start()
                time.sleep(0.02)
                leader.kill_at_once()
                asking.join()
                writer.more()
                leader.start()
                # Begun and ended, or never begun: either way it can be done now, or is.
                deadline = time.monotonic() + 20.0
                while time.monotonic() < deadline:
                    status = leader_of(cluster).status() or {}
                    if not status.get("joint") and status.get("config_epoch") == status.get("committed_epoch"):
                        break
                    time.sleep(0.05)
                else:
                    raise AssertionError(f"a change is half done: {status}")
            writer.more()
