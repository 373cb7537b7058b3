# SPDX-License-Identifier: Apache-2.0
"""Over an uplink that finalises checksums, as real cards do, every hedged copy has a right one.

A veth passes partial checksums on unchecked. `Uplink(tx_checksum=False)` makes the client's kernel finish them and the
receiver verify them; our own arithmetic looks at each packet as well.
"""

import os
import socket
import struct
import time

import pytest

from deploy.lab import Uplink
from harness.capture import Capture
from harness.dns import UdpClient, query
from harness.product import DNS4, DNS6, RAW4, RAW6, VIP4, VIP6

pytestmark = pytest.mark.lab(client_uplink=Uplink(tx_checksum=False))
HEDGE_ALL = {"budget": "100%", "budget_burst": 1000, "suspect_min": "10s", "delay": "1ms"}
# Every residue of 4 and both ends: the checksum is summed in words of 4 bytes, and in chunks of 512.
LENGTHS = [*range(4, 72), *range(505, 520), *range(1017, 1032), *range(1400, 1473)]


@pytest.mark.servers(a="echo", b="echo")
@pytest.mark.parametrize("vip, service, family", [(RAW4, "raw4", 4), (RAW6, "raw6", 6)], ids=["ipv4", "ipv6"])
def test_hedged_copies_of_every_length_have_a_right_checksum(lab, servers, product, vip, service, family):
    lengths = [length for length in LENGTHS if family == 4 or length <= 1452]  # 40 bytes of header instead of 20
    product.up(services=product.services("raw", **HEDGE_ALL))
    with Capture(lab.replica("b"), "eth0") as wire, UdpClient(lab.client, vip, 4000) as client:
        servers["a"].stall()
        for number, length in enumerate(lengths):
            payload = (struct.pack("!I", number) + os.urandom(length))[:length]
            client.send(payload)
            assert client.receive(timeout_s=1) == payload, f"{length} bytes did not come back"
        servers["a"].resume()
        copies = [d for d in wire.datagrams() if d.destination_port == 4000 and not d.outgoing]
    assert len(copies) == len(lengths)
    assert [len(d.payload) for d in copies if not (d.checksum_complete and d.checksum_ok)] == []
    assert lab.replica("b").snmp("Udp6" if family == 6 else "Udp")["InCsumErrors"] == 0
    assert product.figure("won_by_hedge", service) == len(lengths)


@pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
def test_a_dns_server_finds_no_bad_checksum_first_sends_and_hedges_alike(lab, servers, product, vip, service):
    product.up(services=product.services("dns", **HEDGE_ALL))
    with UdpClient(lab.client, vip) as client:
        for stall in (False, True):
            if stall:
                servers["a"].stall()
            for query_id in range(60):
                client.send(query(query_id, f"{'x' * (query_id + 1)}.example.test"))
                assert client.receive(timeout_s=1) is not None
        servers["a"].resume()
    table = "Udp6" if ":" in vip else "Udp"
    assert [lab.replica(name).snmp(table)["InCsumErrors"] for name in "ab"] == [0, 0]


@pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
def test_copies_sent_at_once_around_a_suspect_leader_have_a_right_checksum(lab, servers, proxy, vip, service):
    """A silent leader: both copies at once, then the standby alone, then probes. Each is made in another way."""
    captures = {name: Capture(lab.replica(name), "eth0") for name in "ab"}
    with captures["a"], captures["b"], UdpClient(lab.client, vip) as client:
        servers["a"].stall()
        for query_id in range(100):
            assert client.ask(query_id, f"{'y' * (query_id % 50 + 1)}.example.test") is not None
            time.sleep(0.005)
        servers["a"].resume()
        sent = {name: [d for d in capture.datagrams() if d.destination_port == 53 and not d.outgoing]
                for name, capture in captures.items()}
    assert proxy.figure("won_by_failover", service) > 50 and proxy.figure("probes", service) > 0
    assert len(sent["a"]) > 5 and len(sent["b"]) >= 100
    assert [d for copies in sent.values() for d in copies if not (d.checksum_complete and d.checksum_ok)] == []
    table = "Udp6" if ":" in vip else "Udp"
    assert [lab.replica(name).snmp(table)["InCsumErrors"] for name in "ab"] == [0, 0]


@pytest.mark.own
@pytest.mark.servers(b="echo")
def test_this_lab_does_notice_a_wrong_checksum(lab, servers):
    """The check above can fail: a datagram with a planted fault is refused by the replica and seen in the capture."""
    with Capture(lab.replica("b"), "eth0") as wire:
        with lab.client.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
            raw.sendto(struct.pack("!HHHH", 5555, 4000, 12, 0x1234) + b"oops", (lab.replica("b").ipv4, 0))
        with UdpClient(lab.client, lab.replica("b").ipv4, 4000) as client:  # and a good one behind it
            client.send(b"good")
            assert client.receive() == b"good"
        arrived = {d.payload: d.checksum_ok for d in wire.datagrams() if d.destination_port == 4000 and not d.outgoing}
    assert arrived == {b"oops": False, b"good": True}
    assert lab.replica("b").snmp("Udp")["InCsumErrors"] == 1
