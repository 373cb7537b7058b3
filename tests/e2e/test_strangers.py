# SPDX-License-Identifier: Apache-2.0
"""Local users without privileges, and networks, that are not the proxy's friends."""

import contextlib
import socket
import subprocess

import pytest

from harness.dns import UdpClient
from harness.product import RAW4, VIP4, VIP6, wait_until

_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

# Binds to a device and sends as many datagrams as it is told, to an address that is nobody's and to a multicast group.
_SEND_ON = """
import socket, sys
device, count = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    for i in range(count):
        try:
            s.sendto(b"x" * 40, ("224.0.0.1" if i % 2 else "198.51.100.7", 9))
        except OSError:
            pass
"""


# Sends a request from each port in turn, until it is ended.
_FROM_EVERY_PORT = """
import itertools, socket, sys
for port in itertools.cycle(range(2000, 60000)):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.bind(("", port))
            s.sendto(b"x" * 40, (sys.argv[1], 4000))
        except OSError:
            pass
"""


def as_nobody(host, code: str, *words: str) -> subprocess.Popen:
    return host.popen([*_NOBODY, "/usr/bin/python3", "-c", code, *words])


def host_reason(product, name: str) -> int:
    return int(product.status()["reasons"].get(name, 0))


@pytest.mark.parametrize("kind", ["htb", "fq"])
def test_what_a_user_sends_on_the_proxys_links_ends_there_and_hedges_are_in_time(lab, servers, product, kind):
    product.measured_by_doctor(kind)
    product.up(clock={"kind": kind, "tolerance": "100ms"})
    before = host_reason(product, "foreign_on_link")
    senders = [as_nobody(lab.client, _SEND_ON, device, "20000") for device in ("hr0c0", "hr0c1", "hr0p")]
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        for query_id in range(20):
            assert client.ask(query_id, "www.example.test", timeout_s=1) is not None, "nobody answered in time"
    servers["a"].resume()
    assert [sender.wait(30) for sender in senders] == [0, 0, 0]
    for device in ("hr0c0", "hr0c1", "hr0p"):
        one = host_reason(product, "foreign_on_link")
        assert as_nobody(lab.client, _SEND_ON, device, "100").wait(10) == 0
        wait_until(lambda one=one: host_reason(product, "foreign_on_link") >= one + 50, what=f"what came by {device} to be counted")
    assert host_reason(product, "foreign_on_link") - before >= 30_000
    assert product.fired() >= 1


def test_a_user_who_floods_one_service_takes_no_answer_and_no_hedge_of_anothers(lab, servers, product):
    product.up(services=[product.service("dns4"), product.service("raw4", deadline="4s")],
               limits={"requests": 16384, "parked": 16384, "flows": 256})
    with contextlib.ExitStack() as stack:
        for host in lab.replicas:  # the flooded service's backends are silent
            port = stack.enter_context(host.socket())
            port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            port.bind((host.ipv4, 4000))
        flood = as_nobody(lab.client, _FROM_EVERY_PORT, RAW4)
        stack.callback(flood.wait)
        stack.callback(flood.kill)
        wait_until(lambda: product.figure("client_share", "raw4") > 0, timeout_s=60, what="the flood's having used up its share")
        client = stack.enter_context(UdpClient(lab.client, VIP4))
        for query_id in range(100):  # each earns a twentieth of a hedge
            assert client.ask(query_id, "www.example.test", timeout_s=1) is not None, query_id
        servers["a"].stall()
        stack.callback(servers["a"].resume)
        for query_id in range(100, 120):
            assert client.ask(query_id, "www.example.test", timeout_s=1) is not None, f"{query_id} was not hedged"
    assert product.figure("passed_through") == 0
    assert product.fired() >= 1


# Binds a VIP, which takes no privilege (IPV6_FREEBIND), and sends in its name.
_IN_A_VIPS_NAME = """
import socket, sys
vip, to, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    s.setsockopt(41, 78, 1)
    s.bind((vip, 53))
    s.sendto(b"x" * 40, (to, port))
"""


@pytest.mark.lab(inner=True, nat=None)
def test_neither_a_local_user_nor_a_container_sends_in_a_vips_name(lab, servers, proxy):
    ports = contextlib.ExitStack()
    for host in (lab.client, lab.inner):  # as Docker sets it, so that every user may bind a service's port
        host.run(["sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0"])
        ports.callback(host.run, ["sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=1024"])
    with ports:
        check_that_none_sends_in_a_vips_name(lab, proxy)


def check_that_none_sends_in_a_vips_name(lab, proxy) -> None:
    # Over IPv4 the kernel sends in no name that is not its own (ENETUNREACH).
    for host in (lab.client, lab.inner):
        with UdpClient(lab.client, VIP6) as client:
            assert client.ask(1, "www.example.test") is not None
            before = host_reason(proxy, "forged_vip")
            assert as_nobody(host, _IN_A_VIPS_NAME, VIP6, lab.client.ipv6, str(client.port)).wait(10) == 0
            assert client.receive(0.3) is None, host.name
            wait_until(lambda before=before: host_reason(proxy, "forged_vip") == before + 1, what=f"{host.name}'s being counted")
    # To a client in the container, in the name of its service.
    with UdpClient(lab.inner, VIP6) as client:
        assert client.ask(2, "www.example.test") is not None
        assert as_nobody(lab.client, _IN_A_VIPS_NAME, VIP6, lab.inner.ipv6, str(client.port)).wait(10) == 0
        assert client.receive(0.3) is None


@pytest.mark.lab(inner=True)
def test_a_masqueraded_container_takes_none_of_a_local_users_share(lab, servers, product):
    product.up(services=[product.service("raw4", deadline="20s")], limits={"requests": 4096, "parked": 4096})
    flood = as_nobody(lab.client, _FROM_EVERY_PORT, RAW4)
    try:
        wait_until(lambda: product.figure("client_share", "raw4") > 0, timeout_s=60, what="the flood's having used up its share")
    finally:
        flood.kill()
        flood.wait()
    requests, passed = product.figure("requests", "raw4"), product.figure("passed_through", "raw4")
    with lab.inner.socket() as container:
        for number in range(20):
            container.sendto(number.to_bytes(2, "big") + b"y" * 38, (RAW4, 4000))
    wait_until(lambda: product.figure("requests", "raw4") >= requests + 20, what="the container's requests")
    assert product.figure("passed_through", "raw4") == passed
