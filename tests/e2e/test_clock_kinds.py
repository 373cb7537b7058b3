# SPDX-License-Identifier: Apache-2.0
"""Every kind of clock that a kernel offers: it fires in time, survives the loss of its queueing discipline, and rests.

A kernel without the queueing discipline of a kind is skipped; the lane of stock kernels (deploy/vm) has them all.
"""

import json
import subprocess
import time

import pytest

from harness.dns import UdpClient
from harness.product import DNS4, VIP4, wait_until

KINDS = ("htb", "fq")
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def clocked(product, servers, kind):
    """Up with this kind of clock, or skipped where the kernel has none."""
    product.measured_by_doctor(kind)
    return product.up(clock={"kind": kind, "tolerance": "100ms"})


@kinds
def test_a_hedge_leaves_when_it_is_due(lab, servers, clocked, kind):
    assert clocked.status()["clock"]["kind"] == kind
    before = clocked.fired()
    with UdpClient(lab.client, VIP4) as client:
        for query_id in range(100, 200):  # each earns a twentieth of a hedge
            assert client.ask(query_id, "n1.example.test") is not None
        waits_ms = []
        for query_id in range(4):
            servers["a"].stall()
            started = time.monotonic()
            assert client.ask(query_id, "n1.example.test", timeout_s=2) is not None
            waits_ms.append(1000 * (time.monotonic() - started))
            servers["a"].resume()
            time.sleep(0.05)
    assert 9.5 <= min(waits_ms) < 200, waits_ms  # the delay is 10 ms; a busy machine holds up some
    assert clocked.figure("hedges") + clocked.figure("failover_sends") >= 4
    assert clocked.fired() - before >= 4, "not by the clock"


@kinds
def test_a_nack_waits_for_no_lap(lab, servers, clocked, kind):
    """A refusal goes round the clock's link as it is, held back by nothing."""
    clocked.up(clock={"kind": kind, "tolerance": "100ms"}, services=clocked.services("dns", delay="4s", deadline="8s"))
    servers["a"].kill()
    with UdpClient(lab.client, VIP4) as client:
        assert client.ask(1, "n1.example.test", timeout_s=6) is not None
    assert clocked.figure("nacks_swallowed") == 1
    assert clocked.figure("hedges") == 0, "it waited for the delay"


@kinds
def test_the_clock_rests_when_nothing_waits_and_starts_again(lab, servers, clocked):
    with UdpClient(lab.client, VIP4) as client:
        for query_id in range(3):
            assert client.ask(query_id, "n1.example.test") is not None
            wait_until(lambda: not clocked.status()["clock"].get("running"), what="rest")
            laps = int(clocked.status()["clock"]["laps"])
            time.sleep(0.2)
            assert int(clocked.status()["clock"]["laps"]) == laps, "laps at rest"
    assert int(clocked.status()["clock"]["starts_from_rest"]) >= 3


@kinds
def test_a_clock_whose_queueing_discipline_is_taken_away_is_put_back(lab, servers, clocked, kind):
    lab.client.run(["tc", "qdisc", "del", "dev", "hr0c0", "root"])

    def shown() -> str:
        return lab.client.run(["tc", "qdisc", "show", "dev", "hr0c0"]).stdout

    wait_until(lambda: f"qdisc {kind} 1: root" in shown(), what="the queueing discipline")
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        # The packet went with the old one: a clock overdue by 100 ms is replaced.
        assert any(client.ask(query_id, "n1.example.test", timeout_s=0.5) for query_id in range(10))
    servers["a"].resume()


def test_a_kind_that_the_kernel_lacks_is_refused_by_name(product, servers):
    findings = json.loads(product.run("doctor", "--json").stdout)["findings"]
    lacking = [kind for kind in KINDS if any(finding["check"] == f"clock {kind}" and "has no sch_" in finding["detail"]
                                             for finding in findings)]
    for kind in lacking:
        done: subprocess.CompletedProcess = product.daemon(product.config(clock={"kind": kind}))
        assert done.returncode != 0
        assert f"clock's queueing discipline ({kind})" in done.stderr and "has no sch_" in done.stderr


def test_an_automatic_clock_takes_the_best_that_there_is(product, servers):
    findings = json.loads(product.run("doctor", "--json").stdout)["findings"]
    offered = {finding["check"].removeprefix("clock ") for finding in findings if "took" in finding["detail"]}
    best = next(kind for kind in ("fq", "htb") if kind in offered)
    assert product.up().status()["clock"]["kind"] == best
    assert product.figure("requests", DNS4) == 0
