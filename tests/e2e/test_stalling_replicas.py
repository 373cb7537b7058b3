# SPDX-License-Identifier: Apache-2.0
"""Replicas stall in turns under load on both families. Whatever races it provokes, no query is lost while
one replica lives, every request is accounted for, and every slot of every map comes back."""

import time

import pytest

from harness.dns import finish_dnsperf, start_dnsperf
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until


def flap(servers, seconds: float) -> None:
    """Each replica in turn is stopped for a while; never both, and with a breath of air between."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for server in servers.values():
            server.stall()
            time.sleep(0.08)
            server.resume()
            time.sleep(0.04)


def wait_until_requests_come_back(product) -> None:
    """All but those nobody answered: they stay known for as long as an answer may still come (10 s)."""
    def nothing_but_unanswered() -> bool:
        unanswered = product.figure("unanswered", DNS4) + product.figure("unanswered", DNS6)
        return product.status()["maps"]["requests"]["used"] <= unanswered

    wait_until(nothing_but_unanswered, timeout_s=8, what="the requests' return")


def check_everything_comes_back(product, *reports) -> None:
    wait_until_requests_come_back(product)
    assert product.status()["maps"]["parked"]["used"] == 0
    product.check_identity()
    for service, report in zip((DNS4, DNS6), reports, strict=True):
        assert product.figure("requests", service) == report.sent, report.text
        assert product.figure("in_flight", service) == 0


def test_replicas_that_stall_in_turns_lose_no_query(lab, servers, product):
    product.up()
    loads = [start_dnsperf(lab.client, vip, seconds=4, rate=800) for vip in (VIP4, VIP6)]
    flap(servers, 3.5)
    reports = [finish_dnsperf(load) for load in loads]
    assert [report.lost for report in reports] == [0, 0], reports[0].text + reports[1].text
    check_everything_comes_back(product, *reports)
    assert product.figure("won_by_failover") + product.figure("won_by_hedge") > 100


@pytest.mark.parametrize("limits", [{"requests": 64}, {"parked": 64}, {"flows": 64}],
                         ids=["scoreboard", "pool", "flows"])
def test_full_maps_and_stalling_replicas_keep_the_books(lab, servers, product, limits):
    """Here queries may be lost: what is not tracked is not hedged. But none may be forgotten."""
    product.up(limits=limits, services=product.services("dns", deadline="500ms", retention="300ms"))
    loads = [start_dnsperf(lab.client, vip, seconds=2, rate=800, clients=20) for vip in (VIP4, VIP6)]
    flap(servers, 1.5)
    reports = [finish_dnsperf(load) for load in loads]
    check_everything_comes_back(product, *reports)
    # With maps that full the service still went on.
    assert all(report.completed > 0.6 * report.sent for report in reports), reports[0].text + reports[1].text


def test_replicas_killed_and_started_again_under_load_lose_no_query(lab, servers, product):
    product.up()
    load = start_dnsperf(lab.client, VIP4, seconds=4, rate=400)
    for name in ("a", "b"):
        time.sleep(0.4)
        servers[name].kill()
        time.sleep(0.4)
        servers[name].start()
        time.sleep(0.4)
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text
    wait_until_requests_come_back(product)
    assert product.figure("requests") == report.sent
