# SPDX-License-Identifier: Apache-2.0
"""Several datagrams in one packet: each is judged for itself, whether a sender or the receiving interface merged them.

A server answers a burst by UDP_SEGMENT, a client asks by it, or the uplink merges what it receives (UDP GRO). A program that takes
such a packet for one datagram gives an answer to the wrong request, or a loser's to the client.
"""

import struct

import pytest

from deploy.lab.host import UPLINK
from harness.dns import UdpClient
from harness.echo import BATCH, SOL_UDP, UDP_SEGMENT
from harness.product import RAW4, RAW6, wait_until

pytestmark = pytest.mark.servers(a="echo", b="echo")
RAW = pytest.mark.parametrize("vip, service", [(RAW4, "raw4"), (RAW6, "raw6")], ids=["ipv4", "ipv6"])
COUNT, SIZE = 40, 120
DELAY = {"delay": "200ms", "budget": "100%", "budget_burst": 1000}  # longer than the server's pause


def segmented(product) -> int:
    """How many packets of several datagrams met a program: without one a test proves nothing."""
    return int(product.status()["counters"].get("segmented", 0))


def hold_for_merging(host, nanoseconds: str) -> None:
    """A veth hands each packet on at once, and nothing would be merged. For so long it waits for further ones."""
    host.run(["ip", "netns", "exec", host.netns, "sh", "-c",
              f"cd /sys/class/net/{UPLINK} && echo {nanoseconds} >gro_flush_timeout && echo {min(int(nanoseconds), 10)} >napi_defer_hard_irqs"])


def burst(marker: bytes, first: int = 0) -> list[bytes]:
    return [struct.pack("!I", first + number) + marker + bytes([number]) * (SIZE - 6) for number in range(COUNT)]


def ask_one_by_one(client: UdpClient, requests: list[bytes], quiet_s: float = 0.4) -> list[bytes]:
    for request in requests:
        client.send(request)
    return sorted(client.receive_all(quiet_s))


@RAW
def test_answers_in_one_packet_each_answer_their_own_request(lab, product, servers, vip, service):
    requests = burst(BATCH)
    with UdpClient(lab.client, lab.replica("a").ipv6 if ":" in vip else lab.replica("a").ipv4, 4000) as direct:
        assert ask_one_by_one(direct, requests) == requests  # the control
    product.up(services=product.services("raw", **DELAY))
    before = segmented(product)
    with UdpClient(lab.client, vip, 4000) as client:
        assert ask_one_by_one(client, requests) == requests
    assert segmented(product) > before
    assert product.figure("won_by_first", service) == COUNT
    assert product.figure("merged", service) == 0


@RAW
def test_losers_in_one_packet_are_dropped_one_by_one(lab, product, servers, vip, service):
    product.up(services=product.services("raw", **{**DELAY, "delay": "20ms"}))
    servers["a"].stall()
    with UdpClient(lab.client, vip, 4000) as client:
        assert ask_one_by_one(client, burst(BATCH)) == burst(BATCH)
        before = segmented(product)
        servers["a"].resume()
        wait_until(lambda: product.figure("losers_dropped", service) == COUNT, what="the losers")
        assert segmented(product) > before
        assert client.receive(0.2) is None


@RAW
def test_in_one_packet_an_answer_that_wins_passes_and_one_that_lost_does_not(lab, product, servers, vip, service):
    """a's packet holds answers to requests that b has answered, and to some that wait."""
    product.up(services=product.services("raw", **{**DELAY, "delay": "20ms"}))
    servers["a"].stall()
    with UdpClient(lab.client, vip, 4000) as client:
        assert ask_one_by_one(client, burst(BATCH)) == burst(BATCH)
        product.admin("leader", "set", service, "a")
        servers["b"].stall()
        later = burst(BATCH, first=1000)
        for request in later:
            client.send(request)
        before = segmented(product)
        servers["a"].resume()
        assert sorted(client.receive_all(0.5)) == later
        assert segmented(product) > before
    assert product.figure("losers_dropped", service) >= COUNT


@RAW
@pytest.mark.parametrize("stalled", [False, True], ids=["leader well", "leader stalled"])
def test_requests_in_one_packet_are_hedged_one_by_one(lab, product, servers, vip, service, stalled):
    product.up(services=product.services("raw", **{**DELAY, "delay": "20ms"}))
    if stalled:
        servers["a"].stall()
    with UdpClient(lab.client, vip, 4000) as client:
        before = segmented(product)
        client.socket.setsockopt(SOL_UDP, UDP_SEGMENT, SIZE)
        client.send(b"".join(burst(b"1x")))
        assert sorted(client.receive_all(0.4)) == burst(b"1x")
    assert segmented(product) > before
    assert product.figure("requests", service) == COUNT
    assert product.figure("gso", service) == 0
    if stalled:
        assert product.figure("won_by_hedge", service) + product.figure("won_by_failover", service) == COUNT


@pytest.mark.own
@pytest.mark.parametrize("feature", ["rx-udp-gro-forwarding", "rx-gro-list"])
def test_what_the_uplink_merges_is_judged_one_by_one(lab, product, servers, feature):
    lab.client.run(["ethtool", "-K", UPLINK, "gro", "on", feature, "on"])
    hold_for_merging(lab.client, "2000000")  # ns
    try:
        product.up(services=product.services("raw", **DELAY))
        with UdpClient(lab.client, RAW4, 4000) as client:
            for _ in range(3):
                servers["a"].stall()
                for request in burst(b"1x"):
                    client.send(request)
                servers["a"].resume()  # its answers come close together
                assert sorted(client.receive_all(0.4)) == burst(b"1x")
        assert segmented(product) > 0
        assert product.figure("won_by_first", "raw4") == 3 * COUNT
        assert product.figure("merged", "raw4") == 0
        product.finish()  # which compares the uplink with what it was
    finally:
        hold_for_merging(lab.client, "0")
        lab.client.run(["ethtool", "-K", UPLINK, feature, "off", "gro", "off"])
