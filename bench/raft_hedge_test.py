# SPDX-License-Identifier: Apache-2.0
"""Rows of `bench raft-hedge` are of all runs together, by operation, what is lost has waited its whole time-out, and limits are
met by the right rows only."""

import pytest

from bench import raft_hedge
from bench.histogram import Histogram
from bench.raft_hedge import figures, must_show, row_of
from chaos.systems import Running
from chaos.unavailable import Request


class _Node:
    number = 2


def _run(p99_ms: float, lost: int = 0, strayed: int = 0, put_more_ms: float = 1.0, led: int = 4) -> dict:
    def of(worst_ms: float) -> dict:
        latency = Histogram()
        for value in [0.3] * 90 + [worst_ms] * 10:
            latency.record(round(value * 1e6))
        return {"n": 10, "lost": lost, "latency": latency.to_json()}

    return {"operations": {"get": of(p99_ms), "put": of(p99_ms + put_more_ms)}, "errors": 0, "duplicates": 0, "stalls": 4, "leader_stalls": led,
            "packets_lost": 17, "strayed": strayed, "extra_load": 0.04, "config_hash": "h"}


def _rows(runs: int = 10, stall: float = 60.0, loss: float = 10.5, baseline: float = 350.0, at_once: float = 0.5,
          **of_wheel) -> list[dict]:
    cells = {("baseline", "stall"): _run(baseline), ("wheel", "stall"): _run(stall, **of_wheel),
             ("baseline", "loss"): _run(5000.0, lost=9), ("wheel", "loss"): _run(loss),
             ("at-once", "stall"): _run(stall), ("at-once", "loss"): _run(at_once, put_more_ms=0.1)}
    return [row_of(mode, variant, operation, [run] * runs) for (mode, variant), run in cells.items()
            for operation in raft_hedge.OPERATIONS]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in must_show(rows) if not check.met]


def test_row_is_of_one_operation():
    row = row_of("wheel", "stall", "put", [_run(1.0), _run(9.0, lost=2), _run(3.0)])
    assert (row["max_ms"], row["lost"], row["n"], row["stalls"], row["runs"]) == (10.0, 2, 30, 12, 3)
    assert row["p99_ms"] == pytest.approx(10, rel=0.01), "of all requests together: one bad run of three is not hidden"


def test_limits_are_met_by_ten_rounds_within_them():
    assert _missed(_rows()) == []
    assert _missed(_rows(runs=9)) == ["runs of each row"]


def test_each_operation_has_its_limit():
    assert _missed(_rows(loss=11.5)) == ["loss: wheel put p99 (delay + 2 ms)"]
    assert _missed(_rows(stall=79.5)) == ["stall: wheel put p99"]
    assert _missed(_rows(at_once=0.65)) == ["loss: at-once put p99"]
    assert _missed(_rows(baseline=299.5)) == ["stall: baseline get p99"]


def test_the_baseline_may_lose_requests_and_the_wheel_may_not():
    assert _missed(_rows(lost=1)) == ["proxies: requests without an answer or with an error"]


def test_stalls_of_a_node_that_did_not_lead_show_nothing():
    assert _missed(_rows(led=0)) == ["stall: stalls of a leader in the run with the fewest"]


def test_losses_that_were_not_the_leaders_are_a_miss():
    assert _missed(_rows(strayed=1)) == ["loss: runs in which the leader changed by itself"]


def test_limits_whose_rows_were_left_out_are_missed():
    assert len(_missed([row for row in _rows() if row["mode"] == "baseline"])) == 7


def test_request_without_an_answer_has_waited_its_whole_time_out():
    answered = [Request(0, 2_000_000, True, False)] * 9
    found = figures([*answered, Request(0, 1, False, False), Request(0, 3_000_000, True, True)])
    assert (found["get"]["n"], found["get"]["lost"], found["get"]["max_ms"]) == (10, 1, 5000.0)
    assert found["get"]["p50_ms"] == pytest.approx(2.0, rel=0.01)
    assert (found["put"]["n"], found["put"]["lost"]) == (1, 0)


def test_only_the_baseline_sends_once_and_only_the_proxy_is_not_told_who_leads(tmp_path):
    def flags(mode: str) -> set[str]:
        up = Running(cluster=None, load=["hr-kv-chaos"], final=[], config={})
        return set(raft_hedge.load_command(up, _Node(), mode, 5, 1, tmp_path)) & {"--attempts=1", "--first_leader=1"}

    assert flags("baseline") == {"--attempts=1", "--first_leader=1"}
    assert flags("app-cc") == {"--first_leader=1"}
    assert flags("wheel") == flags("at-once") == set()


def test_a_run_is_long_enough_for_a_stall():
    with pytest.raises(SystemExit):
        raft_hedge.EXPERIMENT.parse(["--seconds", "2.8"])
    assert raft_hedge.EXPERIMENT.parse(["--seconds", "3"]).seconds == 3.0
