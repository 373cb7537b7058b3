# SPDX-License-Identifier: Apache-2.0
"""The cells of `bench dns-stall`, and what must be shown of each; a row's percentiles are of all runs' requests together."""

import pytest

from bench import dns_stall
from bench.dns_stall import CELLS, REPEATED
from bench.histogram import Histogram

CELL = "2s-500ms-5000"


def row(mode: str, cell: str = CELL, p999_ms: float = 12.0, max_ms: float = 30.0, **counts: int) -> dict:
    return {"cell": cell, "mode": mode, "p99_ms": 11.0, "p999_ms": p999_ms, "max_ms": max_ms, "stalls_least": 15, "runs": 10, "not_held": 0,
            **dict.fromkeys(("lost", "wrong", "duplicates", "timeouts", "suspected"), 0), "hedges": 5, "extra_load_max": 0.05, **counts}


def missed(*rows: dict) -> list[str]:
    return [check.what for check in dns_stall.must_show(list(rows)) if not check.met]


def run(latencies_ms: list[float], stalls: int = 1) -> dict:
    latency = Histogram()
    for value in latencies_ms:
        latency.record(int(value * 1e6))
    return {**dict.fromkeys(dns_stall._SUMS, 0), "stalls": stalls, "extra_load": 0.0, "cpu_us_per_request": 1.0, "suspect_after_ms": 0.0,
            "config_hash": "h", "client": {"histograms": {"latency": latency.to_json()}}}


def test_every_stall_is_shorter_than_its_period_and_ends_with_it():
    assert len(REPEATED) == 33
    for name in REPEATED:
        stalls = CELLS[name].stalls
        assert 0 < stalls.first_after_s and stalls.first_after_s + stalls.for_s == stalls.every_s


def test_what_happens_in_two_runs_of_ten_is_in_the_rows_percentiles_and_its_maximum():
    made = dns_stall.row_of(CELL, "wheel", [run([1.0] * 100)] * 8 + [run([1.0] * 90 + [900.0] * 10)] * 2)
    assert made["p99_ms"] == pytest.approx(900, rel=0.01) and made["max_ms"] == pytest.approx(900)
    assert made["p50_ms"] == pytest.approx(1, rel=0.01)


def test_a_run_without_a_stall_is_not_hidden_by_the_others():
    assert dns_stall.row_of(CELL, "wheel", [run([1.0], stalls=30), run([1.0], stalls=0)])["stalls_least"] == 0
    assert missed(row("wheel", stalls_least=0)) == [f"{CELL}: stalls in each run"]
    assert missed(row("wheel", "stalled", stalls_least=0)) == ["stalled: stalls met by the wheel in each run"]


def test_a_good_cell_misses_nothing():
    assert missed(row("wheel"), row("app-cc", p999_ms=11.5), row("wheel", "stalled"), row("wheel", "slow")) == []
    assert missed(row("wheel", "stalled", runs=9)) == ["runs of each row"] and missed(row("wheel", runs=1)) == []


def test_each_bound_is_looked_at():
    assert missed(row("wheel", p999_ms=20.1)) == [f"{CELL}: p99.9 (delay + 10 ms)"]
    assert missed(row("wheel", max_ms=61)) == [f"{CELL}: worst (delay + 50 ms)"]
    for count in ("lost", "wrong", "duplicates"):
        assert missed(row("wheel", **{count: 1})) == [f"{CELL}: lost, wrong or twice"]
    for cell, worse in (("stalled", {"p99_ms": 12.1}), ("stalled", {"p999_ms": 25.1}), ("stalled", {"timeouts": 1}), ("slow", {"hedges": 0}),
                        ("slow", {"extra_load_max": 0.061}), ("slow", {"not_held": 1}), ("slow", {"suspected": 1})):
        assert len(missed(row("wheel", cell, **worse))) == 1, worse


def test_it_must_not_be_worse_than_a_client_that_hedges():
    assert missed(row("wheel", p999_ms=14), row("app-cc", p999_ms=12)) == [f"{CELL}: p99.9 beside the client's own hedging"]
    assert missed(row("wheel", max_ms=45), row("app-cc", max_ms=30)) == [f"{CELL}: worst beside the client's own hedging"]
