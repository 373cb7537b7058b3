# SPDX-License-Identifier: Apache-2.0
"""What bench/ compares the wheel with: hr-delay-line hedges by the published technique, a clone of every request in a
queueing discipline.

A kernel without the queueing discipline is skipped; the lane of stock kernels (deploy/vm) has them all.
"""

import time

import pytest

from bench.delay_line import DelayLine
from deploy.lab import CommandFailed
from harness.dns import UdpClient
from harness.product import wait_until


@pytest.mark.parametrize("line", ("htb", "netem", "fq"))
def test_every_hedge_is_a_clone_that_waited(lab, servers, line):
    a, b = lab.replica("a"), lab.replica("b")
    service = {"name": "dns", "delay": "10ms",
               "backends": [{"name": host.name, "address": host.ipv4, "port": 53} for host in (a, b)]}
    hedging = DelayLine(lab.client, service, line, id_bytes=2)
    try:
        hedging.__enter__()
    except CommandFailed as why:
        if "the kernel has no sch_" not in str(why):
            raise
        pytest.skip(str(why).rsplit(": ", maxsplit=1)[-1])
    try:
        with UdpClient(lab.client, a.ipv4) as client:
            for query_id in range(100, 120):
                assert client.ask(query_id, "n1.example.test") is not None
            time.sleep(0.1)
            before = hedging.figures()
            assert before["hedges"] < 10, "answered in time, but for what a busy machine holds up"
            servers["a"].stall()
            waits_ms = []
            for query_id in range(20):
                started = time.monotonic()
                assert client.ask(query_id, "n1.example.test", timeout_s=2) is not None
                waits_ms.append(1000 * (time.monotonic() - started))
            # The delay is 10 ms; a busy machine holds up some.
            waits_ms.sort()
            assert waits_ms[0] >= 9.5 and waits_ms[10] < 200, waits_ms
            servers["a"].resume()
            wait_until(lambda: hedging.figures()["losers_dropped"] == 20 + before["hedges"], what="the losers' answers")
        figures = hedging.figures()
        assert figures["requests"] == 40
        assert figures["hedges"] - before["hedges"] == figures["won_by_hedge"] - before["won_by_hedge"] == 20
        assert figures["line_full"] == figures["hedges_failed"] == 0
    finally:
        hedging.__exit__()
    assert "hrl0" not in lab.client.run(["ip", "-o", "link"]).stdout
