# SPDX-License-Identifier: Apache-2.0
"""Network faults in the lab do what they say, where they say, and nowhere else: every packet's fate is the one that its lot names."""

import os
import socket
import struct
import time

import pytest

from deploy.lab import Host, Lab
from deploy.lab.host import UPLINK
from deploy.lab.network_faults import Counted, NetworkFaults, Rule, lost_numbers, seed_of

TAG = f"self{os.getpid()}8"
PORT = 9100


def mac_of(host: Host) -> str:
    with host.netlink() as route:
        return route.link("get", ifname=UPLINK)[0].get_attr("IFLA_ADDRESS")


@pytest.fixture(scope="module")
def stack():
    with Lab(TAG, replicas=2) as lab, NetworkFaults(lab) as network_faults:
        # Nobody looks for a neighbour or a router while packets are counted.
        for a in lab.hosts.values():
            a.run(["sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{UPLINK}/disable_ipv6"])
            for b in lab.hosts.values():
                if a is not b:
                    a.run(["ip", "neigh", "replace", b.ipv4, "lladdr", mac_of(b), "nud", "permanent", "dev", UPLINK])
        yield lab, network_faults


@pytest.fixture
def lab(stack):
    return stack[0]


@pytest.fixture
def network_faults(stack):
    yield stack[1]
    stack[1].clear()


def arrivals(lab: Lab, source: str, destination: str, count: int, *, size: int = 32, gap_s: float = 0.0,
             linger_s: float = 0.2) -> list[tuple[int, float]]:
    """Of numbered datagrams, which arrive, in their order, and how long each took in ms."""
    to = lab.hosts[destination]
    with lab.hosts[source].socket() as sender, to.socket() as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind((to.ipv4, PORT))
        receiver.setblocking(False)
        found, sent = [], {}

        def take() -> None:
            while True:
                try:
                    number = struct.unpack("=I", receiver.recv(2048)[:4])[0]
                except BlockingIOError:
                    return
                found.append((number, (time.monotonic() - sent[number]) * 1e3))

        for number in range(count):
            sent[number] = time.monotonic()
            sender.sendto(struct.pack("=I", number).ljust(size, b"."), (to.ipv4, PORT))
            take()
            time.sleep(gap_s)
        deadline = time.monotonic() + linger_s
        while time.monotonic() < deadline:
            take()
            time.sleep(0.0002)
        return found


def test_each_packet_is_lost_that_its_lot_says_and_no_other(lab, network_faults):
    lost = lost_numbers(Rule(seed=seed_of(5, ("a", "b")), lost=0.3), 500)
    for _ in range(2):  # the same seed, the same fates
        network_faults.change([("a", "b")], seed=5, lost=0.3)
        assert [number for number, _ in arrivals(lab, "a", "b", 500)] == [n for n in range(500) if n not in lost]
    assert len(arrivals(lab, "b", "a", 100)) == len(arrivals(lab, "client", "b", 100)) == 100, "other links, and the other way"
    assert network_faults.counted()["a", "b"] == Counted(met=1000, lost=2 * len(lost))


def test_a_share_of_one_is_a_partition(lab, network_faults):
    before = network_faults.counted().get(("client", "a"), Counted())
    network_faults.change([("client", "a")], seed=1, lost=1.0)
    assert arrivals(lab, "client", "a", 50) == []
    assert (network_faults.counted()["client", "a"] - before).lost >= 50
    network_faults.clear()
    assert len(arrivals(lab, "client", "a", 50)) == 50


def test_doubled_packets_come_twice(lab, network_faults):
    network_faults.change([("b", "a")], seed=9, duplicated=0.25)
    before = network_faults.counted().get(("b", "a"), Counted())
    numbers = [number for number, _ in arrivals(lab, "b", "a", 400)]
    doubled = (network_faults.counted()["b", "a"] - before).duplicated
    assert sorted(set(numbers)) == list(range(400)) and len(numbers) == 400 + doubled
    assert 50 < doubled < 150
    assert max(map(numbers.count, set(numbers))) == 2


