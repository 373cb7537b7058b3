# SPDX-License-Identifier: Apache-2.0
"""Rows of `bench kv` are medians and sums, what is lost has waited, and limits are met by the right rows only."""

import pytest

from bench import cpu_time, kv
from bench.cpu_time import Sample
from bench.histogram import Histogram
from bench.store_load import LoadRun, Measured

_PUT_64 = kv.Cell(3, "memory", "hedgerow", 64, "put")


def _run(ops_per_s: float, lost: int = 0) -> dict:
    return {"report": _report([150] * 98 + [300] * 2), "ops_per_s": ops_per_s, "cpu_us_per_op": 30.0, "client_cpu_us_per_op": 5.0,
            "n": 100, "failed": 0, "lost": lost, "leader_changed": 0, "config_hash": "h"}


def _rows(ours: float, etcd: float, runs: int = 10) -> list[dict]:
    cells = {_PUT_64: ours, kv.Cell(3, "memory", "etcd", 64, "put"): etcd,
             kv.Cell(3, "memory", "hedgerow", 1, "put"): 6_000.0}
    return [kv.row_of(cell, [_run(rate)] * runs) for cell, rate in cells.items()]


def _missed(rows: list[dict]) -> list[str]:
    return [check.what for check in kv.must_show(rows) if not check.met]


def _report(latencies_us: list[int], lost: int = 0) -> dict:
    histogram = Histogram()
    for latency_us in latencies_us:
        histogram.record(latency_us * 1000)
    return {"answered": len(latencies_us), "failed": 0, "lost": lost, "seconds": 2.0, "cpu_us": 40,
            "latency": histogram.to_json()}


def test_a_run_in_which_the_leader_changed_is_kept_and_its_percentiles_count():
    changed = {**_run(20.0), "leader_changed": 1, "report": _report([150] * 60, lost=40)}
    row = kv.row_of(_PUT_64, [_run(10.0), changed])
    assert row["leader_changed"] == 1 and row["p99_us"] == pytest.approx(1_000_000, rel=0.01)


def _figures(report: dict, others_us: int = 0) -> dict:
    before, after = Sample(0, 0, 0, 0, {2: 0}), Sample(others_us, 0, others_us * cpu_time._CPUS, 0, {2: others_us})
    return kv.figures(Measured(LoadRun(["hr-kv-load"], report, before, after), 1, False))


def test_row_is_medians_and_sums():
    row = kv.row_of(_PUT_64, [_run(10.0), _run(90.0, lost=1), _run(20.0)])
    assert (row["runs"], row["n"], row["lost"], row["ops_per_s"]) == (3, 300, 1, 20.0)
    assert (row["replicas"], row["mode"], row["system"], row["clients"], row["operation"]) == (3, "memory", "hedgerow",
                                                                                               64, "put")


def test_lost_request_counts_as_its_whole_timeout():
    assert _figures(_report([100] * 50))["p99_us"] == pytest.approx(100, rel=0.01)
    assert _figures(_report([100] * 50, lost=1))["p99_us"] == pytest.approx(1_000_000, rel=0.01)


def test_costs_are_those_of_load_and_servers_together():
    figures = _figures(_report([100] * 10), others_us=60)
    assert (figures["ops_per_s"], figures["cpu_us_per_op"], figures["client_cpu_us_per_op"]) == (5.0, 10.0, 4.0)


def test_limits_are_met_by_ten_rounds_that_are_fast_enough():
    assert _missed(_rows(18_000, 7_200)) == []
    assert _missed(_rows(18_000, 7_200, runs=9)) == ["runs of each row"]


def test_etcd_must_be_beaten_by_the_factor():
    assert _missed(_rows(18_000, 7_201)) == ["memory, 3 replicas, 64 clients: put, times etcd's"]


def test_limits_whose_rows_were_left_out_are_missed():
    rows = [row for row in _rows(18_000, 7_200) if row["system"] == "etcd"]
    assert len(_missed(rows)) == 3


