# SPDX-License-Identifier: Apache-2.0
"""Rows of `bench heartbeat` are of all runs together, with their spread; what the kernel did not answer shows
nothing about it."""

import pytest

from bench import heartbeat
from bench.histogram import Histogram


def _run(p99_us: float = 10.0, max_us: float = 20.0, lost: int = 0, by_kernel: int | None = 1000) -> dict:
    latency = Histogram()
    for value in [5.0] * 900 + [p99_us] * 99 + [max_us]:
        latency.record(int(value * 1000))
    for _ in range(lost):
        latency.record(1_000_000_000)
    client = {"summary": {"n": 1000, "lost": lost, "stray": 0, "duplicates": 0, "send_lag_p99_us": 1.0},
              "histograms": {"latency": latency.to_json()}}
    return {**heartbeat.figures(client), "client": client, "by_kernel": by_kernel, "xdp": "native XDP on eth0", "config_hash": "h"}


def _rows(runs: int = 10, **changes) -> list[dict]:
    """Just good enough; `changes` are of the row xdp, stress."""
    by_cell = {("idle", "xdp"): _run(by_kernel=990), ("stress", "xdp"): _run(**{"by_kernel": 900, **changes}),
               ("idle", "echo"): _run(by_kernel=None), ("stress", "echo"): _run(p99_us=151.0, max_us=160.0, by_kernel=None)}
    return [heartbeat.row_of(*cell, [each] * runs) for cell, each in by_cell.items()]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in heartbeat.must_show(rows) if not check.met]


def test_a_row_is_of_all_questions_together_with_the_spread_of_the_runs():
    row = heartbeat.row_of("stress", "xdp", [_run(10.0, 20.0), _run(90.0, 500.0, lost=1), _run(12.0, 30.0)])
    assert row["p99_us"] == pytest.approx(90, rel=0.01) and row["max_us"] == 1e6, "one was lost, and waited a second"
    assert (row["p99_us_min"], row["p99_us_max"]) == (pytest.approx(10, rel=0.01), pytest.approx(90, rel=0.01))
    assert (row["runs"], row["n"], row["lost"]) == (3, 3000, 1)
    assert row["by_kernel"] == pytest.approx(3000 / 2999)


def test_an_echo_is_not_answered_by_the_kernel_and_not_expected_to_be():
    assert heartbeat.row_of("idle", "echo", [_run(by_kernel=None)])["by_kernel"] is None


def test_limits_are_met_by_rows_that_are_just_good_enough():
    assert _missed(_rows()) == []


@pytest.mark.parametrize(("worse", "what"), [({"p99_us": 10.3}, "times that of XDP"), ({"by_kernel": 899}, "stress: share"),
                                             ({"lost": 1}, "without an answer")])
def test_each_limit_is_missed_by_a_little_less(worse, what):
    (missed,) = _missed(_rows(**worse))
    assert what in missed


def test_too_few_runs_or_rows_left_out_are_missed():
    assert _missed(_rows(runs=9)) == ["runs of each row"]
    assert len(_missed([])) == 5
