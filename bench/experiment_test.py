# SPDX-License-Identifier: Apache-2.0
"""The runner: systems take turns, a run that was cut short is gone on with, and a summary is made of the raw files alone."""

import argparse
import dataclasses
import json
import subprocess

import pytest

from bench import cpu_time, experiment, outcome
from bench.histogram import Histogram, percentiles
from bench.outcome import at_least, at_most, paired_at_most, print_checks

TOY = experiment.Experiment(
    "toy", "A toy.", ("load", "system"), lambda rows: [at_least("runs", min(row["runs"] for row in rows), 2),
                                                       at_most("worst", max(row["worst"] for row in rows), 10)],
    lambda load, system, runs: [{"load": load, "system": system, "runs": len(runs), "worst": max(run["value"] for run in runs),
                                 "config_hash": runs[0]["config_hash"]}],
    {"load": "load", "system": "system", "runs": "runs", "worst": "worst"}, measure=lambda running, arguments: None, rounds=2)


def run(folder, values=lambda turn: turn.round, cut_after: int | None = None, *options: str) -> tuple[int, list[tuple]]:
    """The exit status, and which turns were taken."""
    taken = []

    def measure(running, arguments):
        for turn in running.turns(load=["idle", "stress"], system=["ours", "theirs", "none"]):
            if len(taken) == cut_after:
                raise KeyboardInterrupt
            taken.append((turn.round, turn["load"], turn["system"]))
            turn.done({"value": values(turn), "config": {"system": turn["system"]}})

    try:
        return dataclasses.replace(TOY, measure=measure).main([f"--into={folder}", "--quiet-wait=0", *options]), taken
    except KeyboardInterrupt:
        return 130, taken


def test_the_command_line_is_declared_and_a_quick_run_has_other_defaults(capsys):
    toy = dataclasses.replace(TOY, quick={"rounds": 1, "seconds": 0.5}, options=(
        experiment.some("--systems", ["ours", "theirs"]), experiment.number("--seconds", 2.0, 0.1, 60), experiment.number("--events", 5, 1, 9)))
    whole, quick = toy.parse([]), toy.parse(["--quick", "--events=3"])
    assert (whole.rounds, whole.seconds, whole.events, whole.systems, whole.quick) == (2, 2.0, 5, ["ours", "theirs"], False)
    assert (quick.rounds, quick.seconds, quick.events, quick.quick) == (1, 0.5, 3, True) and toy.parse(["--quick", "--seconds=9"]).seconds == 9
    for wrong in ("--seconds=61", "--events=0", "--events=1.5", "--systems=none"):
        with pytest.raises(SystemExit):
            toy.parse([wrong])
    assert "'61' is not 0.1 to 60" in capsys.readouterr().err


def test_a_run_says_what_its_rows_say(tmp_path, capsys):
    run(tmp_path)
    assert "[12/12, 0 min left] round 2 stress ours  worst 2\n" in capsys.readouterr().out
    options = json.loads((tmp_path / "summary.json").read_text())["manifest"]["options"]
    assert options == {"rounds": 2, "quiet_wait": 0.0}


def test_systems_take_turns_and_the_first_round_is_as_declared(tmp_path):
    status, taken = run(tmp_path)
    assert status == 0
    assert [system for number, load, system in taken if load == "idle"] == ["ours", "theirs", "none", "theirs", "none", "ours"]
    rows = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert [(row["load"], row["system"], row["runs"]) for row in rows][:3] == [("idle", "ours", 2), ("idle", "theirs", 2), ("idle", "none", 2)]


