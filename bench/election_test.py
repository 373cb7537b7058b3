# SPDX-License-Identifier: Apache-2.0
"""What `bench election` makes of the nodes' status: one election's times from the difference of two, and limits for the worst
row."""

from collections import Counter

import pytest

from bench import election
from bench.election import Cell, Histogram, Term


def _status(term: int, led_since_ns: int = 0, **histograms: tuple[dict[int, int], int]) -> dict:
    # As protobuf prints it: 64-bit integers as text.
    return {"term": str(term), "led_since_ns": str(led_since_ns),
            "histograms": [{"name": name, "sum_ns": str(sum_ns),
                            "buckets": [{"upper_ns": str(upper), "count": str(count)} for upper, count in counts.items()]}
                           for name, (counts, sum_ns) in histograms.items()]}


def _term(outage_ms: float = 10.0, vote_us: float | None = 50.0, fence_ns: int = 99_999, terms: int = 1) -> Term:
    return Term(terms, outage_ms, vote_us, 40.0, {fence_ns: 2})


def _rows(**changes) -> list[dict]:
    """All kinds, just good enough; `changes` are of the last term of the last row in memory mode."""
    rows = []
    for replicas in map(int, election.REPLICAS):
        for mode in election.MODES:
            for cause in election.FAULTS:
                terms = [_term(vote_us=70.0, fence_ns=199_999) for _ in range(100)]
                rows.append(election.row_of(Cell(replicas, mode, cause), [terms], "h") | (changes if mode == "memory" else {}))
    return rows


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in election.must_show(rows) if not check.met]


def test_an_election_is_the_difference_of_two_looks():
    before = {2: _status(4, vote_quorum=({79_999: 1}, 75_000), fence=({1_023: 5}, 4_000)),
              3: _status(4, fence=({1_023: 1}, 900))}
    after = {2: _status(5, led_since_ns=1_030_000_000, vote_quorum=({79_999: 1, 63_999: 1}, 135_500),
                        pre_vote_quorum=({39_999: 1}, 38_000), fence=({1_023: 6, 2_047: 1}, 6_900)),
             3: _status(5, fence=({1_023: 1}, 900))}
    term = election.term_of(before, after, winner=2, fault_ns=1_000_000_000)
    assert term == Term(terms=1, outage_ms=30.0, vote_us=60.5, pre_vote_us=38.0, fences_ns={1_023: 1, 2_047: 1}, winner=2)


def test_what_was_not_measured_is_none():
    status = {2: _status(4), 3: _status(4)}
    term = election.term_of(status, {2: _status(6, led_since_ns=5), 3: _status(6)}, winner=2, fault_ns=0)
    assert (term.terms, term.vote_us, term.pre_vote_us, term.fences_ns) == (2, None, None, {})


def test_quantiles_of_fences_are_never_too_small():
    counts = Counter({1_023: 98, 4_095: 1, 131_071: 1})
    assert election.quantile_us(counts, 0.5) == pytest.approx(1.024)
    assert election.quantile_us(counts, 0.99) == pytest.approx(4.096)
    assert election.quantile_us(counts, 1.0) == pytest.approx(131.072)
    assert election.quantile_us(Counter(), 0.99) is None


def test_a_row_is_over_all_terms_with_the_medians_of_its_rounds():
    rounds = [[_term(outage_ms=10.0), _term(outage_ms=12.0), _term(outage_ms=11.0)],
              [_term(outage_ms=20.0, vote_us=None, terms=2), _term(outage_ms=90.0, vote_us=60.0), _term(outage_ms=30.0)]]
    row = election.row_of(Cell(3, "memory", "kill"), rounds, "h")
    assert (row["terms"], row["rounds"], row["terms_beyond_one"], row["outage_max_ms"]) == (6, 2, 1, 90.0)
    assert (row["outage_p50_ms_min"], row["outage_p50_ms_max"]) == (11.0, 30.0)
    assert row["vote_p50_us"] == 50.0
    assert row["fences"] == 12 and row["fence_p99_us"] == pytest.approx(100.0)


def test_limits_are_met_by_rows_that_are_just_good_enough():
    assert _missed(_rows()) == []


@pytest.mark.parametrize(("name", "value", "what"), [
    ("vote_p50_us", 70.1, "memory: RequestVote to quorum p50, worst row"),
    ("vote_p99_us", 410.1, "memory: RequestVote to quorum p99, worst row"),
    ("fence_p99_us", 200.1, "memory: fence p99, worst row"),
    ("fence_p99_us", None, "memory: fence p99, worst row")])
def test_one_bad_row_is_a_miss(name, value, what):
    rows = _rows()
    rows[-1][name] = value
    assert _missed(rows) == [what]


def test_disk_mode_has_no_limit():
    rows = _rows()
    rows[0] |= {"vote_p99_us": 9_000.0, "fence_p99_us": 9_000.0}
    assert _missed(rows) == []


def test_fewer_terms_or_kinds_are_a_miss():
    assert _missed(_rows()[1:]) == ["kinds of clusters, modes and faults"]
    assert _missed(_rows(terms=99)) == ["terms of each row"]


def test_a_row_has_the_extremes_and_who_won():
    terms = [Term(1, outage, 50.0, 40.0, {}, winner) for outage, winner in ((1.0, 1), (2.0, 3), (6.0, 3))]
    row = election.row_of(Cell(3, "memory", "kill"), [terms], "h")
    assert [row[f"outage_{name}_ms"] for name in ("min", "mean", "p95", "max")] == [1.0, 3.0, 6.0, 6.0]
    assert row["won"] == "1 0 2"


def test_histograms_that_a_node_does_not_have_are_empty():
    assert Histogram.of({}, "fence").mean_us() is None
