# SPDX-License-Identifier: Apache-2.0
"""Rows of `bench observe` compare each round with itself, and its limits are met by the right rows only."""

import pytest

from bench import observe

_SEEN = {"metrics": 300, "page": 300}


def _slices(rate: float, lost: int = 0) -> list[dict]:
    return [{"rate": rate, "n": 1000, "wall_s": 1000 / rate, "lost": lost, "cpu_us_per_request": 10.0, "p50_ms": 0.1,
             "p99_ms": 0.2}] * 2


def _rows(watched: float, traced: float, runs: int = 10, lost: int = 0, seen: dict | None = None) -> list[dict]:
    """Rounds on a machine whose speed wanders: what is lost is a share of each round's own."""
    rounds = [{"alone": _slices(speed), "watched": _slices(speed * (1 - watched), lost),
               "traced": _slices(speed * (1 - traced))}
              for speed in (100_000 + 9_000 * (number % 3) for number in range(runs))]
    return [observe.row_of(mode, rounds, [seen or _SEEN], "h") for mode in ("alone", "watched", "traced")]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in observe.must_show(rows) if not check.met]


def test_a_loss_is_that_of_the_same_round():
    alone, watched, traced = _rows(0.005, 0.02)
    assert alone["loss"] == 0
    assert watched["loss"] == pytest.approx(0.005) and watched["loss_max"] == pytest.approx(0.005)
    assert traced["loss"] == pytest.approx(0.02)
    assert alone["rate_max"] > 1.15 * alone["rate_min"]


def test_limits_are_met_by_ten_rounds_that_lose_little():
    assert _missed(_rows(0.009, 0.029)) == []
    assert _missed(_rows(0.009, 0.029, runs=9)) == ["runs of each row"]


def test_what_is_too_much_is_missed():
    assert _missed(_rows(0.011, 0.0)) == ["metrics and page each second: share of throughput lost"]
    assert _missed(_rows(0.0, 0.031)) == ["traced, nothing matches: share of throughput lost"]
    assert _missed(_rows(0.0, 0.0, lost=1)) == ["lost requests"]


def test_a_page_that_was_never_served_shows_nothing():
    assert _missed(_rows(0.0, 0.0, seen={"metrics": 300})) == ["answers for the page that were served"]
