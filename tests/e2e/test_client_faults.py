# SPDX-License-Identifier: Apache-2.0
"""One client's own faults are not a backend's: requests that die on their way, are dropped as they come in, have no answer, or whose
answer reaches no client. The client is another user of the host than the honest one, which asks too seldom to end each silence.
"""

import contextlib
import time

import pytest

from harness.dns import UdpClient
from harness.product import VIP4

_SETTINGS = {"delay": "100ms", "suspect_min": "300ms"}  # no busy machine stalls a server for so long
_HONEST, _EVERY_S = 8, 0.35  # seldom enough to leave silences of longer than suspect_min
_UNROUTED = "198.51.100.9"
_DROPPED = "dropped.example.test"

# Two hundred queries a second with one fault, to the first address that is given; says how many answers came and how many it sent, and ends at EOF.
_FAULTY = """
import select, socket, struct, sys
fault, server, name = sys.argv[1:]
labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + bytes(1)
send = s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if fault == "source":
    s.bind(("198.51.100.9", 0))
if fault == "ttl":
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
if fault == "checksum":
    send = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    s.bind(("", 0))
answers = sent = 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    payload = struct.pack("!HHHHHH", sent % 65536, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!HH", 1, 1)
    if fault == "checksum":
        payload = struct.pack("!HHHH", s.getsockname()[1], 53, 8 + len(payload), 0x1234) + payload
    send.sendto(payload, (server, 53))
    sent += 1
    while select.select([s], [], [], 0)[0]:
        s.recv(4096)
        answers += 1
print(answers, sent, flush=True)
"""


@contextlib.contextmanager
def dropped(*hosts):
    """The name is dropped by a policy of these hosts, and what has one hop left dies at a router that we do not have."""
    name = "".join(f"{byte:02x}" for byte in b"\x07dropped")
    for host in hosts:
        host.run(["nft", "add table ip lab_policy; add chain ip lab_policy in { type filter hook prerouting priority raw; }; "
                         f"add rule ip lab_policy in udp dport 53 @th,160,64 0x{name} drop; "
                         "add rule ip lab_policy in udp dport 53 ip ttl 1 drop"])
    try:
        yield
    finally:
        for host in hosts:
            host.run(["nft", "delete table ip lab_policy"], check=False)


@contextlib.contextmanager
def faulty_client(host, fault: str, server: str):
    """Sends while the block runs; yields a function that ends it and returns the numbers of answers and of requests."""
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+net_raw", "--ambient-caps=+net_raw",
             "/usr/bin/python3", "-c", _FAULTY, fault, server, _DROPPED if fault == "name" else "www.example.test"]
    child = host.popen(words, stdin=-1, stdout=-1, text=True)
    try:
        assert child.stdout.readline() == "ready\n"

        def end() -> tuple[int, int]:
            child.stdin.close()
            answers, sent = map(int, child.stdout.readline().split())
            return answers, sent

        yield end
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def unrouted_address(lab):
    """An address of the client's host to which answers are lost on the way. Without a route a server's send would fail, and with it
    those of other clients' answers that it had put into the same call."""
    lab.client.run(["ip", "address", "add", f"{_UNROUTED}/32", "dev", "lo"])
    for host, other in zip(lab.replicas, [*lab.replicas[1:], lab.replicas[0]], strict=True):
        host.run(["ip", "route", "replace", f"{_UNROUTED}/32", "via", other.ipv4])  # which forwards nothing
    try:
        yield
    finally:
        for host in lab.replicas:
            host.run(["ip", "route", "del", f"{_UNROUTED}/32"], check=False)
        lab.client.run(["ip", "address", "del", f"{_UNROUTED}/32", "dev", "lo"])


def ask_seldom(lab, count: int = _HONEST) -> None:
    with UdpClient(lab.client, VIP4) as honest:
        for query_id in range(count):
            assert honest.ask(query_id, "www.example.test", timeout_s=1) is not None
            time.sleep(_EVERY_S)


@pytest.mark.parametrize("fault, where", [("ttl", "ab"), ("checksum", ""), ("name", "ab"), ("name", "a"), ("source", "")],
                         ids=["ttl", "checksum", "name", "name-at-the-leader", "source"])
def test_one_clients_fault_makes_no_backend_suspect(lab, servers, product, fault, where):
    product.up(services=[product.service("dns4", **_SETTINGS)])
    with dropped(*(lab.replica(name) for name in where)), unrouted_address(lab):
        with faulty_client(lab.client, fault, lab.replica("a").ipv4) as end:  # the control: it is no fault of the proxy's
            time.sleep(0.2)
            answers, sent = end()
            assert answers == 0 and sent > 0
        with faulty_client(lab.client, fault, VIP4) as end:
            ask_seldom(lab)
            answers, sent = end()
        won_by_failover = product.figure("won_by_failover")
    assert sent > 20 and product.figure("requests") > _HONEST + 20
    assert product.figure("suspected") == 0
    assert product.service_status()["state"] == "healthy"
    if where != "a":  # there the standby answers instead
        assert answers == 0 and won_by_failover == 0


def test_a_leader_that_stalls_for_all_clients_is_suspect_beside_a_faulty_one(lab, servers, product):
    product.up(services=[product.service("dns4", **_SETTINGS)])
    with dropped(*lab.replicas), faulty_client(lab.client, "name", VIP4):
        ask_seldom(lab, 2)
        servers["a"].stall()
        ask_seldom(lab, 6)
        servers["a"].resume()
        assert product.figure("suspected") > 0
        assert product.figure("won_by_failover") > 1


def test_a_lone_client_finds_a_stalled_leader(lab, servers, product):
    product.up(services=[product.service("dns4", **_SETTINGS)])
    ask_seldom(lab, 2)
    servers["a"].stall()
    ask_seldom(lab, 6)
    assert product.figure("suspected") == 1
    assert product.service_status()["state"] != "healthy"
    servers["a"].resume()


def test_a_lone_clients_fault_makes_no_backend_suspect(lab, servers, product):
    product.up(services=[product.service("dns4", **_SETTINGS)])
    with dropped(*lab.replicas), faulty_client(lab.client, "name", VIP4):
        time.sleep(1.5)
    assert product.figure("requests") > 20
    assert product.figure("suspected") == 0
