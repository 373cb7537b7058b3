# SPDX-License-Identifier: Apache-2.0
"""The highest rate that a system keeps, as parking, proxy-cost and steer look for it: nothing lost, all of the work done (a request that
a proxy forwards untracked costs it less), answers in time, and the generator at its own times.
"""

from collections.abc import Callable, Sequence

CLIMB_TO = 2_000_000  # requests per second
_CLIMB, _REFINE = 1.25, 3  # halvings between the last good rate and the first bad one: within 3 %
_TRIES = 2  # a rate is too high when it fails this often in a row: one stray hiccup does not end the climb
_LEAST = 500


def is_kept(trial: dict, none_of: Sequence[str], in_time_us: float) -> bool:
    """`none_of`: counts of the trial that must be 0. A p99 of `in_time_us` is late."""
    return (not any(trial[key] for key in none_of) and trial["p99_us"] < in_time_us
            and trial["achieved_rate"] > 0.98 * trial["rate"])


def highest(trial_at: Callable[[int], dict], none_of: Sequence[str], in_time_us: float, first: float,
            climb_to: float = CLIMB_TO) -> dict | None:
    """The trial at the highest rate that was kept: climbs from `first`, or steps down to a rate that is kept, and halves what lies between.
    None where no rate is kept."""
    def attempt(rate: float) -> dict | None:
        for _ in range(_TRIES):
            if is_kept(trial := trial_at(round(rate)), none_of, in_time_us):
                return trial
        return None

    best, bad, rate = None, None, first
    while bad is None and rate < climb_to:
        if (trial := attempt(rate)) is None:
            bad = rate
        else:
            best, rate = trial, rate * _CLIMB
    while best is None:
        bad, rate = rate, rate / _CLIMB
        if rate < _LEAST:
            return None
        best = attempt(rate)
    for _ in range(_REFINE if bad is not None else 0):
        middle = (best["rate"] + bad) / 2
        if (trial := attempt(middle)) is None:
            bad = middle
        else:
            best = trial
    return best
