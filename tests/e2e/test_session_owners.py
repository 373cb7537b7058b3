# SPDX-License-Identifier: Apache-2.0
"""A session belongs to the client that opened it, on real nodes: what another host can do under its id, how a full table treats
others, and what a client of another version is told."""

import contextlib
import os
import secrets
import struct
from collections.abc import Iterator

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import NodeSettings

TAG = f"own{os.getpid()}"
SESSIONS_MAX = 100
UNKNOWN_SESSION = hkv.STATUSES.index("UNKNOWN_SESSION")


@pytest.fixture(scope="module")
def stand() -> Iterator[tuple]:
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data:
        cluster = hedgerow_cluster(lab, data.path, NodeSettings())
        for node in cluster.nodes:
            node.config["sessions"] = {"max": SESSIONS_MAX, "timeout": "1h"}
            node.config["sources"] = {"open_rate": 1_000_000}  # how many one address may open is test_store_bounds.py's
        with cluster:
            cluster.wait_ready()
            yield lab, cluster


def leader_of(stand):
    return stand[1].wait_ready()


@contextlib.contextmanager
def client_of(stand, open_session: bool = True) -> Iterator[hkv.Client]:
    lab, _ = stand
    leader = leader_of(stand)
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        if open_session:
            client.open()
        yield client


class Attacker:
    """Another host, at a node of its own choice: it has learnt the id of a session, and its numbers, and not its token."""

    def __init__(self, stand, session: int, token: int | None = None):
        lab, cluster = stand
        leader = leader_of(stand)
        node = next(node for node in cluster.nodes if node is not leader)
        self.session, self.token = session, token
        self._socket = lab.replica("c").socket()
        self._socket.settimeout(5.0)
        self._socket.connect((node.host.ipv4, node.port))

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()

    def ask(self, kind: int, seq: int, lowest: int = 0, operations=()) -> hkv.Answer:
        token = secrets.randbits(64) if self.token is None else self.token
        self._socket.send(hkv.encode_request(kind, 3_000_000, self.session, seq, lowest, operations=operations, token=token))
        while (answer := hkv.parse_answer(self._socket.recv(2048))).seq != seq:
            pass
        return answer


def test_names_and_tokens_of_sessions_do_not_follow_from_those_before(stand):
    numbers = []
    for _ in range(8):
        with client_of(stand) as client:
            numbers += [client.session, client.token]
    assert len(set(numbers)) == 16
    assert min(numbers) > 2**40, "none is counted"
    assert len({(b - a) % 2**64 for a, b in zip(numbers, numbers[1:])}) == 15, "nor is a difference"


@pytest.mark.parametrize("token", [None, 0], ids=["guessed", "none"])
def test_nothing_is_done_under_the_session_of_another_client(stand, token):
    with client_of(stand) as victim:
        assert victim.incr(b"secret" + str(token).encode(), 4242) == 4242
        last = victim._next_seq - 1
        with Attacker(stand, victim.session, token) as attacker:
            # The numbers that are to come, one that was answered, all of them at once, and more than are kept.
            tries = [attacker.ask(hkv.WRITE, last + 1 + i) for i in range(20)]
            tries += [attacker.ask(hkv.WRITE, last), attacker.ask(hkv.CANCEL, last), attacker.ask(hkv.CANCEL, last + 1)]
            tries += [attacker.ask(hkv.WRITE, 10**6, lowest=2**64 - 1)]
            tries += [attacker.ask(hkv.WRITE, last + 1, operations=[hkv.put_operation(b"k", b"theirs")])]
        assert {answer.status for answer in tries} == {UNKNOWN_SESSION}
        assert not any(answer.values for answer in tries)
        victim.put(b"k", b"mine")
        assert victim.get(b"k") == b"mine"


def test_another_request_under_a_used_number_is_a_mismatch_at_every_node(stand):
    lab, cluster = stand
    with client_of(stand) as client:
        client.put(b"once", b"first")
        seq = client._next_seq - 1
        session, token = client.session, client.token

        def ask(node, operations) -> hkv.Answer:
            with lab.client.socket() as sock:
                sock.settimeout(5.0)
                sock.connect((node.host.ipv4, node.port))
                sock.send(hkv.encode_request(hkv.WRITE, 3_000_000, session, seq, 0, operations=operations, token=token))
                return hkv.parse_answer(sock.recv(2048))

        for node in cluster.nodes:
            assert ask(node, [hkv.put_operation(b"once", b"second")]).status == hkv.MISMATCH
            assert ask(node, []).status == hkv.MISMATCH
            assert ask(node, [hkv.put_operation(b"once", b"first")]).status == hkv.OK, "the stored answer is there"
        assert client.get(b"once") == b"first"


def test_a_source_that_opens_every_session_locks_no_client_out(stand):
    lab, _ = stand
    leader = leader_of(stand)
    with client_of(stand) as old, lab.replica("c").socket() as flood:
        old.put(b"old", b"1")
        flood.settimeout(5.0)
        flood.connect((leader.host.ipv4, leader.port))
        for begin in range(0, 3 * SESSIONS_MAX, 50):
            for _ in range(50):
                flood.send(hkv.encode_request(hkv.OPEN, 3_000_000, 0, secrets.randbits(64)))
            assert all(hkv.parse_answer(flood.recv(2048)).status == hkv.OK for _ in range(50)), begin
        with client_of(stand) as late:
            late.put(b"late", b"1")
            assert late.get(b"late") == b"1"
        old.put(b"old", b"2")
        assert old.get(b"old") == b"2", "a session that wrote is ended for no other"
    assert int(leader.status()["counters"]["sessions_evicted"]) >= SESSIONS_MAX


def version_1(kind: int, client_id: int, seq: int, body: bytes) -> bytes:
    return struct.pack("<BBBBIQQQ", 0x48, 1, kind, 0, 1_000_000, client_id, seq, 0) + body


def test_a_client_of_version_1_is_answered_in_its_own_words(stand):
    lab, _ = stand
    leader = leader_of(stand)
    with lab.client.socket() as sock:
        sock.settimeout(5.0)
        sock.connect((leader.host.ipv4, leader.port))
        sock.send(version_1(hkv.GET, 5, 6, b"\x01k"))
        answer = sock.recv(2048)
    magic, version, kind, status, hint, client_id, seq, session = struct.unpack("<BBBBIQQQ", answer)
    assert (magic, version, kind, client_id, seq, session) == (0x48, 1, hkv.GET | 0x80, 5, 6, 0)
    assert (hkv.STATUSES[status], hint) == ("UNKNOWN_VERSION", 2)
