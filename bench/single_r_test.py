# SPDX-License-Identifier: Apache-2.0
"""SingleR's arithmetic: where the best policy is known, it is found, and the bucket allows what it holds."""

import random

import pytest

from bench import single_r
from bench.single_r import Times


def test_quantiles_are_values_that_were_measured():
    ordered = [float(value) for value in range(1, 101)]
    assert single_r.quantile(ordered, 0.99) == 99 and single_r.quantile(ordered, 0.5) == 50
    assert single_r.quantile([7.0], 0.99) == 7


def test_the_tail_is_the_better_of_both_copies():
    """Copies at once, always: P(both slower) is the square."""
    values = [float(value) for value in range(1, 1001)]
    assert single_r.tail_of(Times(values), Times(values), 0, 1, 0.99) == pytest.approx(900, abs=1)
    assert single_r.tail_of(Times(values), Times(values), 0, 0, 0.99) == pytest.approx(990, abs=1)
    assert single_r.tail_of(Times(values), Times(values), 2000, 1, 0.99) == pytest.approx(990, abs=1)


def test_a_stall_is_best_hedged_as_soon_as_it_can_be_told():
    """2 ms, or 400 for 2 % of the requests: any delay from 2 ms on is sent for those alone, and the shortest is best."""
    first, second = [2.0] * 980 + [400.0] * 20, [2.0] * 1000
    best = single_r.best_single_r(Times(first), Times(second), 0.02, 0.99)
    assert (best.delay_ms, best.probability) == (2.0, pytest.approx(1.0)) and best.tail_ms == pytest.approx(4.0)


def test_a_budget_below_the_tail_is_spent_with_a_probability():
    """Of 10 % that are slow, p95 needs only half to be hedged; a delay alone would hedge the slowest, which decides nothing."""
    draw = random.Random(1)
    first = [1.0] * 900 + [draw.uniform(100, 200) for _ in range(100)]
    second = [1.0] * 1000
    extra_load = 0.055
    best = single_r.best_single_r(Times(first), Times(second), extra_load, 0.95)
    assert best.probability == pytest.approx(0.55) and best.tail_ms == pytest.approx(2.0)
    waits = single_r.adaptive_with_bucket(first, Times(second), extra_load, 50, 0.95)
    assert waits.tail_ms > 100


def test_it_never_spends_more_than_it_may_and_is_never_worse_than_the_delay_alone():
    draw = random.Random(2)
    first, second = [1 + draw.expovariate(2) for _ in range(5000)], [1 + draw.expovariate(2) for _ in range(5000)]
    for share in (0.95, 0.99, 0.999):
        best = single_r.best_single_r(Times(first), Times(second), 0.05, share)
        alone = single_r.quantile(sorted(first), 0.95)
        assert best.extra_load <= 0.05 + 1e-9
        assert best.tail_ms <= single_r.tail_of(Times(first), Times(second), alone, 1, share) + 1e-6


def test_the_bucket_starts_empty_saves_up_to_its_burst_and_then_refuses():
    quiet, slow = [1.0] * 1900, [100.0] * 100
    found = single_r.adaptive_with_bucket(quiet + slow, Times([1.0]), 0.05, 50, 0.99)
    assert found.delay_ms == 1.0 and found.extra_load == pytest.approx(54.5 / 2000, abs=0.6 / 2000)
    first_of_all = single_r.adaptive_with_bucket(slow + quiet, Times([1.0]), 0.05, 50, 0.99)
    assert first_of_all.extra_load == pytest.approx(5 / 2000, abs=1 / 2000)


def test_a_row_says_by_how_much_it_would_win():
    draw = random.Random(3)
    first, second = ([1 + draw.expovariate(2) for _ in range(20_000)] for _ in range(2))
    row = single_r.compare(first, second, 0.05, 50)
    assert row["p99_gain"] == pytest.approx(1 - row["p99_ms"] / row["p99_adaptive_ms"])
    assert 0 <= row["p99_gain"] < 0.1 and row["delay_ms"] < row["adaptive_delay_ms"] and row["probability"] < 1
