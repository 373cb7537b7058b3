# SPDX-License-Identifier: Apache-2.0
"""Rows of `bench heartbeat` are medians with their spread and the worst of all maxima; what the kernel did not answer shows
nothing about it."""

import pytest

from bench import heartbeat
from bench.heartbeat import Cell
from bench.histogram import Histogram


def _run(p99_us: float = 10.0, max_us: float = 20.0, lost: int = 0, by_kernel: int | None = 1000) -> dict:
    return {"n": 1000, "lost": lost, "p50_us": 5.0, "p95_us": 8.0, "p99_us": p99_us, "max_us": max_us, "by_kernel": by_kernel,
            "xdp": "native XDP on eth0", "config_hash": "h"}


def _rows(runs: int = 10, **changes) -> list[dict]:
    """Just good enough; `changes` are of the row xdp, stress."""
    by_cell = {Cell("xdp", "idle"): _run(by_kernel=990), Cell("xdp", "stress"): _run(**{"by_kernel": 900, **changes}),
               Cell("echo", "idle"): _run(by_kernel=None), Cell("echo", "stress"): _run(p99_us=150.0, by_kernel=None)}
    return [heartbeat.row_of(cell, [each] * runs) for cell, each in by_cell.items()]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in heartbeat.must_show(rows) if not check.met]


def test_a_row_is_medians_with_their_spread_and_the_worst_maximum():
    row = heartbeat.row_of(Cell("xdp", "stress"), [_run(10.0, 20.0), _run(90.0, 500.0, lost=1), _run(12.0, 30.0)])
    assert (row["p99_us"], row["p99_us_min"], row["p99_us_max"], row["max_us"]) == (12.0, 10.0, 90.0, 500.0)
    assert (row["runs"], row["n"], row["lost"]) == (3, 3000, 1)
    assert row["by_kernel"] == pytest.approx(3000 / 2999)


def test_an_echo_is_not_answered_by_the_kernel_and_not_expected_to_be():
    assert heartbeat.row_of(Cell("echo", "idle"), [_run(by_kernel=None)])["by_kernel"] is None


def test_what_is_lost_has_waited():
    latency = Histogram()
    for _ in range(99):
        latency.record(5_000)
    found = heartbeat.figures({"answered": 99, "lost": 1, "others": 0, "latency": latency.to_json(), "send_lag": latency.to_json()})
    assert found["max_us"] == pytest.approx(1e6) and found["p99_us"] == pytest.approx(5.0, rel=0.01)
    assert found["n"] == 100


def test_limits_are_met_by_rows_that_are_just_good_enough():
    assert _missed(_rows()) == []


@pytest.mark.parametrize(("worse", "what"), [({"p99_us": 10.1}, "times that of XDP"), ({"by_kernel": 899}, "stress: share"),
                                             ({"lost": 1}, "without an answer")])
def test_each_limit_is_missed_by_a_little_less(worse, what):
    (missed,) = _missed(_rows(**worse))
    assert what in missed


def test_too_few_runs_or_rows_left_out_are_missed():
    assert _missed(_rows(runs=9)) == ["runs of each row"]
    assert len(_missed([])) == 5
