# SPDX-License-Identifier: Apache-2.0
"""A member that holds the cluster's key and is at fault: its datagrams are sealed as they should be, and say what no member says.

Two whole nodes of three run; in the third one's place stands a program written from docs/WIRE_FORMAT.md. It sends each kind of datagram
with odd terms, indexes, lengths, kinds and versions. The nodes live, keep what they have acknowledged, and count what they refuse. It tells
no lie on which a majority may build (a vote or an acknowledgement that it goes back on): no protocol of this kind bears those.
"""

import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import NO_OFFLOADS, PEER_PORT, HedgerowNode, NodeSettings

TAG = f"oddm{os.getpid()}"
SELF = 3
(HELLO, HELLO_ACK, VOTE_REQUEST, VOTE_REPLY, APPEND, APPEND_REPLY, HEARTBEAT, HEARTBEAT_REPLY, READ_INDEX, READ_INDEX_REPLY, TIMEOUT_NOW,
 FORWARD, FORWARD_ANSWER, RESIGN, PIECE, LAST_ENTRY) = range(1, 17)
CORES = (*range(VOTE_REQUEST, FORWARD), LAST_ENTRY)
U64 = 2**64 - 1
COPY = 2**63 | 77  # the id of this member's copy of the log, as a HELLO_ACK says it
FIELDS = {"magic": 0, "version": 1, "kind": 2, "bytes": 3, "cluster_id": 5, "incarnation": 6, "number": 7, "from": 8, "to": 9, "key_id": 12}
HEAD = struct.Struct("<IBBHQQQQIIQII")


def counters(node: HedgerowNode) -> Counter:
    return Counter({name: int(value) for name, value in (node.status() or {"counters": {}})["counters"].items()})


def wait_until(done, what: str, within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class OddMember(threading.Thread):
    """Answers each HELLO, as a member does, and is silent otherwise."""

    def __init__(self, host, settings: NodeSettings):
        super().__init__(daemon=True)
        self.key, self.cluster_id = bytes.fromhex(settings.cluster_key), settings.cluster_id
        self.key_id = hkv.siphash(self.key, b"hedgerow key id 1") & 0xFFFFFFFF or 1
        self.incarnation, self.epoch, self.term, self.number = int.from_bytes(os.urandom(8), "little") | 1, 0, 0, 0
        self.versions: tuple[int, int] | None = None  # that it says instead of those that it is asked with
        self.answered: set[int] = set()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._socket = host.socket()
        self._socket.bind((host.ipv4, PEER_PORT))
        self._socket.settimeout(0.05)

    def seal(self, kind: int, receiver: int, body: bytes, term: int | None = None, tagged: bool = True, **odd: int) -> bytes:
        with self._lock:
            self.number += 1
            head = [0x31505248, 4, kind, HEAD.size + len(body), 0, self.cluster_id, self.incarnation, self.number, SELF, receiver,
                    self.term if term is None else term, self.epoch, self.key_id]
        for field, value in odd.items():
            head[FIELDS[field]] = value
        if tagged:
            head[4] = hkv.siphash(self.key, HEAD.pack(*head) + body)
        return HEAD.pack(*head) + body

    def send(self, node: HedgerowNode, datagram: bytes) -> None:
        self._socket.sendto(datagram, (node.host.ipv4, PEER_PORT))
        time.sleep(0.0005)  # a burst may be more than a socket holds

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                datagram, source = self._socket.recvfrom(65535)
            except TimeoutError:
                continue
            head = HEAD.unpack_from(datagram)
            kind, sender, self.epoch = head[2], head[8], head[11]
            if kind != HELLO:
                self.term = max(self.term, head[10])
                continue
            body = bytearray(datagram[HEAD.size:-24])  # the sender's traits, without what it has started with
            if self.versions is not None:
                struct.pack_into("<HH", body, 16, *self.versions)
            self._socket.sendto(self.seal(HELLO_ACK, sender, bytes(body) + struct.pack("<QQQ", 1, 0, 0), COPY), source)
            self.answered.add(sender)

    def end(self) -> None:
        self._stopped.set()
        self.join(1)
        self._socket.close()


@contextmanager
def nodes_and_odd_member(durability: str, offloads: tuple = ()) -> Iterator[tuple[Lab, Cluster, OddMember]]:
    settings = NodeSettings(durability=durability, offloads=offloads)
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, durability) as data:
        cluster = hedgerow_cluster(lab, data.path, settings)
        cluster.nodes = cluster.nodes[:-1]
        member = OddMember(lab.replicas[-1], settings)
        member.start()
        try:
            with cluster:
                cluster.wait_ready()
                wait_until(lambda: member.answered == {1, 2}, "it is not asked")
                yield lab, cluster, member
        finally:
            member.end()


