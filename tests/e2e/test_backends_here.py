# SPDX-License-Identifier: Apache-2.0
"""A backend on the clients' own host: a socket of that host, on its address or on a loopback one. Each is asked directly, too: that is
the control."""

import socket
from collections.abc import Iterator

import pytest

from deploy.lab.servers import Nsd
from harness.dns import UdpClient, dig, who_answers
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])


class NsdHere(Nsd):
    """On the client host, loopback addresses included."""

    def addresses_here(self) -> list[str]:
        return [self.host.ipv4, self.host.ipv6, "127.0.0.1", "::1"]

    def command(self) -> list[str]:
        command = super().command()
        config = self.folder / "nsd.conf"
        lines = "".join(f"  ip-address: {address}\n" for address in ("127.0.0.1", "::1"))
        config.write_text(config.read_text(encoding="ascii").replace("server:\n", "server:\n" + lines, 1), encoding="ascii")
        return command


@pytest.fixture
def here(lab, servers) -> Iterator[Nsd]:
    server = NsdHere(lab.client).start()
    yield server
    server.resume()
    server.stop()


def address_here(lab, vip: str, where: str) -> str:
    six = ":" in vip
    if where == "loopback":
        return "::1" if six else "127.0.0.1"
    return lab.client.ipv6 if six else lab.client.ipv4


def up(lab, product, *, where: str, primary: str) -> None:
    services = product.services("dns", primary=primary)
    for service in services:
        service["backends"] = [service["backends"][0], {"name": "here", "address": address_here(lab, service["vip"], where), "port": 53}]
    product.up(services=services)


@pytest.mark.own
@FAMILIES
@pytest.mark.parametrize("where", ["address", "loopback"])
def test_it_leads_and_is_hedged_to_a_remote_one(lab, servers, here, product, vip, service, where):
    assert who_answers(lab.client, address_here(lab, vip, where)) == "client", "the control"
    up(lab, product, where=where, primary="here")
    for connected in (True, False):
        with UdpClient(lab.client, vip, connected=connected) as client:
            for query_id in range(3):
                assert client.ask(query_id, "www.example.test") is not None
    assert who_answers(lab.client, vip) == "client"
    assert dig(lab.client, vip, "www.example.test", "A", "+tcp").status == "NOERROR"
    assert len(dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=4096", "+ignore").text) > 1500
    here.stall()
    assert who_answers(lab.client, vip) == "a"
    here.resume()
    product.finish()


@pytest.mark.own
@FAMILIES
def test_a_closed_port_of_this_host_is_a_refusal(lab, servers, product, vip, service):
    services = product.services("dns", delay="1s", deadline="3s")
    for each in services:
        each["backends"] = [{"name": "a", "address": address_here(lab, each["vip"], "address"), "port": 5353}, each["backends"][1]]
    product.up(services=services)
    with UdpClient(lab.client, vip) as client:
        assert client.ask(1, "www.example.test", timeout_s=0.8) is not None, "no need to wait for the delay"
    assert product.figure("nacks_swallowed", service) == 1
    product.finish()


@pytest.mark.own
@FAMILIES
def test_it_is_the_standby_of_a_remote_one(lab, servers, here, product, vip, service):
    up(lab, product, where="address", primary="a")
    assert who_answers(lab.client, vip) == "a"
    servers["a"].stall()
    assert who_answers(lab.client, vip) == "client"
    servers["a"].resume()
    status = product.service_status(service)
    assert [backend["uplink"] for backend in status["backends"]] == ["eth0", "lo"]
    product.finish()


@pytest.mark.own
def test_a_host_with_backends_of_its_own_only_needs_no_uplink(lab, here, product):
    services = product.services("dns", primary="x")
    for service in services:
        service["backends"] = [{"name": name, "address": address_here(lab, service["vip"], where), "port": 53}
                               for name, where in (("x", "address"), ("y", "loopback"))]
    lab.client.sysctl("net/ipv6/conf/eth0/keep_addr_on_down", "1")
    product.up(services=services)
    lab.client.run(["ip", "link", "set", "eth0", "down"])
    for vip in (VIP4, VIP6):
        assert who_answers(lab.client, vip) == "client"
    assert product.status()["problems"] == []
    lab.client.run(["ip", "link", "set", "eth0", "up"])
    product.finish()


@pytest.mark.own
def test_direct_clients_of_it_are_left_alone(lab, servers, here, product):
    up(lab, product, where="address", primary="here")
    assert who_answers(lab.client, VIP4) == "client"
    here_address = address_here(lab, VIP4, "address")
    with UdpClient(lab.client, here_address) as direct:
        for query_id in range(5):
            assert direct.ask(query_id, "www.example.test") is not None
    assert dig(lab.client, here_address, "www.example.test", "A", "+tcp").status == "NOERROR"
    assert product.figure("requests") == 1
    product.finish()


@pytest.mark.own
def test_a_client_bound_to_an_uplink_is_not_taken_for_one_that_is_served(lab, servers, here, product):
    """Its answers would come by lo, where the kernel does not find its socket."""
    up(lab, product, where="address", primary="here")
    assert lab.client.run(["ip", "route", "show", "dev", "eth0", "proto", "72"]).stdout == ""
    with UdpClient(lab.client, VIP4) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        assert client.ask(1, "www.example.test", timeout_s=0.3) is None
    assert product.figure("requests") == 0, "no request that would be counted as answered"
    product.finish()


@pytest.mark.own
def test_an_address_that_comes_to_this_host_is_followed(lab, servers, here, product):
    """As with VRRP: the backend's address moves from another host to this one and back."""
    address = "10.77.0.200"
    lab.replica("a").run(["ip", "addr", "add", f"{address}/32", "dev", "eth0"])
    echo = {"name": "raw", "vip": VIP4, "port": 4000, "profile": "raw", "primary": "moves",
            "raw": {"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4},
            "backends": [{"name": "moves", "address": address, "port": 4000}]}
    product.up(services=[echo])
    wait_until(lambda: product.service_status("raw")["backends"][0]["uplink"] == "eth0", what="the uplink")
    lab.replica("a").run(["ip", "addr", "del", f"{address}/32", "dev", "eth0"])
    lab.client.run(["ip", "addr", "add", f"{address}/32", "dev", "eth0"])
    wait_until(lambda: product.service_status("raw")["backends"][0]["uplink"] == "lo", what="lo")
    with lab.client.socket(socket.AF_INET) as server, lab.client.socket(socket.AF_INET) as client:
        server.bind((address, 4000))
        server.settimeout(2)
        client.settimeout(2)
        client.connect((VIP4, 4000))
        client.send(b"1234ping")
        request, source = server.recvfrom(100)
        server.sendto(b"1234pong", source)
        assert request == b"1234ping" and client.recv(100) == b"1234pong"
    lab.client.run(["ip", "addr", "del", f"{address}/32", "dev", "eth0"])
    wait_until(lambda: product.service_status("raw")["backends"][0]["uplink"] == "eth0", what="the uplink again")
    product.finish()
