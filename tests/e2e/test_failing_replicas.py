# SPDX-License-Identifier: Apache-2.0
"""Replicas that stall, die or refuse: a client notices nothing while one of them lives, and is told when none does."""

import time

import pytest

from harness.capture import Capture
from harness.dns import UdpClient, dig, finish_dnsperf, parse, query, start_dnsperf, stop_dnsperf, who_answers
from harness.product import DNS4, DNS6, VIP4, VIP6, answer_every_port_unreachable, wait_until

BOTH = ((VIP4, DNS4), (VIP6, DNS6))
FAMILIES = pytest.mark.parametrize("vip, service", BOTH, ids=["ipv4", "ipv6"])


def test_dnsperf_loses_no_query_while_the_leader_is_stopped_for_a_while(lab, servers, proxy):
    loads = [start_dnsperf(lab.client, vip, seconds=4, rate=300) for vip, _ in BOTH]
    time.sleep(1)
    servers["a"].stall()
    time.sleep(1.5)
    servers["a"].resume()
    for (_, service), load in zip(BOTH, loads, strict=True):
        report = finish_dnsperf(load)
        assert report.lost == 0, report.text
        assert report.completed == report.sent
        hedged = proxy.figure("won_by_hedge", service) + proxy.figure("won_by_failover", service)
        assert hedged >= 225  # 1.5 s of 300/s, less what a busy machine did not send
        # The stopped server's socket buffers hold the copies it was sent; it answers them when it wakes.
        assert proxy.figure("losers_dropped", service) > 0


def test_dnsperf_loses_no_query_when_the_leader_is_killed(lab, servers, proxy):
    loads = [start_dnsperf(lab.client, vip, seconds=3, rate=300) for vip, _ in BOTH]
    time.sleep(1)
    servers["a"].kill()
    for (_, service), load in zip(BOTH, loads, strict=True):
        report = finish_dnsperf(load)
        assert report.lost == 0, report.text
        assert proxy.figure("nacks_swallowed", service) > 0  # the kernel said "port unreachable", and nobody else heard it
        assert proxy.figure("nacked", service) == 0


def test_dnsperf_loses_no_query_when_the_standby_is_killed(lab, servers, proxy):
    load = start_dnsperf(lab.client, VIP4, seconds=2, rate=400)
    time.sleep(0.5)
    servers["b"].kill()
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text
    assert proxy.figure("nacked") == 0


@pytest.mark.servers(a="nsd", b="knot")
def test_repeated_stalls_do_not_make_the_proxy_wait_longer_for_the_leader(lab, servers, proxy):
    load = start_dnsperf(lab.client, VIP4, seconds=5, rate=1000)
    for _ in range(8):  # three tenths of the time
        time.sleep(0.35)
        servers["a"].stall()
        time.sleep(0.15)
        servers["a"].resume()
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text
    leader = proxy.service_status()["backends"][0]
    # The delay stands in for what is not known yet: 30 ms. Learned from stalls it would be 450.
    assert int(leader["suspect_after_ns"]) < 100e6, leader
    assert proxy.figure("suspected") >= 8
    wait_until(lambda: proxy.status()["state"] == "running", what="the leader's recovery")
    said = proxy.log.read_text()
    assert "dns4: " in said and "suspect" in said


@FAMILIES
def test_a_stalled_leader_costs_one_question_the_delay_and_not_more(lab, servers, proxy, vip, service):
    with UdpClient(lab.client, vip) as client:
        for query_id in range(100, 150):  # 5 % of 50 requests: two hedges
            assert client.ask(query_id, "n1.example.test") is not None
        servers["a"].stall()
        started = time.monotonic()
        assert client.ask(1, "n1.example.test", timeout_s=5) is not None
        elapsed_ms = 1000 * (time.monotonic() - started)
    assert 9.5 <= elapsed_ms < 1000  # the delay is 10 ms; a busy machine may stand still meanwhile
    # A hedge, or failover where the leader's p99 is known already and it was silent for three times as long.
    assert proxy.figure("won_by_hedge", service) + proxy.figure("won_by_failover", service) == 1