@pytest.mark.parametrize("delay_ms", [0.5, 4, 32])
def test_a_delay_takes_as_long_as_it_says(lab, network_faults, delay_ms):
    network_faults.change([("a", "b")], seed=2, delayed=1.0, delays_ms=(delay_ms, delay_ms))
    before = network_faults.counted().get(("a", "b"), Counted())
    took = sorted(ms for _, ms in arrivals(lab, "a", "b", 60, gap_s=0.002))
    counted = network_faults.counted()["a", "b"] - before
    assert len(took) == 60 and counted.delayed == 60 and counted.not_delayed == 0
    # Other processes may hold the reader up, none can make a packet early. A tenth are in time on any machine.
    assert took[0] > 0.9 * delay_ms and took[6] < delay_ms + 5


def test_packets_overtake_each_other(lab, network_faults):
    network_faults.change([("a", "b")], seed=3, delayed=0.2, delays_ms=(8, 8))
    numbers = [number for number, _ in arrivals(lab, "a", "b", 300, gap_s=0.0005)]
    assert sorted(numbers) == list(range(300))
    overtaken = sum(earlier > later for earlier, later in zip(numbers, numbers[1:], strict=False))
    assert overtaken > 20
    network_faults.clear()
    assert [number for number, _ in arrivals(lab, "a", "b", 100)] == list(range(100)), "without faults none does"


def test_what_does_not_fit_into_the_line_goes_at_once_and_is_counted(lab, network_faults):
    network_faults.change([("a", "b")], seed=4, delayed=1.0, delays_ms=(64, 64))
    before = network_faults.counted().get(("a", "b"), Counted())
    arrived, to = lab.replica("b").snmp("Udp")["NoPorts"], (lab.replica("b").ipv4, PORT)
    with lab.replica("a").socket() as sender:
        begun = time.monotonic()
        for _ in range(5000):
            sender.sendto(b"x", to)
        took_s = time.monotonic() - begun
    time.sleep(0.3)
    counted = network_faults.counted()["a", "b"] - before
    assert counted.delayed + counted.not_delayed == 5000 == lab.replica("b").snmp("Udp")["NoPorts"] - arrived
    # A place is free again after twice the delay.
    assert 256 <= counted.delayed <= 256 * (1 + took_s / 0.128) and (counted.not_delayed > 0 or took_s > 2)


def test_everything_at_once(lab, network_faults):
    network_faults.change([("a", "b")], seed=6, lost=0.1, duplicated=0.2, delayed=0.5, delays_ms=(0.5, 4))
    before = network_faults.counted().get(("a", "b"), Counted())
    numbers = [number for number, _ in arrivals(lab, "a", "b", 500, gap_s=0.0002)]
    counted = network_faults.counted()["a", "b"] - before
    assert counted.met == 500 and len(set(numbers)) == 500 - counted.lost
    assert len(numbers) == 500 - counted.lost + counted.duplicated
    assert counted.lost > 20 and counted.duplicated > 50 and counted.delayed > 100


def test_large_frames_of_a_connection_pass(lab, network_faults):
    """They are larger than a packet here; what the delay line cannot hold is not held."""
    network_faults.change([("client", "a"), ("a", "client")], seed=8, delayed=1.0, delays_ms=(0.5, 2))
    with lab.replica("a").socket(kind=socket.SOCK_STREAM) as listener, lab.client.socket(kind=socket.SOCK_STREAM) as client:
        listener.bind((lab.replica("a").ipv4, PORT))
        listener.listen()
        client.settimeout(30)
        client.connect((lab.replica("a").ipv4, PORT))
        server, _ = listener.accept()
        with server:
            server.settimeout(30)
            client.sendall(bytes(100_000))
            client.shutdown(socket.SHUT_WR)
            taken = 0
            while chunk := server.recv(1 << 16):
                taken += len(chunk)
    assert taken == 100_000


def test_the_switch_is_as_before_when_the_faults_end():
    with Lab(TAG.replace("self", "selx"), replicas=1) as lab:
        def shown() -> str:
            return lab.switch(["tc", "qdisc", "show"]) + lab.switch(["ip", "-o", "link", "show"]).replace("\n", ";")

        before = lab.switch(["tc", "qdisc", "show"])
        with NetworkFaults(lab) as network_faults:
            network_faults.change([("client", "a")], seed=1, lost=1.0)
            assert "clsact" in lab.switch(["tc", "qdisc", "show"]) and "faults0" in shown()
        assert lab.switch(["tc", "qdisc", "show"]) == before and "faults0" not in shown()
        assert len(arrivals(lab, "client", "a", 20)) == 20
