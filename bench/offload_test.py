# SPDX-License-Identifier: Apache-2.0
"""Rows of `bench offload` are of all runs, with their spread, the limits compare the right rows, and what is not on is an error."""

import types

import pytest

from bench import cpu_time, offload
from bench.cpu_time import Sample
from bench.histogram import Histogram
from bench.store_load import LoadRun, Measured


def _run(put_per_s: float = 10_000.0, p50_us: float = 70.0, p99_us: float = 100.0, cluster_us: float = 50.0,
         lost: int = 0, share: float | None = 0.25, rate_per_s: float | None = None) -> dict:
    latency = Histogram()
    for value in [min(p50_us, p99_us)] * 90 + [p99_us] * 10:
        latency.record(int(value * 994))  # a bucket is 0.8 % wide, and is read as its middle
    return {"report": {"latency": latency.to_json(), "lost": 0}, "put_per_s": put_per_s, "p50_us": p50_us, "p99_us": p99_us, "leader_cpu_us_per_op": 20.0,
            "cluster_cpu_us_per_op": cluster_us, "client_cpu_us_per_op": 5.0, "n": 100, "failed": 0, "lost": lost,
            "leader_changed": 0, "behind": 0, "rate_per_s": rate_per_s, **{f"{kind}_share": share for kind in ("stack", "switch", "offload", "user")}, "xdp": "native",
            "config_hash": "h"}


def _row(replicas: int, variant: str, clients: int, runs: int = 10, **figures) -> dict:
    cell = offload.Cell(replicas, variant, clients, paced=figures.get("rate_per_s") is not None)
    return offload.row_of(cell, [_run(**figures)] * runs)


def _rows(paced_p99_us: float = 60.0, **changes) -> list[dict]:
    """All that is looked at, just good enough. `changes` are figures of the row 7, all, 64 in a closed loop."""
    return [_row(3, "all", 1, p50_us=80.0), _row(3, "all-blocking", 1, p50_us=120.0),
            _row(3, "hashicorp-raft", 1, p50_us=120.0), _row(7, "none", 64, cluster_us=140.0),
            _row(7, "all", 64, **{"cluster_us": 70.0, "put_per_s": 15_000.0, **changes}),
            _row(7, "none", 64, rate_per_s=9_000.0), _row(7, "all", 64, rate_per_s=9_000.0, p99_us=paced_p99_us)]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in offload.must_show(rows) if not check.met]


def test_row_is_medians_with_their_spread():
    row = offload.row_of(offload.Cell(5, "append", 4), [_run(10.0), _run(90.0, lost=1), _run(20.0)])
    assert (row["put_per_s"], row["put_per_s_min"], row["put_per_s_max"]) == (20.0, 10.0, 90.0)
    assert (row["runs"], row["n"], row["lost"]) == (3, 300, 1)
    assert (row["replicas"], row["offloads"], row["spin"], row["clients"]) == (5, "append", "50us", 4)
    assert (row["stack_share"], row["switch_share"]) == (0.25, 0.25)


def test_a_row_without_samples_says_so():
    assert offload.row_of(offload.Cell(3, "etcd", 1), [_run(share=None)] * 2)["stack_share"] is None


def test_limits_are_met_by_rows_that_are_just_good_enough():
    assert _missed(_rows()) == []


@pytest.mark.parametrize(("worse", "what"), [({"cluster_us": 70.1}, "cluster CPU per put"),
                                             ({"put_per_s": 14_999.0}, "puts per second"),
                                             ({"paced_p99_us": 61.1}, "p99"),
                                             ({"lost": 1}, "without an answer")])
def test_each_limit_is_missed_by_a_little_less(worse, what):
    missed = _missed(_rows(**worse))
    assert len(missed) == 1 and what in missed[0]


def test_hashicorps_p50_is_a_limit_for_both_ways_to_wait():
    rows = [row for row in _rows() if row["variant"] != "hashicorp-raft"] + [_row(3, "hashicorp-raft", 1, p50_us=79.0)]
    assert [what.split(", ")[2] for what in _missed(rows)] == ["all: put p50", "all-blocking: put p50"]


