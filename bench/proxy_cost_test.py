# SPDX-License-Identifier: Apache-2.0
"""Limits of `bench proxy-cost` compare the right rows; added CPU is paired by round."""

import pytest

from bench import proxy_cost
from bench.histogram import Histogram


def _run(rate: float = 10_000, p50_us: float = 60.0, cpu_us: float = 20.0, lost: int = 0, passed: int = 0) -> dict:
    latency = Histogram()
    for _ in range(100):
        latency.record(int(p50_us * 1000))
    return {"rate": rate, "n": 100, "lost": lost, "wrong": 0, "passed_through": passed, "achieved_rate": rate,
            "client": {"histograms": {"latency": latency.to_json()}},
            "cpu_us_per_request": cpu_us, "kernel_us_per_request": 5.0, "rss_bytes": 10, "map_bytes": 0, "config_hash": "h"}


def _round(hedgerow: dict | None = None, nginx_us: float = 40.0, highest: float = 100_000.0) -> dict:
    fixed = {variant: _run() for variant in proxy_cost.RATES}
    return {"direct": {**fixed, "highest": _run(rate=110_000)},
            "hedgerow": {**{variant: _run(**{"p50_us": 65.0, "cpu_us": 22.0, **(hedgerow or {})})
                            for variant in proxy_cost.RATES}, "highest": _run(rate=highest)},
            "nginx": {**{variant: _run(cpu_us=nginx_us) for variant in proxy_cost.RATES}, "highest": _run(rate=45_000)}}


def _missed(rounds: list[dict]) -> list[str]:
    records = [{"round": number, "system": system, "server": "nsd", "runs": runs, "config_hash": "h"}
               for number, done in enumerate(rounds, 1) for system, runs in done.items()]
    rows = proxy_cost.rows_of(records)
    return [check.what for check in proxy_cost.must_show(rows) if not check.met]


def test_what_is_good_enough_is_met():
    assert _missed([_round()] * 10) == []


@pytest.mark.parametrize("rounds, missed", [
    ([_round()] * 9, "runs of each row"),
    ([_round(hedgerow={"p50_us": 70.0})] * 10, "2000/s: hedgerow's p50 / direct"),
    ([_round(hedgerow={"cpu_us": 25.0})] * 10, "2000/s: CPU that hedgerow adds (a fifth of nginx's)"),
    ([_round(nginx_us=28.0)] * 10, "2000/s: CPU that hedgerow adds (a fifth of nginx's)"),
    ([_round(hedgerow={"lost": 1})] * 10, "2000/s: requests lost behind hedgerow"),
    ([_round(hedgerow={"passed": 1})] * 10, "2000/s: requests that hedgerow did not track"),
    ([_round(highest=89_000)] * 10, "highest rate: hedgerow / nginx"),
    ([_round(highest=98_000)] * 10, "highest rate: hedgerow / direct"),
])
def test_each_limit_can_be_missed(rounds, missed):
    assert missed in _missed(rounds)


def test_a_system_that_was_left_out_meets_no_limit():
    rounds = [{"direct": _round()["direct"], "hedgerow": _round()["hedgerow"]}] * 10
    assert "highest rate: hedgerow / nginx" in _missed(rounds)


def test_added_cpu_is_paired_by_round():
    """A round on a slower machine (everything takes 100 us more) changes nothing."""
    slow = _round()
    for runs in slow.values():
        for one in runs.values():
            one["cpu_us_per_request"] += 100
    assert proxy_cost.added_us([_round(), slow], "hedgerow", "2000") == [2.0, 2.0]
