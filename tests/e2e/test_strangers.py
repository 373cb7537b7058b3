# SPDX-License-Identifier: Apache-2.0
"""Local users without privileges, and networks, that are not the proxy's friends."""

import subprocess

import pytest

from harness.dns import UdpClient
from harness.product import VIP4, wait_until

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