def _ended_processes(folder, monkeypatch):
    """What this process left unfinished belongs to one that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    for left in folder.glob("raw-unfinished-*"):
        left.rename(folder / f"raw-unfinished-{ended.pid}-{left.name.rpartition('-')[2]}")


def test_a_run_that_was_cut_short_is_resumed_in_its_order_with_the_same_verdict(tmp_path, monkeypatch):
    whole_status, whole = run(tmp_path / "whole")
    status, first = run(tmp_path / "cut", cut_after=4)
    assert status == 130 and not (tmp_path / "cut" / "summary.json").exists()
    _ended_processes(tmp_path / "cut", monkeypatch)
    status, rest = run(tmp_path / "cut", lambda turn: turn.round, None, "--resume")
    assert first + rest == whole and status == whole_status
    read = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "cut")]
    assert read[0]["rows"] == read[1]["rows"] and read[0]["checks"] == read[1]["checks"] and read[1]["manifest"]["resumed"]
    assert run(tmp_path / "cut")[1] == whole, "without --resume all is measured again"


def test_a_part_of_another_build_is_not_resumed(tmp_path, monkeypatch):
    run(tmp_path, cut_after=4)
    _ended_processes(tmp_path, monkeypatch)
    (left,) = tmp_path.glob("raw-unfinished-*")
    started = json.loads((left / "started.manifest").read_text())
    (left / "started.manifest").write_text(json.dumps({**started, "commit": "f" * 40}))
    with pytest.raises(SystemExit, match="cannot be resumed"):
        run(tmp_path, lambda turn: 1, None, "--resume")


def test_a_verdict_is_made_again_of_the_raw_files(tmp_path, capsys):
    """A planted summary that claims more than its raw files hold is found out."""
    assert run(tmp_path, lambda turn: 11 if turn["system"] == "ours" else 1)[0] == 1
    file = tmp_path / "summary.json"
    honest = json.loads(file.read_text())
    planted = {**honest, "rows": [{**row, "worst": 1} for row in honest["rows"]], "checks": [{**check, "met": True} for check in honest["checks"]]}
    file.write_text(json.dumps(planted))
    assert not experiment.judge(TOY, tmp_path)
    assert json.loads(file.read_text()) == honest


@pytest.mark.parametrize("given, folder", [
    ({}, "toy"), ({"rounds": 10}, "toy"), ({"rounds": 9}, "toy-short"), ({"quick": True}, "toy-short"), ({"length": "quick"}, "toy-short"),
    ({"length": "full"}, "toy"), ({"plant": "lost-write", "quick": True}, "toy-plant-lost-write")])
def test_a_planted_or_shortened_run_does_not_take_the_place_of_the_real_one(given, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(outcome, "ROOT", tmp_path)
    results = experiment.results("toy", argparse.Namespace(**{"into": None, "rounds": 10, "stated_rounds": 10, "plant": "", **given}))
    assert results.folder == tmp_path / "results" / folder and results.name == "toy", "by its name its checks are found again"


def test_one_experiment_at_a_time_measures(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "_MACHINE", tmp_path / "lock")
    with experiment.the_machine(True):
        with pytest.raises(SystemExit, match="another experiment"):
            with experiment.the_machine(True):
                pass
        with experiment.the_machine(False):
            pass


def test_a_manifest_says_how_many_runs_began_on_a_busy_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_time, "busy_share", lambda _seconds: 0.9)
    assert cpu_time.wait_until_quiet(at_most_s=0.01) is False and cpu_time.wait_until_quiet(at_most_s=0) is None
    monkeypatch.setattr(cpu_time, "wait_until_quiet", lambda **_: False)
    run(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["manifest"]["runs_not_quiet"] == 12


def test_percentiles_are_of_all_runs_together_and_the_maximum_is_the_maximum():
    def latency(*values_ms: float) -> Histogram:
        histogram = Histogram()
        for value in values_ms:
            histogram.record(int(value * 1e6))
        return histogram

    runs = [latency(*[1.0] * 100)] * 7 + [latency(*[1.0] * 80, *[500.0] * 20)] * 3
    found = percentiles(runs)
    assert found["p99_ms"] == pytest.approx(500, rel=0.01) and found["max_ms"] == 500.0 and found["p50_ms"] == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("ratios, limit, verdict", [
    ([0.9, 0.95, 0.92, 0.91], 1.0, "met"), ([1.2, 1.25, 1.3, 1.21], 1.0, "missed"), ([0.5, 1.6, 0.7, 1.4, 0.9], 1.0, "undecided"), ([0.5, 0.5], 1.0, "undecided"), ([], 1.0, "not measured")])
def test_a_machine_too_noisy_for_a_verdict_gives_none(ratios, limit, verdict, capsys):
    check = paired_at_most("p99 / theirs", ratios, limit)
    assert check.said == verdict and check.met is (verdict == "met")
    assert print_checks([check]) is (verdict == "met")


def test_what_is_left_takes_as_long_as_what_is_done(monkeypatch, capsys):
    now_s = [1000.0]
    monkeypatch.setattr(experiment.time, "monotonic", lambda: now_s[0])
    progress = experiment.Progress(3)
    for passed_s in (600.0, 300.0, 60.0):
        now_s[0] += passed_s
        progress.done(f"took {passed_s:.0f} s")
    assert capsys.readouterr().out.splitlines() == [
        "[1/3, 20 min left] took 600 s", "[2/3, 8 min left] took 300 s", "[3/3, 0 min left] took 60 s"]


def test_names_that_are_not_known_are_refused():
    names = experiment.some_of(["a", "b"])
    assert names("b,a") == ["b", "a"]
    with pytest.raises(argparse.ArgumentTypeError, match="'c' is none of a, b"):
        names("a,c")