def values_of(lab: Lab, cluster: Cluster, written: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
    leader = cluster.wait_ready()
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        return {key: client.get(key) for key in written}


def write(lab: Lab, cluster: Cluster, prefix: bytes) -> dict[bytes, bytes]:
    written = {prefix + b"%d" % number: b"value %d" % number for number in range(20)}
    leader = cluster.wait_ready()
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        for key, value in written.items():
            client.put(key, value)
    return written


def bodies(log_end: int, term: int) -> Iterator[tuple[int, bytes]]:
    """Of each kind, with fields at their ends: whole by the format, whatever they mean."""
    odd = (0, 1, log_end + 1, 2**63, U64)
    far = (log_end + 2**20, 2**63, U64)
    for a in odd:
        for b in odd:
            for flag in (0, 1):
                yield VOTE_REQUEST, struct.pack("<QQQQII", a, b, 0, U64, flag, 0)
            yield HEARTBEAT, struct.pack("<QQQ", a, b, U64)
            yield HEARTBEAT_REPLY, struct.pack("<QQQ", a, far[b % 3], b)
            yield READ_INDEX, struct.pack("<QQ", a, b)
            yield READ_INDEX_REPLY, struct.pack("<QQQ", a, b, U64)
            yield LAST_ENTRY, struct.pack("<QQQQ", a, b, far[b % 3], a)
            yield APPEND, struct.pack("<QQQQII", a, b, U64, 0, 0, 0)
            yield APPEND, struct.pack("<QQQQII", a, b, U64, term, 1, 1) + struct.pack("<QQBI", term, (a + 1) & U64, 1, 3) + b"odd"
            yield APPEND, struct.pack("<QQQQII", a, b, 0, term, 1, 0) + struct.pack("<QQBI", term, b, 2, 1) + b"x"
            yield APPEND, struct.pack("<QQQQII", a, b, 0, 0, 2, 0) + struct.pack("<QQBI", U64, U64, 0, 0) * 1 + struct.pack("<QQBI", 0, 0, 0, 0)
            yield APPEND_REPLY, struct.pack("<QQQQII", a, b, U64, a, 0, 0)
            yield FORWARD_ANSWER, struct.pack("<QBBQQB", a, 1, 0, 0, 0, 0)
            yield FORWARD_ANSWER, struct.pack("<QBBQQB", a, 0, 10, b, b, 0)
            put = bytes([1]) + struct.pack("<I", 3) + b"odd" + struct.pack("<I", 0) + bytes(9)
            windowed = bytes([3, 3]) + struct.pack("<QQQQQQB", a ^ b << 1 & U64, b, a, b, 0, U64, 1) + put
            for command in (windowed, b"", b"odd", bytes([3, 5]) + bytes(49), bytes([3, 6]) + bytes(50), bytes([3, 8]) + bytes(49), bytes([3, 255]) + bytes(49)):
                yield FORWARD, struct.pack("<QQQBI", a, b, U64, 255, len(command)) + command
    for index in far:  # an acknowledgement of what no log has, and a vote of a term that no node asks in
        yield APPEND_REPLY, struct.pack("<QQQQII", index, 0, 0, index, 1, 0)
        yield VOTE_REPLY, struct.pack("<QII", index, 0, 1)
        yield VOTE_REPLY, struct.pack("<QII", index, 1, 1)
    for leader in (0, 1, 2, SELF, 2**32 - 1):
        yield RESIGN, struct.pack("<QII8I", 5, leader, 0, 1, 2, SELF, 9, 2**32 - 1, 0, 0, 0)
        yield RESIGN, struct.pack("<QII8I", 5, leader, 1, *[0] * 8)
    for number, count in ((0, 2), (1, 2), (0, 64), (63, 64)):
        yield PIECE, struct.pack("<QHHI", U64, number, count, 100) + b"p" * 100
    yield TIMEOUT_NOW, b""
    traits = struct.pack("<BBHI", 1, 0, 0, 2**32 - 1)
    yield HELLO, struct.pack("<Q", 0) + traits
    yield HELLO_ACK, struct.pack("<Q", U64) + traits + struct.pack("<QQQ", U64, U64, U64)


def broken(body: bytes) -> Iterator[bytes]:
    """What is sealed, and no body of its kind."""
    yield body + b"\0"
    for length in {0, 1, len(body) // 2, len(body) - 1} - {len(body)}:
        if 0 <= length < len(body):
            yield body[:length]


# Reasons, and where the kernel part counts what it drops itself.
KERNELS = {"tag": "kernel.dropped_tag", "key": "kernel.dropped_key", "replayed": "kernel.dropped_replayed", "too_old": "kernel.dropped_too_old"}


def dropped(count: Counter, reason: str) -> int:
    return count[f"peer_dropped.{reason}"] + count[KERNELS.get(reason, "")]


def send_and_count(member: OddMember, nodes: list[HedgerowNode], sent: list[tuple[str, bytes]]) -> None:
    """Each datagram is counted under its reason at each node."""
    wanted = Counter(reason for reason, _ in sent)
    before = {node.number: counters(node) for node in nodes}
    for node in nodes:
        for _, datagram in sent:
            member.send(node, datagram(node.number))

    def missing() -> dict:
        found = {}
        for node in nodes:
            now = counters(node)
            found |= {(node.number, reason): dropped(now, reason) - dropped(before[node.number], reason)
                      for reason, count in wanted.items() if dropped(now, reason) - dropped(before[node.number], reason) < count}
        return found

    wait_until(lambda: not missing(), f"of {dict(wanted)} are counted only")


HEARTBEAT_BODY = struct.pack("<QQQ", 1, 0, 20_000_000)


def refused(member: OddMember) -> list[tuple[str, object]]:
    """(reason, the datagram to a node)"""
    def odd(reason: str, kind: int = HEARTBEAT, body: bytes = HEARTBEAT_BODY, **fields):
        return reason, lambda to, fields=fields: member.seal(kind, to, body, **fields)

    sent = [odd("version", version=version) for version in (0, 3, 5, 255)]
    sent += [odd("kind", kind=kind) for kind in (0, 17, 255)]
    sent += [odd("magic", magic=0), odd("other_cluster", cluster_id=U64), odd("key", key_id=1), odd("tag", tagged=False)]
    sent += [odd("length", bytes=length) for length in (0, 63, 89, 65535)]
    sent += [odd("other_node", to=9), odd("no_member", **{"from": 0}), odd("malformed", incarnation=0), odd("malformed", number=0)]
    sent += [odd("other_incarnation", incarnation=U64)]
    sent += [("too_short", lambda to, length=length: member.seal(HEARTBEAT, to, HEARTBEAT_BODY)[:length]) for length in (1, 5, 63)]
    sent += [odd("term", kind, body, term=term) for term in (2**63 + 5, U64) for kind, body in first_of_each().items() if kind in CORES]
    sent += [odd("malformed", kind, bad) for kind, body in first_of_each().items() for bad in broken(body)
             if kind not in (HELLO, HELLO_ACK)]
    sent += [odd("malformed", VOTE_REPLY, struct.pack("<QII", 0, 2, 0)), odd("malformed", HEARTBEAT, HEARTBEAT_BODY * 2),
             odd("malformed", PIECE, struct.pack("<QHHI", 1, 64, 64, 1) + b"x"), odd("malformed", PIECE, struct.pack("<QHHI", 1, 0, 65, 1) + b"x"),
             odd("malformed", FORWARD_ANSWER, struct.pack("<QBBQQB", 1, 0, 255, 0, 0, 0)),
             odd("malformed", APPEND, struct.pack("<QQQQII", 0, 0, 0, 1, 2**32 - 1, 0)), odd("malformed", APPEND, struct.pack("<QQQQII", 0, 0, 0, 0, 0, 2))]
    return sent


def first_of_each() -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for kind, body in bodies(1, 1):
        found.setdefault(kind, body)
    return found


def a_second_leader_is_refused(member: OddMember, node: HedgerowNode) -> bool:
    """Of the term that the node is in, if it knows that one's leader by then."""
    member.send(node, member.seal(HEARTBEAT, node.number, HEARTBEAT_BODY, term=int(node.status()["term"])))
    return counters(node)["peer_impossible"] > 0


@pytest.mark.parametrize("offloads", [(), NO_OFFLOADS], ids=["kernel", "process"])
@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_nodes_bear_whatever_a_member_says(durability, offloads):
    with nodes_and_odd_member(durability, offloads) as (lab, cluster, member):
        nodes = list(cluster.nodes)
        written = write(lab, cluster, b"before")
        wait_until(lambda: len({node.status()["applied"] for node in nodes}) == 1, "a follower lags")
        send_and_count(member, nodes, refused(member))
        log_end, term = int(nodes[0].status()["last_index"]), member.term
        assert set(range(HELLO, LAST_ENTRY + 1)) == {kind for kind, _ in bodies(log_end, term)}
        for header_term in (0, term):
            for kind, body in bodies(log_end, term):
                for node in nodes:
                    member.send(node, member.seal(kind, node.number, body, term=header_term))
        for node in nodes:
            wait_until(lambda node=node: a_second_leader_is_refused(member, node), "a second leader of a term is not counted")
        member.send(nodes[0], member.seal(HEARTBEAT, nodes[0].number, HEARTBEAT_BODY, number=U64))  # from then on nothing of it is new
        assert all(node.running for node in nodes), [node.log_tail() for node in nodes if not node.running]
        assert values_of(lab, cluster, written) == written
        after = write(lab, cluster, b"after")
        assert values_of(lab, cluster, written | after) == written | after
        wait_until(lambda: len({node.status()["applied"] for node in nodes}) == 1, "a follower does not go on")
        for node in nodes:
            count = counters(node)
            assert count["peer_bad_commands"] > 0, count
            assert not any("DIVERGED" in problem for problem in node.status()["problems"])


def test_a_version_that_is_not_spoken_is_counted_and_named():
    """There is no range yet: HR_PEER_VERSION is the least and the greatest. What another one sends is dropped by its header; and a member whose HELLO_ACK says
    that it speaks later ones alone is not believed, and `status` says which."""
    with nodes_and_odd_member("memory") as (_, cluster, member):
        node = cluster.nodes[0]
        before = counters(node)
        member.versions, member.incarnation = (5, 9), member.incarnation ^ 2  # it comes again, as a later version
        member.number = 0
        for number in (1, 2):
            member.send(cluster.nodes[number - 1], member.seal(HEARTBEAT, number, HEARTBEAT_BODY))

        def problems() -> list[str]:
            return [problem for problem in node.status()["problems"] if "speaks versions 5 to 9" in problem]

        wait_until(problems, "no problem names it")
        assert "upgrade by a version in between" in problems()[0]
        assert counters(node)["peer_dropped.version"] > before["peer_dropped.version"]
        cluster.wait_ready()