def test_lost_requests_of_ours_are_a_miss_and_etcds_are_not():
    lost = {system: [kv.row_of(kv.Cell(5, "disk", system, 1, "get"), [_run(1.0, lost=1)] * 10)]
            for system in ("hedgerow", "etcd")}
    assert _missed(_rows(18_000, 7_200) + lost["etcd"]) == []
    assert _missed(_rows(18_000, 7_200) + lost["hedgerow"]) == ["ours: requests without an answer or with an error"]


def test_proxy_rows_are_puts_of_the_first_size_and_mode():
    cells = [cell for cell in kv.cells_of(kv.EXPERIMENT.parse(["--replicas", "5,3", "--modes", "disk,memory"]))
             if cell.system == "hedgerow-proxy"]
    assert {(cell.replicas, cell.mode, cell.operation) for cell in cells} == {(5, "disk", "put")}
    assert [cell.clients for cell in cells] == [1, 16, 64]


def test_hashicorp_raft_is_measured_in_memory_only():
    cells = [cell for cell in kv.cells_of(kv.EXPERIMENT.parse(["--replicas", "3,5,7"])) if cell.system == "hashicorp-raft"]
    assert {cell.mode for cell in cells} == {"memory"}
    assert len(cells) == 3 * 3 * 2 + 3 * 2, "and larger values in the first size"


def test_its_lost_requests_are_no_miss_of_ours():
    lost = [kv.row_of(kv.Cell(5, "memory", "hashicorp-raft", 1, "get"), [_run(1.0, lost=1)] * 10)]
    assert _missed(_rows(18_000, 7_200) + lost) == []


def test_without_its_program_the_run_does_not_begin(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDGEROW_BUILD_DIR", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hr-hashicorp-raft.missing").write_text("hr-hashicorp-raft is not built: why\n", encoding="ascii")
    with pytest.raises(SystemExit, match="not built: why"):
        kv.EXPERIMENT.main(["--systems", "hashicorp-raft", "--quiet-wait=0", f"--into={tmp_path / 'into'}"])


def test_every_size_mode_and_number_of_clients_is_measured():
    cells = kv.cells_of(kv.EXPERIMENT.parse(["--replicas", "3,5,7", "--systems", "hedgerow,etcd"]))
    assert len(cells) == len(set(cells)) == 3 * 2 * 2 * 3 * 2 + 2 * 2 * 3 * 2


def test_larger_values_are_put_in_the_first_size_and_not_through_the_proxy():
    cells = kv.cells_of(kv.EXPERIMENT.parse(["--replicas", "3,5", "--modes", "memory,disk"]))
    larger = [cell for cell in cells if cell.value_bytes != 64]
    assert {cell.value_bytes for cell in larger} == {256, 1000} and {cell.replicas for cell in larger} == {3}
    assert {cell.operation for cell in larger} == {"put"} and {cell.mode for cell in larger} == {"memory", "disk"}
    assert not any(cell.system == "hedgerow-proxy" for cell in larger)
    assert kv.Cell(5, "disk", "hedgerow", 64, "get") in cells and len(cells) == len(set(cells))


def test_limits_are_about_values_of_64_bytes():
    larger = kv.row_of(kv.Cell(3, "memory", "hedgerow", 64, "put", 1000), [_run(9_000.0)] * 10)
    assert _missed([larger, *_rows(18_000, 7_200)]) == []


def test_proof_costs_a_tenth_at_most_of_each_operation_with_the_most_clients():
    def rows(**rates: float) -> list[dict]:
        cells = {(system, clients): rate for system, rate in rates.items() for clients in (16, 64)}
        return [kv.row_of(kv.Cell(3, "memory", f"hedgerow{'-named' if system == 'named' else ''}", clients, "get"), [_run(rate)] * 10)
                for (system, clients), rate in cells.items()]

    def missed(**rates: float) -> list[str]:
        return [name for name in _missed(rows(**rates)) if "proved" in name]

    assert missed(plain=1000.0, named=900.0) == []
    assert missed(plain=1000.0, named=899.0) == ["memory, 3 replicas, 64 clients: get that is proved, of those that are not"]
    assert missed(plain=1000.0) == []
