# SPDX-License-Identifier: Apache-2.0
"""What a run must show, and its command line; no lab is needed."""

import pytest

from chaos import run

ROW = {"system": "hedgerow", "mode": "memory", "events": 100, "client_errors": 0, "unavailable_p50_ms": 40.0,
       "outage_p50_ms": 40.0, "duplicates_arrived": 12_000, "acked_lost": 0, "double_applied": 0, "linearizable": True,
       "checkers_disagree": 0, "duplicate_answers": 0}


def missed(*rows: dict, kills: int = 100, hedge_delay: str = "10ms") -> list[str]:
    return [check.what for check in run.must_show(list(rows), kills, hedge_delay) if not check.met]


def other(system: str, unavailable: float, outage: float) -> dict:
    return {**ROW, "system": system, "unavailable_p50_ms": unavailable, "outage_p50_ms": outage}


def test_a_good_run_misses_nothing():
    assert not missed(ROW, other("etcd-default", 5000, 1300), other("noproxy-app", 45, 45), hedge_delay="0.5ms")


@pytest.mark.parametrize("change, what", [
    ({"events": 99}, "events"), ({"client_errors": 1}, "client errors"), ({"acked_lost": 1}, "writes lost"),
    ({"double_applied": 1}, "applied twice"), ({"linearizable": False}, "linearizable"),
    ({"checkers_disagree": 1}, "do not agree"), ({"unavailable_p50_ms": 61.0}, "unavailable p50"),
    ({"duplicate_answers": 1}, "came twice"),
])
def test_each_failure_is_named(change, what):
    (found,) = missed({**ROW, **change})
    assert what in found


def test_etcd_is_judged_by_its_kinder_figure():
    (found,) = missed(ROW, other("etcd-default", 5000, 399))
    assert "etcd" in found


def test_the_application_must_not_be_better():
    (found,) = missed(ROW, other("noproxy-app", 30, 30))
    assert "application" in found


def test_rows_of_another_mode_are_no_comparison():
    assert not missed(ROW, {**other("noproxy-app", 1, 1), "mode": "disk"})


def test_few_duplicates_matter_only_where_hedges_are_early():
    few = {**ROW, "duplicates_arrived": 100}
    assert not missed(few)
    assert missed(few, hedge_delay="0.5ms")


def test_blocks_add_up():
    assert run.block_sizes(100) == [10] * 10
    assert run.block_sizes(23) == [10, 10, 3]
    assert run.block_sizes(1) == [1]


def test_the_command_line():
    arguments = run.parse(["leader-kill", "--kills", "20", "--mode", "memory,disk", "--systems", "hedgerow,etcd-tuned"])
    assert (arguments.kills, arguments.mode, arguments.systems) == (20, ["memory", "disk"], ["hedgerow", "etcd-tuned"])
    for wrong in (["no-such"], ["leader-kill", "--kills", "0"], ["leader-kill", "--replicas", "4"],
                  ["leader-kill", "--systems", "paxos"]):
        with pytest.raises(SystemExit):
            run.parse(wrong)
