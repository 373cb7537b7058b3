# SPDX-License-Identifier: Apache-2.0
"""Local users without privileges, and networks, that are not the proxy's friends."""

import contextlib
import socket
import subprocess

import pytest

from harness.dns import UdpClient
from harness.product import RAW4, VIP4, wait_until

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
    product.measured_by_doctor(f"clock {kind}")
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
