# SPDX-License-Identifier: Apache-2.0
"""What a second copy with a probability would give (SingleR: Kaler, He, Elnikety, SIGMETRICS 2017), computed from measured
answer times: after a delay the copy is sent with a probability, so that the delay may be shorter than the budget would allow
for all. Compared with the adaptive delay and its token bucket, at the same extra load. Used by bench/adaptive.py; by hand
for a run that is there: `/usr/bin/python3 -m bench.single_r results/adaptive`.

First and second copies are taken for independent, as those of two replicas with their own delays are.
"""

import bisect
import dataclasses
import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.outcome import print_table

_DELAYS = 400  # tried: as many quantiles of the first copies
_STEPS = 60  # of a bisection: finer than any clock


@dataclasses.dataclass(frozen=True)
class Policy:
    delay_ms: float
    probability: float
    tail_ms: float  # the percentile that was asked for
    extra_load: float


def quantile(ordered: Sequence[float], q: float) -> float:
    """Of a sorted list; the smallest value that so many do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * q - 1e-9) - 1)] if ordered else float("nan")


class Times:
    """A measured distribution."""

    def __init__(self, values: Sequence[float]):
        self.ordered = sorted(values)

    def at_most(self, value: float) -> float:
        """The share of values up to this one."""
        return bisect.bisect_right(self.ordered, value) / len(self.ordered)

    def above(self, value: float) -> float:
        return 1 - self.at_most(value)


def tail_of(first: Times, second: Times, delay_ms: float, probability: float, share: float) -> float:
    """The shortest time that at least `share` of the requests do not exceed."""
    def slower(than_ms: float) -> float:
        return first.above(than_ms) * (1 - probability * second.at_most(than_ms - delay_ms))

    low, high = 0.0, first.ordered[-1]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if slower(middle) <= 1 - share + 1e-12 else (middle, high)
    return high


def best_single_r(first: Times, second: Times, extra_load: float, share: float) -> Policy:
    """Of all delays, with the probability that spends the extra load. Probability 1 is among them: SingleR is never worse than the
    best fixed delay at that load."""
    found = []
    for step in range(_DELAYS):
        delay_ms = 0.0 if step == 0 else quantile(first.ordered, step / _DELAYS)
        late = first.above(delay_ms)
        if late > 0:
            probability = min(1.0, extra_load / late)
            found.append(Policy(delay_ms, probability, tail_of(first, second, delay_ms, probability, share), probability * late))
    return min(found, key=lambda policy: policy.tail_ms)


def adaptive_with_bucket(first: Sequence[float], second: Times, budget: float, burst: float, share: float,
                         seed: int = 1) -> Policy:
    """The product's rule on the measured times in their order: the delay is the quantile that leaves as many requests to be hedged
    as the budget allows, and each hedge takes a token."""
    draw, times = random.Random(seed), Times(first)
    delay_ms, tokens, hedges, late, took = quantile(times.ordered, 1 - budget), 0.0, 0, 0, []
    for value in first:
        tokens = min(burst, tokens + budget)
        if value <= delay_ms:
            took.append(value)
            continue
        late += 1
        if tokens < 1:
            took.append(value)
            continue
        tokens -= 1
        hedges += 1
        took.append(min(value, delay_ms + draw.choice(second.ordered)))
    took.sort()
    return Policy(delay_ms, hedges / late if late else 1.0, quantile(took, share), hedges / len(first))


def compare(first: Sequence[float], second: Sequence[float], budget: float, burst: float) -> dict:
    """A row's figures. `gain`: by how much SingleR's p99 is shorter, as a share of the adaptive delay's."""
    found = {}
    for name, share in (("p99", 0.99), ("p999", 0.999)):
        ours = adaptive_with_bucket(first, Times(second), budget, burst, share)
        best = best_single_r(Times(first), Times(second), ours.extra_load, share)
        gain = 1 - best.tail_ms / ours.tail_ms
        found.update({f"{name}_ms": best.tail_ms, f"{name}_adaptive_ms": ours.tail_ms, f"{name}_gain": gain})
        if name == "p99":
            found.update(delay_ms=best.delay_ms, probability=best.probability, adaptive_delay_ms=ours.delay_ms,
                         extra_load=ours.extra_load)
    return found


COLUMNS = {"phase": "phase", "runs": "runs", "extra_load": "extra load", "adaptive_delay_ms": "adaptive delay ms",
           "p99_adaptive_ms": "its p99 ms", "delay_ms": "SingleR delay ms", "probability": "probability", "p99_ms": "its p99 ms",
           "p99_gain": "p99 gain", "p999_gain": "p99.9 gain"}


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results/adaptive")
    rows = json.loads((folder / "summary.json").read_text(encoding="ascii"))["rows"]
    print_table([row for row in rows if row["mode"] == "single-r"], COLUMNS)
