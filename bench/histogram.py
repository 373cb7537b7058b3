# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the log-linear histograms of bench/load/histogram.h, so that runs can be merged and plotted.

The arithmetic is repeated here on purpose: the C++ side writes raw buckets and nothing derived.
"""

import math
from collections.abc import Iterable, Sequence

SUB_BUCKET_BITS = 7
_SUB_BUCKETS = 1 << SUB_BUCKET_BITS
_NS = {"ms": 1e6, "us": 1e3}
_SHARES = {"min": 0.0, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}


def bucket_index(value: int) -> int:
    if value < _SUB_BUCKETS:
        return value
    shift = value.bit_length() - (SUB_BUCKET_BITS + 1)
    return shift * _SUB_BUCKETS + (value >> shift)


def bucket_low(index: int) -> int:
    if index < 2 * _SUB_BUCKETS:
        return index
    shift = index // _SUB_BUCKETS - 1
    return (index - shift * _SUB_BUCKETS) << shift


def bucket_width(index: int) -> int:
    return 1 if index < 2 * _SUB_BUCKETS else 1 << (index // _SUB_BUCKETS - 1)


def quantile(values: Sequence[float], q: float) -> float | None:
    """Of a list: the smallest value that at least so many do not exceed; None of none."""
    return sorted(values)[max(0, math.ceil(len(values) * q - 1e-9) - 1)] if values else None


class Histogram:
    def __init__(self):
        self.buckets: dict[int, int] = {}
        self.count, self.sum = 0, 0
        self.min, self.max = 0, 0

    @classmethod
    def from_json(cls, raw: dict) -> "Histogram":
        if raw["sub_bucket_bits"] != SUB_BUCKET_BITS:
            raise ValueError(f"a histogram with {raw['sub_bucket_bits']} sub-bucket bits, expected {SUB_BUCKET_BITS}")
        self = cls()
        self.buckets = {index: count for index, count in raw["buckets"]}
        self.count, self.sum, self.min, self.max = raw["count"], raw["sum"], raw["min"], raw["max"]
        return self

    def to_json(self) -> dict:
        return {"unit": "ns", "sub_bucket_bits": SUB_BUCKET_BITS, "count": self.count, "min": self.min,
                "max": self.max, "sum": self.sum, "buckets": [list(pair) for pair in sorted(self.buckets.items())]}

    def record(self, value: int) -> None:
        index = bucket_index(value)
        self.buckets[index] = self.buckets.get(index, 0) + 1
        self.min = value if self.count == 0 else min(self.min, value)
        self.max = max(self.max, value)
        self.count += 1
        self.sum += value

    def merge(self, other: "Histogram") -> None:
        if other.count == 0:
            return
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count
        self.min = other.min if self.count == 0 else min(self.min, other.min)
        self.max = max(self.max, other.max)
        self.count += other.count
        self.sum += other.sum

    def quantile(self, q: float) -> int:
        """The middle of the bucket of rank ceil(q * count), inside [min, max]; 0 when nothing was recorded."""
        if self.count == 0:
            return 0
        rank = max(1, math.ceil(q * self.count))
        if q <= 0:
            return self.min
        if rank >= self.count:
            return self.max
        seen = 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen >= rank:
                return min(max(bucket_low(index) + bucket_width(index) // 2, self.min), self.max)
        return self.max

    def mean(self) -> float:
        return self.sum / self.count if self.count else 0

    def cumulative(self) -> list[tuple[int, float]]:
        """(upper bound of a bucket, share of the values at or below it), for distribution plots."""
        points, seen = [], 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            points.append((min(bucket_low(index) + bucket_width(index), self.max), seen / self.count))
        return points


def merged(histograms: Iterable[Histogram]) -> Histogram:
    together = Histogram()
    for histogram in histograms:
        together.merge(histogram)
    return together


def of_client(record: dict) -> Histogram:
    """The latencies of a record with the report of hr-load."""
    return Histogram.from_json(record["client"]["histograms"]["latency"])


def percentiles(histograms: Iterable[Histogram], unit: str = "ms", of: Sequence[str] = ("p50", "p95", "p99", "p999", "max")) -> dict:
    """Of all values together: what happens in one run of ten is in them, where a median over the runs would not show it."""
    together = merged(histograms)
    return {f"{name}_{unit}": (together.mean() if name == "mean" else together.quantile(_SHARES[name])) / _NS[unit] for name in of}
