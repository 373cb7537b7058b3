# SPDX-License-Identifier: Apache-2.0
"""What charts are drawn from beyond the rows of a summary: series of a run's raw files, thinned, and figures over all rounds. Used by
the experiments' CHARTS.
"""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.histogram import Histogram, of_client, quantile

SLOT_S = 0.05
_NS = {"ms": 1e6, "us": 1e3}
_STEPS_A_DECADE = 40  # of a thinned curve: finer than a line is wide


def raw(folder: Path) -> list[dict]:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "raw").glob("*.json"))]
    if not found:
        raise ValueError("there is nothing in raw/")
    return found


def tails(of: Callable[[dict], Iterable[tuple[str, Histogram]]], unit: str = "ms", spreads: bool = False) -> Callable:
    """For Charts.series: each key's histograms of all runs, merged. `of`: those of one raw file."""
    def series(folder: Path, _summary: dict) -> tuple[dict, dict]:
        merged: dict[str, Histogram] = {}
        for run in raw(folder):
            for key, histogram in of(run):
                merged.setdefault(key, Histogram()).merge(histogram)
        return ({key: spread_of(histogram, _NS[unit]) for key, histogram in merged.items()} if spreads else {},
                {key: {f"tail_{unit}": tail(histogram, _NS[unit])} for key, histogram in merged.items()})

    return series


def client_latency(*fields: str) -> Callable:
    """Of the raw files of one hr-load each, named by these of their fields."""
    return tails(lambda run: [("-".join(run[field] for field in fields), of_client(run))])


def spread(values: Iterable[float]) -> dict:
    values = sorted(values)
    return {"n": len(values), "min": values[0], "avg": sum(values) / len(values),
            **{f"p{share:g}": quantile(values, share / 100) for share in (50, 95, 99)}, "max": values[-1]}


def spread_of(histogram: Histogram, unit_ns: float) -> dict:
    return {"n": histogram.count, "min": histogram.min / unit_ns, "avg": histogram.sum / histogram.count / unit_ns,
            **{f"p{share:g}": histogram.quantile(share / 100) / unit_ns for share in (50, 95, 99)},
            "max": histogram.max / unit_ns}


def tail(histogram: Histogram, unit_ns: float) -> list[list[float]]:
    """Points (value, share of all that are above it), as many as a line can show."""
    points, last = [], None
    for upper, share in histogram.cumulative():
        above = max(1 - share, 0.0)
        here = (_step(upper), _step(above * 1e9))
        if here != last:
            points.append([short(upper / unit_ns), short(above)])
            last = here
    return points


def _step(value: float) -> int:
    return math.floor(math.log10(value) * _STEPS_A_DECADE) if value > 0 else -1


def short(value: float) -> float:
    return float(f"{value:.4g}")


def slots_of(points: Iterable[tuple[float, float | None]], no_answer_ms: float) -> list[list[float]]:
    """Of (sent at, s; answered after, ms, or None): for each slot of time its begin, the median wait, the longest, and how many
    were never answered."""
    slots: dict[int, list[float | None]] = {}
    for at_s, wait_ms in points:
        slots.setdefault(math.floor(at_s / SLOT_S), []).append(wait_ms)
    found = []
    for slot in sorted(slots):
        waits = sorted(no_answer_ms if wait is None else wait for wait in slots[slot])
        found.append([round(slot * SLOT_S, 3), short(waits[len(waits) // 2]), short(waits[-1]), slots[slot].count(None)])
    return found
