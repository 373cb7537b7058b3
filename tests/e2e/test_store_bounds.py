# SPDX-License-Identifier: Apache-2.0
"""What a store that strangers can reach is bounded by: memory, bytes to an address that has proved nothing, sessions of one address,
and keys that all have one hash under a hash that everybody knows."""

import contextlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.programs import binary
from deploy.lab.servers.hedgerow_node import MEMCACHED_PORT, SERVE_PORT, NodeSettings

TAG = f"bnds{os.getpid()}"
LIMIT_MIB = 16
NO_SPACE = hkv.STATUSES.index("NO_SPACE")


@pytest.fixture(scope="module")
def stand() -> Iterator[tuple[Lab, Cluster]]:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(TAG, replicas=3))
        data = stack.enter_context(DataDirs(TAG, "memory"))
        cluster = hedgerow_cluster(lab, data.path, NodeSettings(memcached=(("memory_mib", 4),)))
        for node in cluster.nodes:
            node.config["memory"] = {"limit_mib": LIMIT_MIB}
        stack.enter_context(cluster)
        cluster.wait_ready()
        yield lab, cluster


def client(lab: Lab, node, timeout_s: float = 5.0) -> hkv.Client:
    return hkv.Client(node.host.ipv4, SERVE_PORT, timeout_s, sock=lab.client.socket())


def purge(cluster: Cluster, prefix: str) -> None:
    """At the leader, and where another node has come to lead meanwhile, there: the command says so."""
    while True:
        done = subprocess.run([binary("hedgerow-node"), "purge", "--prefix", prefix, "--socket", cluster.wait_ready().socket],
                              capture_output=True, text=True, check=False, timeout=60)
        if " leads; ask it" not in done.stderr:
            assert done.returncode == 0, done.stderr
            return


def fill(writer: hkv.Client) -> int:
    """Large writes until there is no room; how many keys are stored."""
    stored = 0
    while True:
        try:
            writer.write([hkv.put_operation(b"fill/%d" % (stored + i), b"v" * 350) for i in range(3)])
        except hkv.HkvError as error:
            assert error.status == NO_SPACE, error
            return stored
        stored += 3


def test_a_full_store_deletes_and_is_emptied(stand):
    lab, cluster = stand
    leader = cluster.wait_ready()
    writer = client(lab, leader)
    writer.open()
    stored = fill(writer)
    assert LIMIT_MIB * 2**20 / 1000 < stored < LIMIT_MIB * 2**20 / 500
    status = leader.status()
    assert any("memory.limit_mib" in problem for problem in status["problems"]), status["problems"]
    assert status["memory"]["full"]
    assert all(node.resident_bytes() < (3 * LIMIT_MIB + 112) * 2**20 for node in cluster.nodes)
    other = client(lab, leader)
    other.open()
    other.delete(b"fill/0")
    assert other.get(b"fill/1") == b"v" * 350
    purge(cluster, "fill/")
    assert all(other.get(b"fill/%d" % number) is None for number in range(0, stored, 1000))
    other.put(b"now", b"there is room")
    status = leader.status()
    assert status["memory"]["values_bytes"] < 1000
    assert not status["problems"] and not status["memory"]["full"], status


def memcached(lab: Lab, host: str, body: bytes, sock: socket.socket | None = None) -> bytes:
    sock = sock or lab.client.socket()
    sock.settimeout(5.0)
    sock.sendto(struct.pack("!HHHH", os.getpid() & 0xFFFF ^ len(body), 0, 1, 0) + body, (host, MEMCACHED_PORT))
    return sock.recv(2000)[8:]


def test_flush_all_makes_room_for_items(stand):
    lab, cluster = stand
    leader = cluster.wait_ready().host.ipv4
    value = b"v" * 30000
    answers = [memcached(lab, leader, b"set f%d 0 0 %d\r\n" % (i, len(value)) + value + b"\r\n") for i in range(160)]
    assert b"STORED\r\n" in answers and answers[-1] == b"SERVER_ERROR out of memory storing object\r\n"
    assert memcached(lab, leader, b"flush_all\r\n") == b"OK\r\n"
    assert memcached(lab, leader, b"set honest 0 0 %d\r\n" % len(value) + value + b"\r\n") == b"STORED\r\n"
    assert memcached(lab, leader, b"get f1\r\n") == b"END\r\n"


