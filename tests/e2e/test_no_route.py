# SPDX-License-Identifier: Apache-2.0
"""The host has no route to backends. One that can be reached gets the requests; where none can, the client of a VIP hears so at once, as a
client that asks a backend itself does. That one is the control."""

import contextlib
import errno
import os
import signal
import socket
import time

import pytest

from harness.dns import UdpClient, query, who_answers
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until

pytestmark = pytest.mark.own
FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
# What a client of the VIP hears, whatever kind of route there is not.
HEARD = {VIP4: errno.ENETUNREACH, VIP6: errno.ECONNREFUSED}
DIRECT = {"unreachable": errno.EHOSTUNREACH, "prohibit": errno.EACCES, "blackhole": errno.EINVAL, "gone": errno.ENETUNREACH,
          "down": errno.ENETUNREACH}
_SOON_S = 3.0


def error_of_asking(host, address: str, *, connected: bool = True, timeout_s: float = 1.0) -> int | None:
    """None: an answer came. 0: silence."""
    with UdpClient(host, address, connected=connected) as client:
        if not connected:
            six = ":" in address
            client.socket.setsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, 25 if six else 11, 1)  # RECVERR
        try:
            return None if client.ask(1, "www.example.test", timeout_s=timeout_s) is not None else 0
        except OSError as error:
            return error.errno


def error_of_connecting(host, address: str) -> int | None:
    with host.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as tcp:
        tcp.settimeout(2)
        try:
            tcp.connect((address, 53))
        except OSError as error:
            return error.errno or errno.ETIMEDOUT
    return None


def addresses(hosts, vip: str) -> list[str]:
    return [host.ipv6 if ":" in vip else host.ipv4 for host in hosts]


@contextlib.contextmanager
def no_route(lab, hosts, vip: str, how: str):
    """`how`: a kind of route, or `gone` (the network's own route), or the uplink is `down`."""
    run = lab.client.run
    network = ["fd77::/64" if ":" in vip else "10.77.0.0/24", "dev", "eth0"]
    bits = 128 if ":" in vip else 32
    if how == "down":
        kept = lab.client.ipv6
        run(["ip", "link", "set", "eth0", "down"])
    elif how == "gone":
        found = run(["ip", "route", "show", *network]).stdout.split("\n")[0].split() if bits == 32 else None
        run(["ip", "route", "del", *network])
    else:
        for address in addresses(hosts, vip):
            run(["ip", "route", "add", how, f"{address}/{bits}"])
    try:
        yield
    finally:
        if how == "down":
            run(["ip", "link", "set", "eth0", "up"])
            run(["ip", "addr", "replace", f"{kept}/64", "dev", "eth0", "nodad"])
        elif how == "gone":
            run(["ip", "route", "add", *(found if found else [*network, "proto", "kernel", "metric", "256"]), *(network[1:] if found else [])])
        else:
            for address in addresses(hosts, vip):
                run(["ip", "route", "del", how, f"{address}/{bits}"])


def hears(lab, vip: str, **how) -> int | None:
    return error_of_asking(lab.client, vip, **how)


@FAMILIES
@pytest.mark.parametrize("how", DIRECT)
def test_without_a_route_to_any_backend_the_client_hears_so_at_once(lab, servers, product, vip, service, how):
    product.up()
    direct = addresses(lab.replicas, vip)[0]
    assert hears(lab, vip) is None and error_of_asking(lab.client, direct) is None
    before = product.figure("unrouted", service)
    with no_route(lab, lab.replicas, vip, how):
        assert error_of_asking(lab.client, direct) == DIRECT[how], "the control"
        wait_until(lambda: hears(lab, vip, timeout_s=0.2) == HEARD[vip], timeout_s=_SOON_S, what="the error")
        began = time.monotonic()
        assert hears(lab, vip) == HEARD[vip] and hears(lab, vip, connected=False) == HEARD[vip]
        assert error_of_connecting(lab.client, vip) == errno.ECONNREFUSED
        assert time.monotonic() < began + 0.5
        assert product.figure("unrouted", service) > before and product.figure("no_route", service) > product.figure("unrouted", service)
        assert any(text.startswith("no_route") for text in product.status()["problems"])
    wait_until(lambda: hears(lab, vip, timeout_s=0.2) is None, timeout_s=_SOON_S, what="an answer")
    product.finish()


