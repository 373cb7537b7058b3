# SPDX-License-Identifier: Apache-2.0
"""DNS as users speak it, through the VIP: dig over UDP and TCP, truncated, fragmented, on both families, and ping."""

import pytest

from harness.dns import dig, finish_dnsperf, start_dnsperf, who_answers
from harness.product import DNS4, DNS6, METRICS, VIP4, VIP6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])


@pytest.fixture
def unhurried(product):
    """A leader that a busy machine keeps from answering for a moment is not hedged."""
    return product.up(services=product.services("dns", delay="1s"))


@FAMILIES
def test_dig_gets_every_kind_of_record_from_the_leader(lab, unhurried, vip, service):
    assert dig(lab.client, vip, "www.example.test", "A").records == ["192.0.2.1"]
    assert dig(lab.client, vip, "www.example.test", "AAAA").records == ["2001:db8::1"]
    assert who_answers(lab.client, vip) == "a"
    assert dig(lab.client, vip, "no.example.test").status == "NXDOMAIN"
    assert unhurried.figure("won_by_first", service) == 4
    assert unhurried.figure("hedges", service) == 0


@FAMILIES
def test_dig_tcp_goes_to_the_leader(lab, unhurried, vip, service):
    assert who_answers(lab.client, vip, "+tcp") == "a"
    big = dig(lab.client, vip, "big.example.test", "TXT", "+tcp")
    assert len(big.records) == 12 and big.size_bytes > 2500
    assert unhurried.figure("tcp_packets", service) > 0
    assert unhurried.figure("requests", service) == 0  # TCP is not hedged and not accounted as a request


@FAMILIES
def test_an_answer_over_512_bytes_is_truncated_and_dig_comes_back_by_tcp(lab, unhurried, vip, service):
    truncated = dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=512", "+ignore")
    assert truncated.flag("tc") and truncated.size_bytes <= 512
    retried = dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=512")
    assert retried.truncated_and_retried and len(retried.records) == 12
    assert unhurried.figure("won_by_first", service) == 2


@FAMILIES
def test_an_answer_of_several_fragments_arrives_whole(lab, unhurried, vip, service):
    for _ in range(5):
        big = dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=4096", "+ignore", "+notcp")
        assert not big.flag("tc") and len(big.records) == 12 and big.size_bytes > 1500
    assert unhurried.figure("later_fragments", service) >= 5
    assert unhurried.figure("won_by_first", service) == 5


@FAMILIES
def test_a_fragmented_answer_of_the_standby_arrives_whole_when_the_leader_stalls(lab, servers, proxy, vip, service):
    servers["a"].stall()
    big = dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=4096", "+ignore", "+notcp")
    assert len(big.records) == 12 and big.size_bytes > 1500
    servers["a"].resume()
    wait_until(lambda: proxy.figure("losers_dropped", service) > 0, what="the late loser's arrival")


def test_dnsperf_in_quiet_times_loses_nothing_and_hedges_next_to_nothing(lab, proxy):
    report = finish_dnsperf(start_dnsperf(lab.client, VIP4, seconds=2, rate=500))
    assert report.lost == 0 and report.completed >= 0.9 * 1000, report.text
    assert proxy.figure("requests") == report.sent
    # A busy machine may delay an answer past the hedge delay now and then; the budget bounds it.
    assert proxy.figure("hedges") <= 0.05 * report.sent + 50


def test_a_name_outside_the_zone_is_refused_by_both_and_the_client_is_told(lab, proxy):
    assert dig(lab.client, VIP4, "www.elsewhere.test").status == "REFUSED"
    assert proxy.figure("nacked") == 1
    assert proxy.figure("nacks_swallowed") == 1


@FAMILIES
def test_ping_of_the_vip_is_answered(lab, product, servers, vip, service):
    proxy = product.up(metrics=METRICS)
    before = proxy.metric("hedgerow_pings_total")
    text = lab.client.run(["ping", "-c5", "-i0.05", "-W1", vip]).stdout
    assert "5 received" in text and f"from {vip}" in text
    assert proxy.metric("hedgerow_pings_total") == before + 5


@pytest.mark.servers(a="unbound", b="dnsmasq")
@FAMILIES
def test_two_other_servers_behave_alike(lab, proxy, vip, service):
    assert who_answers(lab.client, vip) == "a"
    assert len(dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=4096", "+ignore").records) == 12
    assert dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=512").truncated_and_retried


@pytest.mark.servers()
def test_ping_of_the_vip_is_answered_although_no_backend_lives(lab, product, servers):
    product.up()
    for vip in (VIP4, VIP6):
        assert "1 received" in lab.client.run(["ping", "-c1", "-W1", vip]).stdout