@FAMILIES
def test_a_late_loser_never_reaches_the_client(lab, servers, proxy, vip, service):
    with Capture(lab.client, "eth0") as wire, Capture(lab.client, "hr0") as given:
        servers["a"].stall()
        with UdpClient(lab.client, vip) as client:
            for number in range(20):
                assert client.ask(number, f"n{number}.example.test") is not None
            servers["a"].resume()
            wait_until(lambda: proxy.figure("losers_dropped", service) > 0, what="the losers' arrival")
            assert client.receive_all(quiet_s=0.3) == []
            port = client.port
        replies = [d for d in wire.datagrams() if d.source_port == 53 and not d.outgoing]
        to_client = [d for d in given.datagrams() if d.source_port == 53 and d.destination_port == port]
    # The losers really came by the wire, and the proxy interface showed each question one answer. (The daemon tests its own way there, too.)
    assert len(replies) > 20
    assert sorted(parse(d.payload).id for d in to_client) == list(range(20))
    assert {d.source for d in to_client} == {vip}
    assert all(d.checksum_ok for d in to_client if d.checksum_complete)


def test_a_loser_later_than_the_retention_does_not_reach_the_client_either(lab, servers, product):
    """The request has no place any more, but what was asked of more than one replica is known for a minute."""
    product.up(services=product.services("dns", retention="100ms"))
    with (Capture(lab.client, "eth0") as wire, UdpClient(lab.client, VIP4) as four, UdpClient(lab.client, VIP6) as six):
        servers["a"].stall()
        for client in (four, six):
            for query_id in range(5):
                assert client.ask(query_id, "www.example.test") is not None
        wait_until(lambda: product.status()["maps"]["requests"]["used"] == 0, what="the retention's end")
        servers["a"].resume()
        assert four.receive_all(quiet_s=0.4) == [] and six.receive_all(quiet_s=0.1) == []
        late = {d.source for d in wire.datagrams() if d.source_port == 53 and not d.outgoing}
    assert {lab.replica("a").ipv4, lab.replica("a").ipv6} <= late  # they did come by the wire


@FAMILIES
def test_with_both_replicas_dead_the_client_is_told_at_once_in_the_vips_name(lab, servers, proxy, vip, service):
    answer_every_port_unreachable(lab.replica("a"), lab.replica("b"))
    servers["a"].kill()
    servers["b"].kill()
    with UdpClient(lab.client, vip) as client:
        client.send(query(7, "www.example.test"))
        started = time.monotonic()
        # A connected socket reports ICMP port unreachable only when the error names its own peer, the VIP.
        with pytest.raises(ConnectionRefusedError):
            client.receive(timeout_s=5)
        assert time.monotonic() - started < 1.8, "its deadline is 2 s"
    assert proxy.figure("nacked", service) == 1
    assert proxy.figure("icmp_translated", service) == 1
    assert "refused" in dig(lab.client, vip, "www.example.test").text


def test_with_both_replicas_stalled_the_client_times_out_and_the_books_say_so(lab, servers, product):
    product.up(services=product.services("dns", deadline="500ms", retention="200ms"))
    servers["a"].stall()
    servers["b"].stall()
    with UdpClient(lab.client, VIP4) as four, UdpClient(lab.client, VIP6) as six:
        for number in range(10):
            four.send(query(number, "www.example.test"))
            six.send(query(number, "www.example.test"))
        assert four.receive(timeout_s=0.7) is None and six.receive(timeout_s=0.01) is None
        for service in (DNS4, DNS6):
            wait_until(lambda service=service: product.figure("unanswered", service) == 10, what="the deadline's counting")
            assert product.figure("in_flight", service) == 0


def test_an_answer_after_the_deadline_still_reaches_the_client(lab, servers, product):
    product.up(services=product.services("dns", deadline="300ms", retention="5s"))
    servers["a"].stall()
    servers["b"].stall()
    with UdpClient(lab.client, VIP4) as four, UdpClient(lab.client, VIP6) as six:
        clients = {DNS4: four, DNS6: six}
        for client in clients.values():
            client.send(query(9, "www.example.test"))
        for service in clients:
            wait_until(lambda service=service: product.figure("unanswered", service) == 1)
        servers["b"].resume()
        for client in clients.values():
            answer = client.receive(timeout_s=2)
            assert answer is not None and parse(answer).id == 9
        servers["a"].resume()
        assert four.receive(timeout_s=0.3) is None and six.receive(timeout_s=0.01) is None  # the second late answer is a loser
    for service in clients:
        assert product.figure("late_answers", service) == 1


