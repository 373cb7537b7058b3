# SPDX-License-Identifier: Apache-2.0
"""`hedgerow trace`: a request's whole way through the kernel, told to who asks and to nobody else, and never for longer
than somebody is there to hear it."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from harness.dns import UdpClient, query
from harness.product import BIN, DNS4, DNS6, VIP4, VIP6, answer_every_port_unreachable, wait_until
from harness.tracing import Trace, held_rings, lease_ns, lost, memory, tracing

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
LEASE_S = 2.0  # kTraceLease of proxy/trace/tracer.h


def kinds(request: dict) -> list[str]:
    return [event["kind"] for event in request["events"]]


def by_key(requests: list[dict], query_id: int) -> dict:
    (found,) = [request for request in requests if request["key"] == f"{query_id:04x}"]
    return found


def earn_hedges(client: UdpClient, proxy) -> int:
    """By so many requests. And a leader that is healthy at the end: on a busy machine it may have become suspect meanwhile."""
    for query_id in range(100, 1000):  # 5 % of 50 requests: two hedges
        assert client.ask(query_id, "n1.example.test") is not None
        if query_id >= 149 and all(service["backends"][0]["health"] == "healthy" for service in proxy.status()["services"]):
            return query_id - 99
    raise AssertionError(proxy.status()["services"])


@FAMILIES
def test_a_stalled_servers_request_is_traced_from_split_to_loser_dropped(lab, servers, proxy, vip, service):
    with UdpClient(lab.client, vip) as client, tracing(proxy, "--service", service, "--json") as trace:
        before = earn_hedges(client, proxy)
        servers["a"].stall()
        assert client.ask(0x2a01, "n1.example.test") is not None
        servers["a"].resume()
        hedged = proxy.figure("won_by_hedge", service) + proxy.figure("won_by_failover", service)  # on a busy machine others, too
        wait_until(lambda: proxy.figure("losers_dropped", service) == hedged, what="the losers' arrival")
        wait_until(lambda: any(request["key"] == "2a01" for request in trace.json()), what="the request's end")
        port = client.port
    request = by_key(trace.json(), 0x2A01)
    assert kinds(request) == ["split", "due", "hedge", "answer", "dropped"]
    split, due, hedge, answer, loser = request["events"]
    assert request["complete"] and request["outcome"] in ("hedge", "failover") and request["answered_by"] == "b"
    assert (request["service"], request["client_port"]) == (service, port)
    assert split["backend"] == "a" and split["due_ns"] == 10_000_000
    assert 10_000_000 <= due["since_ns"] <= hedge["since_ns"] <= answer["since_ns"] == request["latency_ns"]
    assert hedge["backend"] == answer["backend"] == answer["winner"] == "b"
    assert loser["backend"] == "a" and loser["reason"] == "loser" and loser["since_ns"] > answer["since_ns"]
    # The others were told whole, too.
    others = [each for each in trace.json() if each["key"] != "2a01"]
    assert len(others) == before and all(each["complete"] and kinds(each)[0] == "split" for each in others)
    assert sum(kinds(each) == ["split", "answer"] or each["answered_by"] == "b" for each in others) >= 40


def test_for_people_a_request_is_one_line(lab, servers, proxy):
    with UdpClient(lab.client, VIP4) as client, tracing(proxy, "--service", DNS4, "--hedged") as trace:
        earn_hedges(client, proxy)
        servers["a"].stall()
        assert client.ask(7, "n1.example.test") is not None
        servers["a"].resume()
        wait_until(lambda: any(" 0007 " in line for line in trace.lines()), what="the request's end")
        port = client.port
        lines = trace.end()  # by Ctrl-C, which is no failure
    assert len(lines) <= proxy.figure("extra_sends"), lines  # those of the fifty that were not hedged are not told: on a calm machine all but one
    (line,) = (line for line in lines if " 0007 " in line)
    for word in (DNS4, f"{lab.client.ipv4}:{port}", " 0007 ", " b |",
                 "0 to a", "answer of b", "loser a dropped"):
        assert word in line, line


def test_followed_events_come_one_by_one_as_they_happen(lab, servers, proxy):
    with UdpClient(lab.client, VIP4) as client, tracing(proxy, "--service", DNS4, "--follow", "--json") as trace:
        client.send(query(9, "n1.example.test"))
        wait_until(lambda: len(trace.lines()) >= 2, what="the events")
    events = trace.json()
    assert [event["kind"] for event in events] == ["split", "answer"]
    assert events[0]["request"] == events[1]["request"] and events[1]["state"] == "answered"


def test_count_and_duration_end_a_trace(lab, servers, proxy):
    with UdpClient(lab.client, VIP4) as client:
        trace = Trace(proxy, ("--service", DNS4, "--count", "3", "--json"))
        wait_until(lambda: lease_ns(proxy) > 0, what="the trace's start")
        for query_id in range(1, 9):
            assert client.ask(query_id, "n1.example.test") is not None
        assert trace.wait() == 0
        assert [request["key"] for request in trace.json()] == ["0001", "0002", "0003"]
    started = time.monotonic()  # at once: the daemon may have to notice first that the last client is gone
    assert proxy.admin("trace", "--for", "300ms").returncode == 0
    assert 0.3 <= time.monotonic() - started < 5
    assert proxy.admin("trace", "--for", "200ms").stdout == ""


@FAMILIES
def test_filters_tell_of_nobody_else(lab, servers, proxy, vip, service):
    other_vip, other = (VIP6, DNS6) if service == DNS4 else (VIP4, DNS4)
    with (UdpClient(lab.client, vip) as asked_about, UdpClient(lab.client, vip) as not_asked_about,
          UdpClient(lab.client, other_vip) as elsewhere):
        for client in (asked_about, not_asked_about, elsewhere):
            assert client.ask(1, "n1.example.test") is not None  # now they have ports
        words = ("--service", service, "--port", str(asked_about.port), "--key", "0a", "--json")
        with tracing(proxy, *words) as trace:
            for client in (not_asked_about, elsewhere, asked_about):
                assert client.ask(0x0A07, "n1.example.test") is not None
            assert asked_about.ask(0x0B07, "n1.example.test") is not None
            wait_until(lambda: trace.lines(), what="the one request")
        (request,) = trace.json()
        assert request["client_port"] == asked_about.port and request["key"] == "0a07"
        with tracing(proxy, "--service", other, "--client", "192.0.2.0/24" if ":" not in other_vip else "2001:db8::/32",
                     "--json") as trace:
            assert elsewhere.ask(2, "n1.example.test") is not None
            time.sleep(0.5)
        assert trace.lines() == []


def test_what_passes_through_says_why(lab, servers, proxy):
    proxy.admin("bypass", DNS4, "on")
    with UdpClient(lab.client, VIP4) as client, tracing(proxy, "--service", DNS4, "--json") as trace:
        assert client.ask(0x11, "n1.example.test") is not None
        wait_until(lambda: trace.lines(), what="the request")
    (request,) = trace.json()
    assert request["outcome"] == "passed" and request["reason"] == "bypass" and request["answered_by"] == "a"
    assert kinds(request) == ["passed", "answer"] and request["latency_ns"] > 0


def test_a_killed_servers_refusals_are_traced(lab, servers, proxy):
    answer_every_port_unreachable(lab.replica("a"))
    servers["a"].kill()
    with UdpClient(lab.client, VIP4) as client, tracing(proxy, "--service", DNS4, "--json") as trace:
        assert client.ask(5, "n1.example.test") is not None
        wait_until(lambda: trace.lines(), what="the request's end")
    (request,) = trace.json()
    assert request["outcome"] == "failover" and request["answered_by"] == "b"
    if "release" in kinds(request):  # else the leader was suspect already, and both were asked at once
        nack = next(event for event in request["events"] if event["kind"] == "nack")
        assert nack["icmp"] and nack["released"] and nack["backend"] == "a"


def test_the_rate_is_bounded_and_what_is_missing_is_said(lab, servers, proxy):
    with UdpClient(lab.client, VIP4) as client, tracing(proxy, "--service", DNS4, "--rate", "2", "--json") as trace:
        for query_id in range(1, 31):
            assert client.ask(query_id, "n1.example.test") is not None
        wait_until(lambda: "not shown so far" in trace.err.read_text(), what="the count of what is missing")
        assert lost(proxy)[0] > 0 and lost(proxy)[1] == 0
    assert 2 <= len(trace.lines()) <= 10


def test_without_a_tracer_no_event_is_written(lab, servers, proxy):
    with UdpClient(lab.client, VIP4) as client:
        assert client.ask(1, "n1.example.test") is not None
        before = memory(proxy)
        for query_id in range(50):
            assert client.ask(query_id, "n1.example.test") is not None
        assert memory(proxy) == before and lease_ns(proxy) == 0
        assert held_rings(proxy.pid) == 0
        with tracing(proxy, "--json"):  # the proof that the checks above can fail
            assert client.ask(1, "n1.example.test") is not None
            assert memory(proxy) != before and held_rings(proxy.pid) == 1


def test_one_traces_at_a_time_and_the_other_is_told(proxy):
    with tracing(proxy, "--json"):
        done = proxy.admin("trace", "--for", "1s", check=False)
        assert done.returncode == 1 and "another trace is open" in done.stderr
    assert proxy.admin("trace", "--for", "100ms").returncode == 0


@pytest.mark.parametrize("words, named, code", [
    (("--service", "nosuch"), "nosuch", 1),
    (("--backend", "nosuch"), "nosuch", 1),
    (("--client", "10.0.0.1/33"), "10.0.0.1/33", 2),
    (("--key", "2x"), "2x", 2),
    (("--slower-than", "soon"), "soon", 2),
    (("--count", "0"), "0", 2),
    (("--port", "70000"), "70000", 2),
])
def test_a_filter_that_means_nothing_is_refused_by_name(proxy, words, named, code):
    done = proxy.admin("trace", *words, check=False)
    assert done.returncode == code and named in done.stderr, done.stderr
    assert lease_ns(proxy) == 0


def test_a_killed_client_ends_its_trace_at_once(lab, servers, proxy):
    trace = Trace(proxy, ("--json",))
    wait_until(lambda: lease_ns(proxy) > 0, what="the trace's start")
    os.kill(trace.process.pid, signal.SIGKILL)
    trace.wait()
    wait_until(lambda: lease_ns(proxy) == 0, timeout_s=LEASE_S, what="the trace's end in the kernel")
    wait_until(lambda: held_rings(proxy.pid) == 0, what="the ring's end")


def test_a_trace_under_nohup_outlives_its_terminal(lab, servers, proxy, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        trace = lab.client.popen(["nohup", BIN / "hedgerow", "trace", "--json", "--for", "60s", "--socket", proxy.socket], stdout=out)
    wait_until(lambda: lease_ns(proxy) > 0, what="the trace's start")
    trace.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert trace.poll() is None and lease_ns(proxy) > 0
    assert lab.client.stop(trace, signal.SIGINT) == 0


@pytest.mark.own
def test_a_killed_daemons_trace_ends_with_its_lease(lab, servers, product):
    product.up()
    trace = Trace(product, ("--json",))
    wait_until(lambda: lease_ns(product) > 0, what="the trace's start")
    pid = product.pid
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    assert trace.wait() != 0, "the client is told"
    try:
        with UdpClient(lab.client, VIP4) as client:
            # The kernel part lives on, and the next request after the lease switches the trace off.
            while lease_ns(product) != 0:
                assert time.monotonic() < killed + LEASE_S + 2, "it goes on for ever"
                assert client.ask(1, "n1.example.test") is not None
                time.sleep(0.05)
            assert client.ask(2, "n1.example.test") is not None, "and hedging goes on"
    finally:
        product.clean()
        product.is_up = False


@pytest.mark.own
def test_down_ends_a_trace_and_says_so(lab, servers, product):
    product.up()
    trace = Trace(product, ("--json",))
    wait_until(lambda: lease_ns(product) > 0, what="the trace's start")
    product.finish()
    assert trace.wait() == 1
    assert "going down" in json.loads(trace.lines()[-1])["error"]


@FAMILIES
def test_tcpdump_reads_the_capture_file_of_a_trace(lab, servers, proxy, vip, service):
    """A hedged request as frames; each was made of an event, and its comment says of which."""
    file = proxy.folder / f"trace-{service}.pcapng"
    file.unlink(missing_ok=True)
    six = ":" in vip
    with (UdpClient(lab.client, vip) as client,
          tracing(proxy, "--service", service, "--key", "1234", "--pcap", str(file)) as trace):
        earn_hedges(client, proxy)
        servers["a"].stall()
        assert client.ask(0x1234, "n1.example.test") is not None
        servers["a"].resume()
        wait_until(lambda: trace.lines(), what="the request's end")
        port = client.port
    read = subprocess.run(["tcpdump", "-nnxr", file], capture_output=True, text=True, check=True, timeout=10)
    near = f"{lab.client.ipv6 if six else lab.client.ipv4}.{port}"
    a, b = (f"{host.ipv6 if six else host.ipv4}.53" for host in lab.replicas)
    frames = re.findall(r" IP6? (\S+ > \S+): .*\n((?:\t.*\n)+)", read.stdout)
    mark = f"{lab.client.ipv6 if six else lab.client.ipv4} > {vip}"  # the copy fell due: no packet moved
    assert [way for way, _ in frames] == [f"{near} > {a}", mark, f"{near} > {b}", f"{b} > {near}", f"{a} > {near}"], read.stdout
    assert all(digits.split()[-1] == "1234" for way, digits in frames if way != mark), read.stdout  # the query's id
    text = file.read_bytes().decode("latin-1")
    for comment in ("due, no answer yet; ", "answer of b; ", "loser a dropped; ", "key 1234, request "):
        assert comment in text, comment
    assert "Invalid" not in read.stdout and "invalid" not in read.stdout, read.stdout
    again = proxy.admin("trace", "--pcap", str(file), check=False)
    assert again.returncode == 1 and "exists: name a new file" in again.stderr
    piped = proxy.admin("trace", "--pcap", "-", "--json", check=False)
    assert piped.returncode == 2 and "expected one of them" in piped.stdout
