# SPDX-License-Identifier: Apache-2.0
"""The matrix of repeated stalls, and what must be shown of a cell."""

from bench import repeated_stalls
from bench.repeated_stalls import CELLS


def row(mode: str, p999_ms: float = 12.0, max_ms: float = 30.0, **counts: int) -> dict:
    return {"cell": "2s-500ms-5000", "mode": mode, "p999_ms": p999_ms, "max_ms": max_ms, "stalls": 15, "lost": 0,
            "wrong": 0, "duplicates": 0, **counts}


def missed(*rows: dict) -> list[str]:
    return [check.what for check in repeated_stalls.must_show(list(rows)) if not check.met]


def test_every_stall_is_shorter_than_its_period_and_ends_with_it():
    assert len(CELLS) == 33
    for cell in CELLS.values():
        assert 0 < cell.stalls.first_after_s
        assert cell.stalls.first_after_s + cell.stalls.for_s == cell.period_s == cell.stalls.every_s


def test_a_good_cell_misses_nothing():
    assert missed(row("wheel"), row("app-cc", p999_ms=11.5)) == []


def test_each_bound_is_looked_at():
    assert missed(row("wheel", p999_ms=20.1)) == ["2s-500ms-5000: p99.9 (delay + 10 ms)"]
    assert missed(row("wheel", max_ms=61)) == ["2s-500ms-5000: worst (delay + 50 ms)"]
    for count in ("lost", "wrong", "duplicates"):
        assert missed(row("wheel", **{count: 1})) == ["2s-500ms-5000: lost, wrong or twice"]


def test_it_must_not_be_worse_than_a_client_that_hedges():
    assert missed(row("wheel", p999_ms=14), row("app-cc", p999_ms=12)) == [
        "2s-500ms-5000: p99.9 beside the client's own hedging"]
    assert missed(row("wheel", max_ms=45), row("app-cc", max_ms=30)) == [
        "2s-500ms-5000: worst beside the client's own hedging"]
