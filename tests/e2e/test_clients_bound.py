# SPDX-License-Identifier: Apache-2.0
"""Clients that name a device: their packets to a VIP leave by the uplink, whatever the routes say, and are served all the same.
Each is shown asking a backend directly, too: that is the control."""

import contextlib
import os
import socket
import struct

import pytest

from harness.dns import UdpClient, parse, query, who_answers
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
IP_UNICAST_IF, IP_PKTINFO, IPV6_UNICAST_IF, IPV6_PKTINFO = 50, 8, 76, 50


def answered(proxy, service: str) -> int:
    return sum(proxy.figure(f"won_by_{how}", service) for how in ("first", "hedge", "failover"))


def is_six(address: str) -> bool:
    return ":" in address


def bind_device(client: UdpClient, device: str) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())


def unicast_if(client: UdpClient, index: int) -> None:
    six = client.socket.family == socket.AF_INET6
    client.socket.setsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, IPV6_UNICAST_IF if six else IP_UNICAST_IF,
                             struct.pack("!I", index))


def index_of(host, device: str) -> int:
    with host.netlink() as route:
        return route.link_lookup(ifname=device)[0]


def direct_address(lab, vip: str) -> str:
    return lab.replica("a").ipv6 if is_six(vip) else lab.replica("a").ipv4


def ask_with_pktinfo(lab, address: str) -> bytes:
    family = socket.AF_INET6 if is_six(address) else socket.AF_INET
    index = index_of(lab.client, "eth0")
    with lab.client.socket(family) as sock:
        sock.settimeout(2)
        info = ((socket.IPPROTO_IPV6, IPV6_PKTINFO, b"\0" * 16 + struct.pack("I", index)) if is_six(address) else
                (socket.IPPROTO_IP, IP_PKTINFO, struct.pack("I", index) + b"\0" * 8))
        sock.sendmsg([query(1, "www.example.test")], [info], 0, (address, 53))
        payload, source = sock.recvfrom(2048)
        assert source[0] == address
        return payload


@FAMILIES
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "unconnected"])
@pytest.mark.parametrize("device", ["eth0", "hr0"])
def test_a_socket_bound_to_a_device_is_served(lab, proxy, vip, service, connected, device):
    if device == "eth0":
        with UdpClient(lab.client, direct_address(lab, vip), connected=connected) as direct:
            bind_device(direct, device)
            assert direct.ask(1, "www.example.test") is not None, "the control"
    with UdpClient(lab.client, vip, connected=connected) as client:
        bind_device(client, device)
        for query_id in range(5):
            answer = client.ask(query_id, "www.example.test")
            assert answer is not None and answer.id == query_id
    assert answered(proxy, service) == 5


@FAMILIES
def test_a_socket_that_names_its_interface_is_served(lab, proxy, vip, service):
    for address in (direct_address(lab, vip), vip):
        for connected in (True, False):
            with UdpClient(lab.client, address, connected=connected) as client:
                unicast_if(client, index_of(lab.client, "eth0"))
                assert client.ask(7, "www.example.test") is not None
        assert parse(ask_with_pktinfo(lab, address)).id == 1
    assert answered(proxy, service) == 3


@FAMILIES
def test_a_bound_socket_is_hedged_and_hears_no_loser(lab, servers, proxy, vip, service):
    servers["a"].stall()
    with UdpClient(lab.client, vip) as client:
        bind_device(client, "eth0")
        for query_id in range(10):
            answer = client.ask(query_id, "www.example.test")
            assert answer is not None and answer.id == query_id
        servers["a"].resume()
        wait_until(lambda: proxy.figure("losers_dropped", service) > 0, what="the losers' arrival")
        assert client.receive(0.2) is None
    assert answered(proxy, service) == 10


@FAMILIES
def test_tcp_of_a_bound_socket_goes_to_the_leader(lab, proxy, vip, service):
    family = socket.AF_INET6 if is_six(vip) else socket.AF_INET
    for address in (direct_address(lab, vip), vip):
        with lab.client.socket(family, socket.SOCK_STREAM) as tcp:
            tcp.settimeout(5)
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
            tcp.connect((address, 53))
            message = query(9, "www.example.test")
            tcp.sendall(struct.pack("!H", len(message)) + message)
            size = struct.unpack("!H", tcp.recv(2, socket.MSG_WAITALL))[0]
            assert parse(tcp.recv(size, socket.MSG_WAITALL)).id == 9
    assert proxy.figure("tcp_packets", service) > 0


def test_a_bound_socket_and_another_are_served_at_once_under_strict_filtering(lab, proxy):
    for ifname in ("all", "eth0", "hr0"):
        assert lab.client.sysctl(f"net/ipv4/conf/{ifname}/rp_filter") == "1"
    with UdpClient(lab.client, VIP4) as bound, UdpClient(lab.client, VIP4) as other:
        bind_device(bound, "eth0")
        for query_id in range(20):
            assert bound.ask(query_id, f"n{query_id}.example.test").question == f"n{query_id}.example.test"
            assert other.ask(query_id, f"n{query_id + 40}.example.test").question == f"n{query_id + 40}.example.test"
    counters = lab.client.run(["nstat", "-asz", "TcpExtIPReversePathFilter"]).stdout
    assert counters.split()[-2] == "0", counters


