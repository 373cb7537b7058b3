# SPDX-License-Identifier: Apache-2.0
"""A client in a container: a namespace of its own whose gateway is this host, hidden by MASQUERADE as Docker does."""

import pytest

from deploy.lab.host import UPLINK
from harness.dns import UdpClient, dig, finish_dnsperf, query, start_dnsperf, who_answers
from harness.product import DNS4, DNS6, VIP4, VIP6, answer_every_port_unreachable, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
pytestmark = pytest.mark.lab(inner=True)


@FAMILIES
def test_a_container_is_served_by_udp_and_tcp(lab, proxy, vip, service):
    assert who_answers(lab.inner, vip) == "a"
    assert who_answers(lab.inner, vip, "+tcp") == "a"
    assert len(dig(lab.inner, vip, "big.example.test", "TXT", "+bufsize=4096", "+ignore").records) == 12
    assert proxy.figure("won_by_first", service) == 2


@FAMILIES
def test_a_container_is_hedged_from_a_stalled_leader(lab, servers, proxy, vip, service):
    servers["a"].stall()
    with UdpClient(lab.inner, vip) as client:
        for query_id in range(20):
            answer = client.ask(query_id, f"n{query_id}.example.test")
            assert answer is not None and answer.id == query_id
        servers["a"].resume()
        wait_until(lambda: proxy.figure("losers_dropped", service) > 0, what="the losers' arrival")
        assert client.receive(0.3) is None
    assert proxy.figure("won_by_hedge", service) + proxy.figure("won_by_failover", service) == 20


@FAMILIES
def test_a_container_and_its_host_use_the_same_port_and_ids_at_once(lab, proxy, vip, service):
    with UdpClient(lab.client, vip, source_port=41000) as host, UdpClient(lab.inner, vip, source_port=41000) as inner:
        for query_id in range(30):
            mine, other = f"n{query_id}.example.test", f"n{query_id + 50}.example.test"
            assert (host.ask(query_id, mine).question, inner.ask(query_id, other).question) == (mine, other)


def test_dnsperf_in_a_container_loses_nothing_when_the_leader_is_killed(lab, servers, proxy):
    load = start_dnsperf(lab.inner, VIP4, seconds=2, rate=300)
    wait_until(lambda: proxy.figure("won_by_first") > 100, what="traffic")
    servers["a"].kill()
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text


@FAMILIES
def test_a_container_is_told_when_both_replicas_are_dead(lab, servers, proxy, vip, service):
    answer_every_port_unreachable(lab.replica("a"), lab.replica("b"))
    servers["a"].kill()
    servers["b"].kill()
    with UdpClient(lab.inner, vip) as client:
        with pytest.raises(ConnectionRefusedError):
            client.ask(1, "www.example.test")
    assert proxy.figure("icmp_translated", service) == 1


@FAMILIES
def test_a_container_may_ping_the_vip(lab, proxy, vip, service):
    assert "3 received" in lab.inner.run(["ping", "-c3", "-i0.05", "-W1", vip]).stdout


@FAMILIES
@pytest.mark.parametrize("listed", ["nothing", "the container's network", "the host's address"])
def test_a_hidden_container_is_this_host_and_of_ipv6_listed_by_its_address(lab, servers, product, vip, service, listed):
    services = product.services("dns")
    for each in services:
        networks = each.pop("clients")
        if listed != "nothing":
            each["clients"] = networks[:1] if listed == "the container's network" else networks[1:]
    product.up(services=services)
    assert who_answers(lab.client, vip) == "a"
    served = service == DNS4 or listed == "the host's address"
    with UdpClient(lab.inner, vip) as client:
        assert (client.ask(1, "www.example.test", timeout_s=1.0) is not None) == served
        assert product.figure("not_a_client", service) == (0 if served else 1)
        if not served:
            assert product.status()["problems"] == [], "one packet is a mistake"
            for query_id in range(2, 5):
                client.send(query(query_id, "www.example.test"))
            named = wait_until(lambda: product.status()["problems"], what="the problem")
            assert named[0].startswith(f"clients_dropped: {service}: packets"), named
            checked = product.run("check", service, "--socket", product.socket)
            assert checked.returncode == 1 and f"{service}: works, but other clients get nothing" in checked.stdout, checked.stdout


# The length and the checksum of the IPv4 header are the kernel's (raw(7)).
_SEND_AS = """
import socket, struct, sys
source, target, payload = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
udp = struct.pack("!HHHH", 40000, 53, 8 + len(payload), 0) + payload
head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(target))
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
    raw.sendto(head + udp, (target, 0))
"""


def test_a_neighbour_that_forges_this_hosts_address_sends_nothing_to_a_vip(lab, servers, product):
    """Also where nothing filters sources: Linux lets no IPv4 packet in that bears an address of its own."""
    services = [product.service("dns4")]
    services[0].pop("clients")
    product.up(services=services)
    neighbour = lab.replica("b")
    neighbour.run(["ip", "route", "add", VIP4, "via", lab.client.ipv4])
    for interface in ("all", UPLINK):
        lab.client.run(["sysctl", "-qw", f"net.ipv4.conf.{interface}.rp_filter=0"])
    try:
        for source in (lab.client.ipv4, neighbour.ipv4):
            neighbour.run(["/usr/bin/python3", "-c", _SEND_AS, source, VIP4, query(1, "www.example.test").hex()])
        wait_until(lambda: product.figure("not_a_client") == 1, what="the packet with an address of its own, which came later")
        assert product.figure("requests") == 0
    finally:
        for interface in ("all", UPLINK):
            lab.client.run(["sysctl", "-qw", f"net.ipv4.conf.{interface}.rp_filter=1"])
        neighbour.run(["ip", "route", "del", VIP4])


@pytest.mark.lab(inner=True, nat=None)
def test_a_vip_serves_its_host_alone_until_a_reload_lists_a_network(lab, servers, product):
    services = product.services("dns")
    listed = [each.pop("clients") for each in services]
    product.up(services=services)
    for vip, service in ((VIP4, DNS4), (VIP6, DNS6)):
        assert who_answers(lab.client, vip) == "a"
        with UdpClient(lab.inner, vip) as client:
            assert client.ask(1, "www.example.test", timeout_s=0.3) is None
        assert lab.inner.run(["ping", "-c1", "-W1", vip], check=False).returncode != 0
        assert product.figure("not_a_client", service) == 2
        assert product.figure("requests", service) == 1
    for each, networks in zip(services, listed, strict=True):
        each["clients"] = networks[:1]
    product.write(product.config(services=services))
    product.admin("reload")
    for vip in (VIP4, VIP6):
        assert who_answers(lab.inner, vip) == "a"
        assert lab.inner.run(["ping", "-c1", "-W1", vip], check=False).returncode == 0
    product.finish()  # it runs with another configuration than it was started with


@pytest.mark.lab(inner=True, nat="nft")
def test_a_masquerade_written_by_nft_is_the_same(lab, proxy):
    assert who_answers(lab.inner, VIP4) == "a" and who_answers(lab.inner, VIP6) == "a"