def test_an_answer_is_no_longer_than_three_times_its_request(stand):
    lab, cluster = stand
    leader = cluster.wait_ready()
    writer = client(lab, leader)
    writer.open()
    writer.put(b"large", b"v" * 1150)
    sock = lab.client.socket()
    sock.connect((leader.host.ipv4, SERVE_PORT))
    sock.settimeout(5.0)
    short = hkv.encode_request(hkv.GET, 10**6, 1, 2, key=b"large")
    sock.send(short)
    answer = sock.recv(2000)
    assert len(answer) + 28 <= 3 * (len(short) + 28)
    refused = hkv.parse_answer(answer)
    assert refused.status == hkv.SHORT
    sock.send(hkv.encode_request(hkv.GET, 10**6, 1, 3, key=b"large", padded=refused.hint))
    assert hkv.parse_answer(sock.recv(2000)).value == b"v" * 1150
    assert writer.get(b"large") == b"v" * 1150, "the client does so by itself"
    item = b"v" * 2000
    assert memcached(lab, leader.host.ipv4, b"set m 0 0 2000\r\n" + item + b"\r\n") == b"STORED\r\n"
    assert memcached(lab, leader.host.ipv4, b"get m\r\n") == b"CLIENT_ERROR the answer is too long: sources.trusted\r\n"


def test_errors_are_not_sent_to_servers_ports(stand):
    lab, cluster = stand
    leader = cluster.wait_ready().host.ipv4
    named = lab.client.socket()
    named.bind(("0.0.0.0", 53))
    named.settimeout(0.5)
    named.sendto(b"\0\1\x85\x80\0\1\0\0\0\0\0\0", (leader, MEMCACHED_PORT))
    named.sendto(b"H\x02\x03", (leader, SERVE_PORT))
    with pytest.raises(TimeoutError):
        named.recv(2000)
    assert memcached(lab, leader, b"nothing\r\n") == b"ERROR\r\n"


def test_one_address_does_not_open_all_sessions(stand):
    lab, cluster = stand
    leader = cluster.wait_ready()
    before = leader.status()["sessions"]
    flooder = lab.replica("c").socket()
    for _ in range(2000):
        flooder.sendto(hkv.encode_request(hkv.OPEN, 10**6, 0, int.from_bytes(os.urandom(8), "little")),
                       (leader.host.ipv4, SERVE_PORT))
    honest = client(lab, leader)
    honest.open()
    status = leader.status()
    assert status["sessions"] - before < 1000, status["sessions"]
    assert status["counters"]["sources_limited.opens"] > 0


def of_one_std_hash(number: int) -> bytes:
    """All of them have one hash in GNU's std::hash (MurmurHash64A under a seed that is the same everywhere)."""
    mask, multiplier = (1 << 64) - 1, 0xC6A4A7935BD1E995
    inverse = pow(multiplier, -1, 1 << 64)
    mixed = number * multiplier & mask
    mixed = (mixed ^ mixed >> 47) * multiplier & mask
    after = ((0xC70F6907 ^ 16 * multiplier & mask) ^ mixed) * multiplier & mask
    second = (after ^ 0x1234) * inverse & mask
    return struct.pack("<QQ", number, (second ^ second >> 47) * inverse & mask)


def test_keys_of_one_hash_cause_no_election(stand):
    lab, cluster = stand
    leader = cluster.wait_ready()
    term = leader.state().term
    writer = client(lab, leader)
    writer.open()
    began = time.monotonic()
    for first in range(0, 20000, 40):
        writer.write([hkv.put_operation(of_one_std_hash(first + i), b"") for i in range(40)])
    assert leader.state().leads and leader.state().term == term, f"{time.monotonic() - began:.1f} s"
    purge(cluster, "")