def test_a_long_dead_leader_is_left_alone_and_found_again_when_it_is_back(lab, servers, proxy):
    servers["a"].stall()
    load = start_dnsperf(lab.client, VIP4, seconds=3, rate=300)
    time.sleep(2)  # several election timeouts (300 ms)
    wait_until(lambda: proxy.service_status()["state"] == "down", what="steering to the standby")
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text
    servers["a"].resume()
    wait_until(lambda: who_answers(lab.client, VIP4) == "a", timeout_s=10, what="the leader's return")
    wait_until(lambda: proxy.service_status()["state"] == "healthy")


def test_a_killed_leader_that_is_started_again_leads_again(lab, servers, proxy):
    servers["a"].kill()
    for _ in range(5):
        assert who_answers(lab.client, VIP4) == "b"
    servers["a"].start()
    wait_until(lambda: who_answers(lab.client, VIP4) == "a", timeout_s=10, what="the leader's return")


@pytest.mark.own
def test_a_standby_that_is_back_is_found_while_the_leader_serves(lab, servers, product):
    product.up(services=[product.service("dns4", delay="50ms")])  # a hedge on a busy machine would find it, too
    servers["b"].kill()
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        for query_id in range(3):
            client.ask(query_id, "www.example.test", timeout_s=0.2)
    servers["a"].resume()
    wait_until(lambda: who_answers(lab.client, VIP4) and
               [each["health"] for each in product.service_status()["backends"]] == ["healthy", "down"], what="a dead standby")
    servers["b"].start()
    hedges = product.figure("hedges")
    load = start_dnsperf(lab.client, VIP4, seconds=30, rate=50)
    wait_until(lambda: product.service_status()["backends"][1]["health"] == "healthy", timeout_s=8, what="the standby's return")
    assert product.status()["problems"] == []
    assert stop_dnsperf(load).lost == 0 and product.figure("hedges") == hedges
    assert product.figure("probes") > 0


def test_a_cut_wire_to_the_leader_is_like_a_stalled_leader(lab, servers, proxy):
    assert who_answers(lab.client, VIP4) == "a"
    lab.cut("a")
    report = finish_dnsperf(start_dnsperf(lab.client, VIP4, seconds=2, rate=200))
    assert report.lost == 0, report.text
    lab.heal("a")
    wait_until(lambda: who_answers(lab.client, VIP4) == "a", timeout_s=15, what="the leader's return")


@pytest.mark.servers(a="dnsmasq", b="unbound")
def test_a_refusal_of_one_replica_is_replaced_by_the_answer_of_the_other(lab, servers, proxy):
    # dnsmasq refuses what is outside its zone; unbound answers "localhost" by itself.
    direct = [dig(lab.client, lab.replica(name).ipv4, "localhost.", "A") for name in "ab"]
    assert direct[0].status == "REFUSED" and direct[1].status == "NOERROR"
    answer = dig(lab.client, VIP4, "localhost.", "A")
    assert answer.status == "NOERROR" and answer.records == ["127.0.0.1"]
    assert proxy.figure("nacks_swallowed") == 1 and proxy.figure("won_by_failover") == 1
    assert proxy.figure("hedges") == 0  # a refusal is failover: the budget is not for it


def test_a_hedge_past_the_budget_is_not_made_and_counted(lab, servers, product):
    product.up(services=product.services("dns", budget="10%", suspect_min="10s"))
    with UdpClient(lab.client, VIP4) as client:
        for query_id in range(100, 130):  # three hedges earned; the ten below earn a fourth
            assert client.ask(query_id, "www.example.test") is not None
        servers["a"].stall()
        for query_id in range(10):
            client.send(query(query_id, "www.example.test"))
        answered = {parse(payload).id for payload in client.receive_all(quiet_s=0.4)}
        assert len(answered) == 4
        assert product.figure("hedges") == 4 and product.figure("no_budget") == 6
        servers["a"].resume()  # the rest is the leader's, late but in time
        assert len(client.receive_all(quiet_s=0.3)) == 6
    assert product.figure("won_by_hedge") == 4 and product.figure("won_by_first") == 36
