# SPDX-License-Identifier: Apache-2.0
"""What the network says instead of delivering, "unreachable" for whatever reason: the standby is asked, and clients hear of it
only when no attempt is left. Each case is shown against a backend that a client asks directly."""

import contextlib
import errno
import select
import socket
import subprocess

import pytest

from harness.dns import UdpClient, parse, query, who_answers
from harness.product import DNS4, DNS6, RAW4, RAW6, VIP4, VIP6, answer_every_port_unreachable, wait_until

# What a firewall on the leader's host rejects with, and what a client that asks it directly then hears.
REJECTIONS = {
    "net-unreachable": ("ip", "icmp type net-unreachable", errno.ENETUNREACH),
    "host-unreachable": ("ip", "icmp type host-unreachable", errno.EHOSTUNREACH),
    "protocol-unreachable": ("ip", "icmp type prot-unreachable", errno.ENOPROTOOPT),
    "net-prohibited": ("ip", "icmp type net-prohibited", errno.ENETUNREACH),
    "host-prohibited": ("ip", "icmp type host-prohibited", errno.EHOSTUNREACH),
    "admin-prohibited": ("ip", "icmp type admin-prohibited", errno.EHOSTUNREACH),
    "v6-no-route": ("ip6", "icmpv6 type no-route", errno.ENETUNREACH),
    "v6-admin-prohibited": ("ip6", "icmpv6 type admin-prohibited", errno.EACCES),
    "v6-address-unreachable": ("ip6", "icmpv6 type addr-unreachable", errno.EHOSTUNREACH),
    "v6-policy-fail": ("ip6", "icmpv6 type policy-fail", errno.EACCES),
    "v6-reject-route": ("ip6", "icmpv6 type reject-route", errno.EACCES),
}
IP_RECVERR, IPV6_RECVERR = 11, 25


@contextlib.contextmanager
def rejecting(*hosts, how: str):
    """The hosts' firewalls refuse DNS. The kernel's limit on ICMP errors is off: every packet gets its own."""
    answer_every_port_unreachable(*hosts)
    for host in hosts:
        host.run(["nft", "-f", "-"], stdin=f"""table inet refusing {{
            chain input {{
                type filter hook input priority 0;
                udp dport 53 reject with {REJECTIONS[how][1]}
            }}
        }}""")
    try:
        yield
    finally:
        for host in hosts:
            host.run(["nft", "delete", "table", "inet", "refusing"])


def family(how: str, host) -> tuple[str, str, str]:
    return (VIP6, DNS6, host.ipv6) if REJECTIONS[how][0] == "ip6" else (VIP4, DNS4, host.ipv4)


def report_errors(client: UdpClient) -> None:
    six = client.socket.family == socket.AF_INET6
    client.socket.setsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, IPV6_RECVERR if six else IP_RECVERR, 1)


def error_of_asking(host, address: str) -> int | None:
    with UdpClient(host, address) as client:
        report_errors(client)
        with pytest.raises(OSError) as error:
            client.ask(1, "www.example.test")
    return error.value.errno


@pytest.mark.parametrize("how", REJECTIONS)
def test_a_leader_behind_a_firewall_that_rejects_costs_no_client_anything(lab, servers, proxy, how):
    vip, service, address = family(how, lab.replica("a"))
    with rejecting(lab.replica("a"), how=how):
        assert error_of_asking(lab.client, address) == REJECTIONS[how][2], "the control: a direct client is told"
        for connected in (True, False):
            for query_id in range(20):
                with UdpClient(lab.client, vip, connected=connected) as client:
                    report_errors(client)
                    assert client.ask(query_id, "www.example.test") is not None
        assert proxy.figure("nacks_swallowed", service) > 0
        assert proxy.figure("icmp_translated", service) == 0 and proxy.figure("nacked", service) == 0
        assert proxy.won(service)["b"] == 40


@pytest.mark.parametrize("how", ["admin-prohibited", "v6-policy-fail"])
def test_with_every_backend_behind_such_a_firewall_the_client_is_told_what_a_direct_one_is(lab, servers, proxy, how):
    vip, service, _ = family(how, lab.replica("a"))
    with rejecting(*lab.replicas, how=how):
        assert error_of_asking(lab.client, vip) == REJECTIONS[how][2]
        assert proxy.figure("nacked", service) == 1 and proxy.figure("icmp_translated", service) == 1


