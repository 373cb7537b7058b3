# SPDX-License-Identifier: Apache-2.0
"""Engine qdisc: a clone of every request in a delay line. To a client it does what the wheel does.

A kernel without the queueing discipline of a line is skipped; the lane of stock kernels (deploy/vm) has them all.
"""

import json
import time

import pytest

from harness.dns import UdpClient, finish_dnsperf, start_dnsperf
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until

LINES = ("htb", "netem", "fq")
lines = pytest.mark.parametrize("line", LINES)


@pytest.fixture
def cloning(product, servers, line):
    """Up with this delay line, or skipped where the kernel has none."""
    product.measured_by_doctor(f"engine qdisc-{line}")
    return product.up(parking={"engine": "qdisc", "line": line})


@lines
def test_a_stalled_leader_costs_the_delay_and_no_answer_is_lost(lab, servers, cloning, line):
    assert cloning.status()["engine"] == f"qdisc-{line}"
    before = {service: cloning.fired(service) for service in (DNS4, DNS6)}
    for vip in (VIP4, VIP6):
        with UdpClient(lab.client, vip) as client:
            for query_id in range(100, 150):  # 5 % of 50 requests: two hedges
                assert client.ask(query_id, "n1.example.test") is not None
            servers["a"].stall()
            started = time.monotonic()
            assert client.ask(1, "n1.example.test", timeout_s=1) is not None
            elapsed_ms = 1000 * (time.monotonic() - started)
            assert 9.5 <= elapsed_ms < 200  # the delay is 10 ms; the upper bound leaves room for a busy machine
            servers["a"].resume()
            time.sleep(0.05)
    assert all(cloning.fired(service) > count for service, count in before.items()), "not by the delay line"
    wait_until(lambda: cloning.figure("losers_dropped") >= 1, what="the loser's answer")


@lines
def test_every_hedge_is_a_clone_that_waited(lab, servers, cloning, line):
    """With nobody ever SUSPECT, only the delay line can have saved these."""
    cloning.up(parking={"engine": "qdisc", "line": line},
               services=cloning.services("dns", suspect_min="10s", budget="100%"))
    before = cloning.fired()
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        for query_id in range(20):
            assert client.ask(query_id, "n1.example.test", timeout_s=1) is not None
    servers["a"].resume()
    assert cloning.figure("hedges") == cloning.figure("won_by_hedge") == cloning.fired() - before == 20
    assert cloning.figure("failover_sends") == 0


@lines
def test_dnsperf_loses_no_query_while_the_leader_is_stopped_for_a_while(lab, servers, cloning, line):
    load = start_dnsperf(lab.client, VIP4, seconds=3, rate=400)
    time.sleep(1)
    servers["a"].stall()
    time.sleep(1)
    servers["a"].resume()
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text
    assert cloning.figure("won_by_hedge") + cloning.figure("won_by_failover") >= 100
    assert cloning.figure("delay_line_full") == 0


@lines
def test_a_delay_line_that_is_taken_away_is_put_back(lab, servers, cloning, line):
    lab.client.run(["tc", "qdisc", "del", "dev", "hr0d0", "root"])
    root = {"netem": "prio"}.get(line, line)

    def shown() -> str:
        return lab.client.run(["tc", "qdisc", "show", "dev", "hr0d0"]).stdout

    wait_until(lambda: f"qdisc {root} 1: root" in shown(), what="the queueing discipline")
    with UdpClient(lab.client, VIP4) as client:
        assert client.ask(1, "n1.example.test") is not None


def test_what_a_delay_line_cannot_do_is_a_configuration_error(product, servers):
    many = product.config(parking={"engine": "qdisc", "line": "htb"}, services=[
        product.service("dns4", attempts=3)])
    done = product.daemon(many)
    assert done.returncode != 0 and "services[0].attempts" in done.stderr and "at most 2" in done.stderr


def test_a_line_that_the_kernel_lacks_is_refused_by_name(product, servers):
    findings = json.loads(product.run("doctor", "--json").stdout)["findings"]
    for line in LINES:
        found = next(finding["detail"] for finding in findings if finding["check"] == f"engine qdisc-{line}")
        if "has no sch_" not in found:
            continue
        done = product.daemon(product.config(parking={"engine": "qdisc", "line": line}))
        assert done.returncode != 0
        assert f"the delay line ({line})" in done.stderr and "has no sch_" in done.stderr


def test_the_default_is_the_wheel_and_makes_no_delay_line(lab, servers, proxy):
    assert proxy.status()["engine"] == "wheel"
    assert "hr0d0" not in lab.client.run(["ip", "-o", "link"]).stdout
    assert proxy.figure("requests", DNS4) == 0