def test_with_a_default_route_by_the_uplink_it_is_the_same(lab, proxy):
    lab.client.run(["ip", "route", "add", "default", "via", lab.replica("b").ipv4, "dev", "eth0"])
    try:
        with UdpClient(lab.client, VIP4) as client:
            bind_device(client, "eth0")
            assert client.ask(1, "www.example.test") is not None
    finally:
        lab.client.run(["ip", "route", "del", "default"])


@pytest.fixture(name="dnsmasq")
def fixture_dnsmasq(lab):
    """dnsmasq in the client host that forwards to the VIP by a device, as `server=VIP@eth0` has it."""
    children = []
    # What dnsmasq would change itself is so before `up`, which the host is compared with after `down`.
    lab.client.sysctl("net/ipv4/tcp_fastopen_key", "1-2-3-4")

    def start(server: str) -> None:
        children.append(lab.client.popen(
            ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=5300", "--listen-address=127.0.0.1", "--bind-interfaces",
             "--no-hosts", "--no-resolv", "--cache-size=0", f"--server={server}", "--user=root",
             f"--pid-file={lab.client.scratch('dnsmasq')}/pid-{os.getpid()}"]))

    yield start
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            lab.client.stop(child)


@pytest.mark.own
def test_dnsmasq_forwards_by_a_device(lab, servers, dnsmasq, product):
    product.up()
    dnsmasq(f"{VIP4}@eth0")
    wait_until(lambda: who_answers(lab.client, "127.0.0.1", "-p5300") == "a", what="dnsmasq's answer")


def test_the_routes_of_bound_clients_are_put_back_and_go_with_the_proxy(lab, proxy):
    def present() -> bool:
        return VIP4 in lab.client.run(["ip", "route", "show", "dev", "eth0", "proto", "72"]).stdout

    wait_until(present, what="the route by the uplink")
    lab.client.run(["ip", "route", "del", VIP4, "dev", "eth0", "proto", "72"])
    wait_until(present, what="the route's return")
    with UdpClient(lab.client, VIP4) as client:
        bind_device(client, "eth0")
        assert client.ask(1, "www.example.test") is not None
    proxy.finish()
    for words in (["route", "show", "proto", "72"], ["-6", "route", "show", "proto", "72"], ["neigh", "show", "nud", "permanent"]):
        assert lab.client.run(["ip", *words]).stdout == ""


@pytest.fixture
def ingress_qdisc(lab):
    """Of another owner; it has no egress, where the splitter would be."""
    lab.client.run(["tc", "qdisc", "add", "dev", "eth0", "ingress"])
    yield
    lab.client.run(["tc", "qdisc", "del", "dev", "eth0", "ingress"], check=False)


@pytest.mark.own
def test_an_uplink_that_cannot_serve_bound_clients_serves_the_others(lab, servers, product, ingress_qdisc):
    product.up(attach="clsact", services=[product.service("dns4")])
    with UdpClient(lab.client, VIP4) as client:
        assert client.ask(1, "www.example.test") is not None
    problems = product.status()["problems"]
    assert len(problems) == 1 and problems[0].startswith("attach_failed: for clients bound to eth0:"), problems
    assert lab.client.run(["ip", "route", "show", "dev", "eth0", "proto", "72"]).stdout == "", "no way into silence"
    product.finish()


@contextlib.contextmanager
def child_of_the_uplink(lab, kind: str, address: str):
    """A namespace with a macvlan or ipvlan interface on the client host's uplink, as a container has it."""
    name = f"{lab.client.netns}-child"
    lab.client.run(["ip", "netns", "add", name])
    try:
        lab.client.run(["ip", "link", "add", "link", "eth0", "name", "child0", "netns", name, "type", kind, "mode",
                        "bridge" if kind == "macvlan" else "l2"])
        for words in (["link", "set", "child0", "up"], ["address", "add", f"{address}/24", "dev", "child0"],
                      ["route", "add", "default", "via", lab.replica("b").ipv4, "dev", "child0"]):
            lab.client.run(["ip", "-n", name, *words])
        yield name
    finally:
        lab.client.run(["ip", "netns", "del", name])


ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
s.connect((sys.argv[1], 53)); s.send(bytes.fromhex(sys.argv[2]))
try:
    print(s.recv(2048)[:2].hex())
except OSError as error:
    print(type(error).__name__)
"""


def ask_from(name: str, lab, address: str) -> str:
    return lab.client.run(["ip", "netns", "exec", name, "/usr/bin/python3", "-c", ASK, address,
                           query(0x1234, "www.example.test").hex()]).stdout.strip()


@pytest.mark.parametrize("kind", ["macvlan", "ipvlan"])
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not listed"])
def test_a_macvlan_or_ipvlan_child_is_served_if_it_is_listed(lab, servers, product, kind, listed):
    if lab.client.run(["ip", "link", "add", "link", "eth0", "name", "probe0", "type", kind], check=False).returncode != 0:
        pytest.skip(f"the kernel has no {kind}")
    lab.client.run(["ip", "link", "del", "probe0"])
    address = "10.77.0.77"
    services = product.services("dns")
    if listed:
        services[0]["clients"] = [address]
    product.up(services=services)
    with child_of_the_uplink(lab, kind, address) as name:
        assert ask_from(name, lab, lab.replica("a").ipv4) == "1234", "the control"
        assert ask_from(name, lab, VIP4) == ("1234" if listed else "TimeoutError")
    assert answered(product, DNS4) == (1 if listed else 0)
    assert (product.figure("not_a_client") > 0) == (not listed)
