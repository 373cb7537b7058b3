# SPDX-License-Identifier: Apache-2.0
"""Packets a kernel program meets rarely: options, segmentation offload, no checksum, nothing in them, wrong ports.

None may be lost: what cannot be hedged is forwarded to the leader and counted under its reason.
"""

import socket
import struct

import pytest

from deploy.lab import Uplink
from harness.dns import UdpClient, dig
from harness.product import DNS4, DNS6, RAW4, RAW6, VIP4, VIP6

RAW = pytest.mark.parametrize("vip, service", [(RAW4, "raw4"), (RAW6, "raw6")], ids=["ipv4", "ipv6"])
DNS = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
CHECKSUMS_FINISHED = pytest.mark.lab(client_uplink=Uplink(tx_checksum=False))
ECHOES = pytest.mark.servers(a="echo", b="echo")

SOL_UDP, UDP_SEGMENT = 17, 103
SO_NO_CHECK = 11


@RAW
@CHECKSUMS_FINISHED
@ECHOES
def test_a_burst_sent_by_segmentation_offload_comes_back_whole(lab, product, servers, vip, service):
    product.up(services=product.services("raw"))
    burst = [struct.pack("!I", number) + bytes([number]) * 96 for number in range(8)]
    with UdpClient(lab.client, vip, 4000) as client:
        client.socket.setsockopt(SOL_UDP, UDP_SEGMENT, 100)
        client.send(b"".join(burst))
        assert sorted(client.receive_all(quiet_s=0.3)) == burst
    for replica in "ab":
        assert lab.replica(replica).snmp("Udp6" if ":" in vip else "Udp")["InCsumErrors"] == 0
    # One packet to the program where the link segments late, eight where the stack did it before.
    gso = product.figure("gso", service)
    assert product.figure("requests", service) == (gso if gso else 8)


@CHECKSUMS_FINISHED
@ECHOES
def test_a_request_with_ip_options_is_forwarded_unhedged(lab, product, servers):
    product.up(services=product.services("raw"))
    with UdpClient(lab.client, RAW4, 4000) as client:
        client.socket.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00")  # no-operation, end
        client.send(b"\0\0\0\1options")
        assert client.receive() == b"\0\0\0\1options"
    assert product.figure("ip_options", "raw4") == 1


@CHECKSUMS_FINISHED
@ECHOES
@pytest.mark.parametrize("option", [socket.IPV6_HOPOPTS, socket.IPV6_DSTOPTS], ids=["hop-by-hop", "destination"])
def test_a_request_with_ipv6_options_is_forwarded_unhedged(lab, product, servers, option):
    product.up(services=product.services("raw"))
    with UdpClient(lab.client, RAW6, 4000) as client:
        client.socket.setsockopt(socket.IPPROTO_IPV6, option, b"\0\0\x01\x04\0\0\0\0")  # 8 bytes: PadN
        client.send(b"\0\0\0\1options")
        assert client.receive() == b"\0\0\0\1options"
    assert product.figure("ip_options", "raw6") == 1
    assert lab.replica("a").snmp("Udp6")["InCsumErrors"] == 0


@RAW
@CHECKSUMS_FINISHED
@ECHOES
def test_a_request_without_a_checksum_is_served_and_hedged(lab, product, servers, vip, service):
    product.up(services=product.services("raw"))
    with UdpClient(lab.client, vip, 4000) as client:
        if service == "raw4":  # IPv6 knows no datagram without one
            client.socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        for stall in (False, True):
            if stall:
                servers["a"].stall()
            payload = b"\0\0\0" + bytes([stall]) + b"no checksum"
            client.send(payload)
            assert client.receive() == payload
        servers["a"].resume()
    for replica in "ab":
        assert lab.replica(replica).snmp("Udp6" if ":" in vip else "Udp")["InCsumErrors"] == 0


@ECHOES
@pytest.mark.own
def test_the_shortest_requests_are_hedged_whatever_packet_carries_the_clock(lab, product, servers):
    """It is a clone of the one that started it, and copies are made in it: an IPv6 packet has longer headers than a short IPv4 one is."""
    product.up(services=product.services("raw", budget="100%"))
    servers["a"].stall()
    for vip in (RAW6, RAW4, RAW6):
        for payload in (b"\0\0\0\1", b"\0\0\0\2hedged!"):
            with UdpClient(lab.client, vip, 4000) as client:
                client.send(payload)
                assert client.receive() == payload
    servers["a"].resume()
    assert product.figure("hedge_failed", "raw4") == 0
    assert lab.replica("b").snmp("Udp")["InCsumErrors"] == 0


@RAW
@CHECKSUMS_FINISHED
@ECHOES
def test_an_empty_datagram_is_forwarded(lab, product, servers, vip, service):
    product.up(services=product.services("raw"))
    with UdpClient(lab.client, vip, 4000) as client:
        client.send(b"")
        assert client.receive() == b""
    assert product.figure("unknown_operation", service) == 1


@DNS
def test_an_operation_that_is_no_query_is_forwarded_once(lab, servers, proxy, vip, service):
    answer = dig(lab.client, vip, "example.test", "SOA", "+opcode=notify")
    assert answer.status is not None
    servers["a"].stall()
    assert dig(lab.client, vip, "example.test", "SOA", "+opcode=notify", timeout_s=1).status is None
    servers["a"].resume()
    assert proxy.figure("unknown_operation", service) == 2
    assert proxy.figure("hedges", service) == 0


@DNS
def test_a_port_of_the_vip_without_a_service_refuses_at_once_as_a_host_does(lab, proxy, vip, service):
    address = lab.replica("a").ipv6 if vip == VIP6 else lab.replica("a").ipv4
    for target in (address, vip):  # the replica's own closed port is the control
        with UdpClient(lab.client, target, port=5353) as client, pytest.raises(ConnectionRefusedError):
            client.ask(1, "www.example.test", timeout_s=5)
        family = socket.AF_INET6 if vip == VIP6 else socket.AF_INET
        with lab.client.socket(family, socket.SOCK_STREAM) as tcp, pytest.raises(ConnectionRefusedError):
            tcp.settimeout(5)
            tcp.connect((target, 5353))
    # No service's, so the host's. A packet that is neither UDP nor TCP still ends in the sink.
    assert int(proxy.status()["counters"]["refusals"]) >= 2
    assert proxy.figure("requests", service) == 0


def test_strict_reverse_path_filtering_is_on_everywhere_and_drops_nothing(lab, servers, proxy):
    for ifname in ("all", "eth0", "hr0"):
        assert lab.client.sysctl(f"net/ipv4/conf/{ifname}/rp_filter") == "1"
    servers["a"].stall()
    for connected in (True, False):
        with UdpClient(lab.client, VIP4, connected=connected) as client:
            assert client.ask(1, "www.example.test") is not None
    servers["a"].resume()
    counters = lab.client.run(["nstat", "-asz", "TcpExtIPReversePathFilter"]).stdout
    assert counters.split()[-2] == "0", counters


def test_traffic_that_is_for_no_vip_never_meets_the_proxy(lab, servers, proxy):
    assert dig(lab.client, lab.replica("b").ipv4, "www.example.test").status == "NOERROR"
    assert dig(lab.client, lab.replica("b").ipv6, "www.example.test").status == "NOERROR"
    assert proxy.figure("requests", DNS4) == proxy.figure("requests", DNS6) == 0
