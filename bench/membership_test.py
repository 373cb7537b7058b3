# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench membership` must show, on made-up runs: each check can fail, and what has no answer has waited its whole time."""

import pytest

from bench import membership
from bench.histogram import Histogram
from bench.history import figures
from bench.membership import must_show, row_of
from chaos.unavailable import Request


def _run(p999_ms: float = 2.5, **changed) -> dict:
    def phase(worst_ms: float) -> dict:
        latency = Histogram()
        for value in [0.2] * 90 + [worst_ms] * 10:
            latency.record(int(value * 1e6))
        return {"n": 100, "lost": 0, "latency": latency.to_json()}

    return {"phases": {"undisturbed": phase(1.0), "changing": phase(p999_ms)}, "errors": 0, "duplicates": 0,
            "acked_lost": 0, "double_applied": 0, "not_linearizable": 0, "by_snapshot": 1, "promoted": 1, "removed": 1,
            "sent_before": 50, "to_removed": 0, "offloads_on": ["append"], "config_hash": "h", **changed}


def _rows(on: dict | None = None, off: dict | None = None, runs: int = 5) -> list[dict]:
    cells = {"on": _run(**(on or {})), "off": _run(**{"offloads_on": [], **(off or {})})}
    return [row_of("memory", offloads, phase, [made] * runs) for offloads, made in cells.items()
            for phase in membership.PHASES]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in must_show(rows) if not check.met]


def test_all_is_met_by_five_runs_that_are_as_they_should_be():
    assert _missed(_rows()) == []
    assert _missed(_rows(runs=4)) == ["runs of each row"]


@pytest.mark.parametrize(("changed", "what"), [
    ({"p999_ms": 3.1}, "p99.9"), ({"errors": 1}, "requests without"), ({"acked_lost": 1}, "acknowledged"),
    ({"double_applied": 1}, "writes done twice"), ({"not_linearizable": 1}, "histories"), ({"by_snapshot": 0}, "nodes that caught"),
    ({"promoted": 0}, "nodes promoted"), ({"removed": 0}, "nodes removed"), ({"sent_before": 0}, "packets to who leaves"),
    ({"to_removed": 1}, "packets to the member that has left"), ({"offloads_on": []}, "the kernel takes part")])
def test_each_check_can_fail(changed, what):
    missed = _missed(_rows(on=changed))
    assert len(missed) == 1 and missed[0].startswith(f"memory, offloads on: {what}"), missed


def test_without_offloads_the_kernel_must_have_no_part():
    assert _missed(_rows(off={"offloads_on": ["vote"]})) == ["memory, offloads off: the kernel takes part"]


def test_one_kind_alone_is_not_both():
    assert _missed(_rows()[:2]) == ["offloads on and off, both measured"]


def test_what_is_not_answered_has_waited_its_whole_time():
    found = figures([*[Request(0, 2_000_000, True, False)] * 9, Request(0, 1, False, True)])
    assert (found["n"], found["lost"], found["max_ms"]) == (10, 1, 5000.0)
