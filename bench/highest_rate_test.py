# SPDX-License-Identifier: Apache-2.0
"""The climb finds the edge, one hiccup does not end it, and a rate at which work is left out or late is not kept."""

import pytest

from bench.highest_rate import highest, is_kept

_GOOD = {"rate": 10_000, "achieved_rate": 9_990, "p99_us": 300.0, "lost": 0, "passed_through": 0}
_NONE_OF = ("lost", "passed_through")


def _climb(keeps) -> dict | None:
    return highest(lambda rate: {**_GOOD, "rate": rate, "achieved_rate": rate, "lost": int(not keeps(rate))}, _NONE_OF, 10_000, 10_000)


def test_the_climb_ends_within_three_percent_of_the_edge():
    assert 0.97 * 77_777 <= _climb(lambda rate: rate <= 77_777)["rate"] <= 77_777


def test_one_hiccup_does_not_end_the_climb():
    seen = []

    def keeps(rate: float) -> bool:
        seen.append(rate)
        return len(seen) != 2 and rate <= 50_000

    assert _climb(keeps)["rate"] > 48_000


def test_where_the_first_rate_is_too_high_it_steps_down():
    assert 2_400 < _climb(lambda rate: rate <= 3_000)["rate"] <= 3_000
    assert _climb(lambda _: False) is None


@pytest.mark.parametrize("trial", [
    {"lost": 1}, {"achieved_rate": 9_700},
    {"passed_through": 202_693},  # half of the requests were forwarded and not tracked
    {"p99_us": 30_000.0}, {"p99_us": 10_000.0}])  # most requests had their hedge fall due
def test_a_rate_at_which_work_is_left_out_or_late_is_not_kept(trial):
    assert is_kept(_GOOD, _NONE_OF, 10_000)
    assert not is_kept(_GOOD | trial, _NONE_OF, 10_000)
