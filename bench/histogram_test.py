# SPDX-License-Identifier: Apache-2.0
"""The Python reader agrees with bench/load/histogram_test.cc on the same examples."""

import random

import pytest

from bench.histogram import Histogram, bucket_index, bucket_low, bucket_width, quantile


def test_every_value_lies_inside_its_bucket():
    generator = random.Random(1)
    for bits in range(64):
        value = (1 << bits) | generator.getrandbits(bits)
        index = bucket_index(value)
        assert bucket_low(index) <= value < bucket_low(index) + bucket_width(index)


def test_json_is_what_the_cc_side_writes():
    histogram = Histogram()
    for value in (3, 3, 300):
        histogram.record(value)
    raw = {"unit": "ns", "sub_bucket_bits": 7, "count": 3, "min": 3, "max": 300, "sum": 306,
           "buckets": [[3, 2], [278, 1]]}
    assert histogram.to_json() == raw
    assert Histogram.from_json(raw).to_json() == raw


def test_quantiles_are_within_one_percent():
    generator = random.Random(7)
    values = sorted(int(generator.lognormvariate(15, 2)) for _ in range(20_000))
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    for q in (0.01, 0.5, 0.95, 0.99, 0.999):
        exact = values[-(-int(q * 1_000_000) * len(values) // 1_000_000) - 1]
        assert histogram.quantile(q) == pytest.approx(exact, rel=0.01)
    assert histogram.quantile(1) == values[-1]


def test_merge_equals_recording_both():
    left, right, both = Histogram(), Histogram(), Histogram()
    for value in range(1000):
        (left if value % 3 else right).record(value * value)
        both.record(value * value)
    left.merge(right)
    assert left.to_json() == both.to_json()
    left.merge(Histogram())
    assert left.min == 0


def test_empty_reads_as_zero():
    assert Histogram().quantile(0.99) == 0
    assert Histogram().cumulative() == []


def test_other_resolution_is_refused():
    with pytest.raises(ValueError):
        Histogram.from_json({**Histogram().to_json(), "sub_bucket_bits": 8})


def test_a_quantile_is_a_value_that_occurred():
    assert [quantile([5, 1, 3, 2, 4], share) for share in (0.5, 0.99, 1.0, 0.01)] == [3, 5, 5, 1]
    assert quantile(list(range(1, 101)), 0.99) == 99 and quantile([7], 0.5) == 7 and quantile([], 0.5) is None
