# SPDX-License-Identifier: Apache-2.0
"""A limit is met only by a figure that was measured; CPU time leaves strangers out."""

import json
import subprocess

import pytest

from bench import cpu_time, manifest, outcome, seed_hedge
from bench.histogram import Histogram
from deploy.lab import programs


def test_an_unmeasured_figure_never_meets_a_limit():
    assert not outcome.at_most("p99", None, 12.6).met
    assert not outcome.at_least("runs", None, 10).met


def test_a_limit_that_could_not_be_computed_is_missed():
    assert not outcome.at_most("p99", 1.0, float("nan")).met


def test_limits_include_their_edge():
    assert outcome.at_most("p99", 12.6, 12.6).met
    assert not outcome.at_most("p99", 12.7, 12.6).met
    assert outcome.at_least("n", 10_000, 10_000).met


def test_print_checks_says_whether_all_are_met(capsys):
    assert outcome.print_checks([outcome.at_most("a", 1, 2)])
    assert not outcome.print_checks([outcome.at_most("a", 1, 2), outcome.at_most("b", 3, 2, "ms")])
    assert "MISSED  b  3 ms (wanted <= 2 ms)" in capsys.readouterr().out


def test_a_run_that_judged_nothing_shows_nothing(capsys):
    assert not outcome.print_checks([])
    assert "0 met, 0 missed: nothing was judged" in capsys.readouterr().out


def test_results_replace_the_raw_files_of_the_last_run(tmp_path):
    outcome.Results("x", tmp_path).write_raw("old", {})
    results = outcome.Results("x", tmp_path)
    results.write_raw("new", {"a": 1})
    results.write_summary({"kernel": "k"}, [{"n": 1}], [outcome.at_most("a", 1, 2)])
    assert [path.name for path in results.raw.iterdir()] == ["new.json"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["name"] == "x" and summary["rows"] == [{"n": 1}] and summary["checks"][0]["met"]


def _content(folder) -> dict:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.json") if "unfinished" not in str(path)}


def test_a_run_that_is_cut_short_leaves_the_former_run_whole(tmp_path):
    former = outcome.Results("x", tmp_path)
    former.write_raw("a", {"p99_us": 20})
    former.write_summary({}, [{"p99_us": 20}], [])
    whole = _content(tmp_path)
    assert set(whole) == {"summary.json", "raw/a.json"}
    outcome.Results("x", tmp_path).write_raw("a", {"p99_us": 5000})
    assert _content(tmp_path) == whole


def test_a_second_run_takes_nothing_from_the_one_that_runs(tmp_path):
    running = outcome.Results("x", tmp_path)
    running.write_raw("a", {})
    outcome.Results("x", tmp_path)
    running.write_raw("b", {})
    running.write_summary({}, [], [])
    assert set(_content(tmp_path)) == {"summary.json", "raw/a.json", "raw/b.json"}


def test_what_an_ended_process_left_unfinished_is_removed_by_the_next_run(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"raw-unfinished-{ended.pid}-abc"
    left.mkdir()
    outcome.Results("x", tmp_path)
    assert not left.exists()


def test_a_manifest_is_of_the_start_and_names_what_changed_until_the_end(tmp_path, monkeypatch):
    program = tmp_path / "hedgerowd"
    program.write_bytes(b"one build")
    results = outcome.Results("x", tmp_path / "results")
    programs.noted(program)
    made = results.manifest({})
    assert made["changed_meanwhile"] == [] and made["started"] <= made["finished"]
    program.write_bytes(b"another build")
    of_now = dict(manifest.commit())
    monkeypatch.setattr(manifest, "commit", lambda: {**of_now, "commit": "f" * 40})
    later = results.manifest({})
    assert later["changed_meanwhile"] == ["commit", "hedgerowd"]
    assert (later["commit"], later["binaries"]["hedgerowd"]) == (made["commit"], made["binaries"]["hedgerowd"])
    program.unlink()
    programs._hashes.pop(program)


def _run(p99_ms, hedges, lost=0):
    latency = Histogram()
    for _ in range(100):
        latency.record(int(p99_ms * 1e6))
    return {"n": 100, "lost": lost, "client": {"histograms": {"latency": latency.to_json()}}, "fire_error_p50_us": 1.0,
            "fire_error_p99_us": p99_ms, "hedges": hedges, "extra_load": 0.02, "cpu_us_per_request": 5.0, "config_hash": "h"}


def test_rows_are_of_all_requests_together_and_sums():
    row = seed_hedge.row_of("closed", "idle", "wheel", [_run(1.0, 2), _run(9.0, 3, lost=1), _run(2.0, 0)])
    assert (row["runs"], row["n"], row["lost"], row["hedges"]) == (3, 300, 1, 5)
    assert row["p99_ms"] == pytest.approx(9, rel=0.01) and row["max_ms"] == 9.0
    assert row["fire_error_p99_us"] == 5.0, "a run without a hedge has no fire error"


def test_where_the_kernel_has_no_sum_of_all_tasks_there_is_no_figure(monkeypatch):
    monkeypatch.setattr(cpu_time.Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError()))
    with pytest.raises(RuntimeError, match="CONFIG_SCHEDSTATS"):
        cpu_time.all_tasks_us()


def test_experiment_time_is_its_processes_and_the_kernels_rest():
    before = cpu_time.Sample(0, 0, 1_000, 0, {1: 100})
    # One second on every CPU, half of it idle; tasks ran for 40 % of the machine, 10 % went to interrupts.
    machine_us = 1_000_000 * cpu_time._CPUS
    after = cpu_time.Sample(1_000_000, machine_us // 2, 1_000 + machine_us * 4 // 10, 0, {1: 30_100, 2: 5_000})
    passed = cpu_time.spent(before, after)
    assert passed.processes_us == 35_000
    assert passed.kernel_us == machine_us // 10
    assert passed.experiment_us == 35_000 + machine_us // 10