def test_limits_whose_rows_were_left_out_are_missed():
    assert len(_missed([])) == 8


def test_paced_runs_come_last_at_a_rate_of_their_own_round():
    cells = [offload.Cell(7, "none", 64), offload.Cell(7, "all", 64), offload.Cell(3, "none", 64),
             *(offload.Cell(7, variant, 64, paced=True) for variant in ("none", "all"))]
    for number in (1, 2):
        turns = offload.turns_of(cells, 7, number)
        assert [[cell.paced for cell in turn] for turn in turns] == [[False], [False], [True], [True]]
        assert [turn[0].variant for turn in turns] == (["none", "all"] * 2 if number == 1 else ["all", "none"] * 2)
    done = {"replicas": 7, "variant": "none", "clients": 64, "paced": False}
    assert offload.paced_rate([{**done, "put_per_s": 1.0}, {**done, "put_per_s": 100.0}, {**done, "paced": True, "put_per_s": 5.0}], 7) == 90.0
    assert offload.paced_rate([], 7) == 0.0


def test_the_leaders_time_is_its_process_and_the_clusters_leaves_the_load_out():
    latency = Histogram()
    for _ in range(10):
        latency.record(100_000)
    report = {"answered": 10, "failed": 0, "lost": 0, "seconds": 2.0, "cpu_us": 40, "latency": latency.to_json()}
    before = Sample(0, 0, 0, 0, {1: 100, 2: 10})
    # All CPUs were busy for the wall time, tasks for all but 50 us of it.
    after = Sample(1000, 0, cpu_time._CPUS * 1000 - 50, 0, {1: 300, 2: 40})
    found = offload.figures(Measured(LoadRun(["hr-kv-load"], report, before, after), 1, False))
    assert found["leader_cpu_us_per_op"] == 20.0
    assert found["cluster_cpu_us_per_op"] == (200 + 30 + 50) / 10
    assert (found["put_per_s"], found["client_cpu_us_per_op"]) == (5.0, 4.0)


def _cluster(on: set[str]) -> types.SimpleNamespace:
    said = [{"name": name, "on": name in on, "detail": "native XDP on eth0" if name in on else "switched off"}
            for name in offload.OFFLOADS]
    return types.SimpleNamespace(nodes=[types.SimpleNamespace(offloads=lambda: said)])


def test_what_is_measured_is_what_was_asked_for(monkeypatch):
    monkeypatch.setattr(offload, "_ON_WITHIN_S", 0.0)
    assert offload.verified(_cluster({"append", "heartbeat"}), offload.VARIANTS["append"]) == "native"
    assert offload.verified(_cluster(set()), offload.VARIANTS["none"]) == "none"
    with pytest.raises(RuntimeError, match="append: switched off"):
        offload.verified(_cluster({"heartbeat"}), offload.VARIANTS["append"])
    with pytest.raises(RuntimeError, match="quorum: native"):
        offload.verified(_cluster({"append", "heartbeat", "quorum"}), offload.VARIANTS["append"])


def test_every_size_variant_and_number_of_clients_is_measured():
    cells = offload.cells_of(offload.EXPERIMENT.parse([]))
    assert len(cells) == len(set(cells)) == 3 * 9 * 4 + 3 * 2
    assert not any(cell.paced for cell in offload.cells_of(offload.EXPERIMENT.parse(["--variants=all"]))), "without none: no rate"


def test_all_but_one_leaves_out_what_needs_it():
    assert set(offload.SETS["no-append"]) == set(offload.OFFLOADS) - {"append"}
    assert set(offload.SETS["no-heartbeat"]) == set(offload.OFFLOADS) - {"heartbeat", "append", "quorum"}
    assert not any(variant.startswith("no-") for variant in offload.EXPERIMENT.parse([]).variants), "they are asked for"


def test_an_offload_must_pay_beside_the_others():
    assert _missed([*_rows(), _row(7, "no-append", 64, cluster_us=71.0)]) == []
    assert _missed([*_rows(), _row(7, "no-append", 64, cluster_us=60.0)]) == [
        "7 replicas, 64 clients: cluster CPU per put, all / all but append"]