@contextlib.contextmanager
def silent_neighbour(lab, *hosts):
    """The hosts answer neither ARP nor neighbour discovery any more, and the client's kernel gives up on them soon."""
    for version in ("ipv4", "ipv6"):
        lab.client.sysctl(f"net/{version}/neigh/eth0/retrans_time_ms", 100)
    for host in hosts:
        lab.cut(host.name)
    lab.client.run(["ip", "neigh", "flush", "dev", "eth0"])
    lab.client.run(["ip", "-6", "neigh", "flush", "dev", "eth0"])
    try:
        yield
    finally:
        for host in hosts:
            lab.heal(host.name)
        for version in ("ipv4", "ipv6"):
            lab.client.sysctl(f"net/{version}/neigh/eth0/retrans_time_ms", 1000)


def errors_of(client: UdpClient, wait_s: float) -> int | None:
    """What the error queue holds within the time: the errno, or None."""
    poll = select.poll()
    poll.register(client.socket, 0)  # POLLERR is always reported
    if not poll.poll(1000 * wait_s):
        return None
    _, ancillary, _, _ = client.socket.recvmsg(2048, 512, socket.MSG_ERRQUEUE)
    return int.from_bytes(ancillary[0][2][:4], "little")


@pytest.fixture(name="slow_hedges")
def fixture_slow_hedges(lab, product):
    """Hedges come after the kernel has given up on a neighbour (3 times 100 ms), so that its error is what asks the standby."""
    lab.client.run(["ip", "link", "set", "lo", "up"])
    return product.up(services=product.services("dns", delay="5s", deadline="20s", suspect_min="10s", suspect_max="10s"))


@pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
def test_what_the_clients_own_kernel_says_of_a_dead_neighbour_asks_the_standby(lab, servers, slow_hedges, vip, service):
    address = lab.replica("a").ipv6 if vip == VIP6 else lab.replica("a").ipv4
    with silent_neighbour(lab, lab.replica("a")):
        with UdpClient(lab.client, address, connected=False) as direct:
            report_errors(direct)
            direct.send(query(1, "www.example.test"))
            assert errors_of(direct, wait_s=4) == errno.EHOSTUNREACH, "the control: a direct client is told"
        lab.client.run(["ip", "-6" if vip == VIP6 else "-4", "neigh", "flush", "dev", "eth0"])
        with UdpClient(lab.client, vip, connected=False) as client:
            report_errors(client)
            answer = client.ask(2, "www.example.test", timeout_s=4.5)  # the hedge would come after 5 s
            assert answer is not None and answer.id == 2
            assert errors_of(client, wait_s=0.2) is None
    assert slow_hedges.figure("won_by_failover", service) == 1 and slow_hedges.figure("suspected", service) == 1


def test_the_clients_own_kernel_is_heard_when_no_backend_is_left(lab, servers, slow_hedges):
    with silent_neighbour(lab, *lab.replicas), UdpClient(lab.client, VIP4) as client:
        report_errors(client)
        client.send(query(1, "www.example.test"))
        with pytest.raises(OSError) as error:
            client.receive(timeout_s=8)
        assert error.value.errno == errno.EHOSTUNREACH
    assert slow_hedges.figure("icmp_translated") == 1


def test_the_leader_behind_a_firewall_is_used_again_when_it_opens(lab, servers, proxy):
    with rejecting(lab.replica("a"), how="admin-prohibited"):
        with UdpClient(lab.client, VIP4) as client:
            for query_id in range(5):
                assert parse_id(client, query_id) == query_id
        assert proxy.won(DNS4) == {"b": 5}
    wait_until(lambda: who_answers(lab.client, VIP4) == "a", what="the leader's return")


def parse_id(client: UdpClient, query_id: int) -> int | None:
    client.send(query(query_id, "www.example.test"))
    payload = client.receive()
    return None if payload is None else parse(payload).id


# Sends from a connected socket to the first client that it hears, until it hears of an error.
_STREAM = """
import socket, sys, time
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 4000))
print(flush=True)
s.connect(s.recvfrom(100)[1])
for number in range(100):
    try:
        s.send(b"%d" % number)
    except OSError as error:
        sys.exit(error.strerror)
    time.sleep(0.05)
"""


@pytest.mark.parametrize("family", [4, 6])
def test_a_server_hears_that_its_clients_socket_is_closed(lab, product, family):
    service = product.service(f"raw{family}", profile="flow")
    del service["raw"]
    product.up(services=[service])
    server = lab.replica("a")
    for address in (getattr(server, f"ipv{family}"), RAW6 if family == 6 else RAW4):
        stream = server.popen(["/usr/bin/python3", "-c", _STREAM, getattr(server, f"ipv{family}")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        stream.stdout.readline()
        with lab.client.socket(socket.AF_INET6 if family == 6 else socket.AF_INET) as client:
            client.settimeout(2)
            client.sendto(b"hello", (address, 4000))
            assert client.recvfrom(100)[1][0] == address
        assert b"Connection refused" in stream.communicate(timeout=20)[1], address