@FAMILIES
def test_with_a_route_to_one_backend_the_requests_go_there(lab, servers, product, vip, service):
    """All of them, by UDP and TCP, though the other one leads and none of its answers is missing."""
    product.up()
    assert who_answers(lab.client, vip) == "a"
    with no_route(lab, [lab.replica("a")], vip, "unreachable"):
        wait_until(lambda: who_answers(lab.client, vip) == "b", timeout_s=_SOON_S, what="the standby")
        time_b = product.won(service)["b"]
        with UdpClient(lab.client, vip) as client:
            assert all(client.ask(number, "www.example.test", timeout_s=0.5) is not None for number in range(200))
        assert product.won(service)["b"] == time_b + 200
        assert all(who_answers(lab.client, vip, "+tcp") == "b" for _ in range(3))
        assert product.figure("unrouted", service) == product.figure("no_route", service) == 0
    wait_until(lambda: who_answers(lab.client, vip) == "a", timeout_s=_SOON_S, what="the leader")
    product.finish()


def test_what_a_daemon_says_about_routes_ends_with_it(lab, servers, product):
    """A stopped daemon does not see the route come back."""
    product.up()
    with no_route(lab, lab.replicas, VIP4, "unreachable"):
        wait_until(lambda: hears(lab, VIP4, timeout_s=0.2) == HEARD[VIP4], timeout_s=_SOON_S, what="the error")
        daemon = product.pid
        os.kill(daemon, signal.SIGSTOP)
    try:
        assert error_of_asking(lab.client, lab.replica("a").ipv4) is None, "the control"
        wait_until(lambda: hears(lab, VIP4, timeout_s=0.2) is None, timeout_s=6, what="an answer")
    finally:
        os.kill(daemon, signal.SIGCONT)
    product.finish()


def test_errors_are_at_most_a_thousand_a_second(lab, servers, product):
    product.up()
    with no_route(lab, lab.replicas, VIP4, "unreachable"):
        wait_until(lambda: hears(lab, VIP4, timeout_s=0.2) == HEARD[VIP4], timeout_s=_SOON_S, what="the error")
        count, heard = product.figure("unrouted"), 0
        with UdpClient(lab.client, VIP4, connected=False) as client:
            client.socket.setsockopt(socket.IPPROTO_IP, 11, 1)
            began = time.monotonic()
            for number in range(3000):
                with contextlib.suppress(OSError):
                    client.socket.sendto(query(number, "www.example.test"), (VIP4, 53))
                with contextlib.suppress(BlockingIOError):
                    client.socket.recvmsg(1, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
                    heard += 1
            took_s = time.monotonic() - began
        assert product.figure("unrouted") >= count + 2900, "all are counted"
        assert 0 < heard <= 51 + 1000 * took_s + 2
    product.finish()


@pytest.mark.lab(inner=True, nat=None)
@FAMILIES
def test_a_container_hears_so_too(lab, servers, product, vip, service):
    product.up()
    assert error_of_asking(lab.inner, vip) is None
    with no_route(lab, lab.replicas, vip, "unreachable"):
        assert error_of_asking(lab.inner, addresses(lab.replicas, vip)[0]) in (0, errno.EHOSTUNREACH, errno.EACCES), "the control"
        wait_until(lambda: error_of_asking(lab.inner, vip, timeout_s=0.2) == HEARD[vip], timeout_s=_SOON_S, what="the error")
        assert error_of_connecting(lab.inner, vip) == errno.ECONNREFUSED
    wait_until(lambda: error_of_asking(lab.inner, vip, timeout_s=0.2) is None, timeout_s=_SOON_S, what="an answer")
    product.finish()


@pytest.mark.parametrize("way", ["interface", "uplink"])
def test_by_whatever_way_packets_come(lab, servers, product, way):
    product.up(vip_route=way)
    for vip in (VIP4, VIP6):
        with no_route(lab, lab.replicas, vip, "prohibit"):
            wait_until(lambda address=vip: hears(lab, address, timeout_s=0.2) == HEARD[address], timeout_s=_SOON_S, what="the error")
        wait_until(lambda address=vip: hears(lab, address, timeout_s=0.2) is None, timeout_s=_SOON_S, what="an answer")
    product.finish()
