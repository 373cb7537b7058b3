# SPDX-License-Identifier: Apache-2.0
"""The run of everything: what it takes in, what it leaves out, how it judges and what it tells; no lab is needed."""

import dataclasses
import json
import types

import pytest

from bench.outcome import Check, Results
from chaos import all as everything
from chaos import network, scenario, unavailable
from chaos.block import Block
from chaos.cell import row_of
from chaos.systems import Settings
from tests import needs


def arguments(*argv: str):
    return everything.parse(["--quick", *argv])


def met(what: str = "events", is_met: bool = True) -> Check:
    return Check(what, ">= 1", "0", is_met)


def test_everything_is_run_within_the_quick_runs_time():
    todo = everything.parts(arguments())
    assert {part.name for part in todo} == {*scenario.names(), *everything.BESIDE}
    assert all(part.of.parse([*part.argv]).quiet_wait == 0 for part in todo)
    # A rough guess, of what the run itself is judged by.
    assert sum(part.guess_s for part in todo) / 60 == pytest.approx(everything.QUICK_MINUTES, rel=0.1)


def test_some_can_be_named_and_planted_mistakes_are_for_scenarios():
    assert [part.name for part in everything.parts(arguments("--only=network-faults,upgrade"))] == ["network-faults", "upgrade"]
    planted = everything.parts(arguments("--plant=lost-write"))
    assert {part.name for part in planted} == set(scenario.names())
    assert all(part.of.parse([*part.argv]).plant == "lost-write" for part in planted)


def test_what_breaks_is_told_and_the_others_go_on(tmp_path, capsys):
    def breaks(_raw) -> everything.Outcome:
        raise KeyError("no such node")

    results = Results("x", tmp_path)
    outcomes = everything.run_all([types.SimpleNamespace(name="one", guess_s=1, run=breaks, again="./dev chaos one"),
                                   types.SimpleNamespace(name="two", guess_s=1, run=lambda _raw: everything.Outcome("two", checks=[met()]), again="")],
                                  results)
    assert [outcome.verdict for outcome in outcomes] == ["BROKE", "held"]
    assert "no such node" in (results.raw / "one.broke").read_text(encoding="utf-8")
    assert "[1/2, " in (said := capsys.readouterr().out) and "min left] one" in said and "KeyError" in said


@needs.JUDGES
@pytest.mark.parametrize("outcomes, status", [
    ([everything.Outcome("a", checks=[met()])], 0),
    ([everything.Outcome("a", checks=[met()]), everything.Outcome("b", checks=[met(), met("lost", False)])], 1),
    ([everything.Outcome("a", broke="ServerFailed: node 1")], 1)])
def test_the_exit_status_is_the_worst_verdict(outcomes, status, tmp_path, capsys):
    outcomes[-1].again = "./dev chaos again"
    results = Results("x", tmp_path)
    assert everything.conclude(outcomes, results, arguments(), 60.0) == status
    said = capsys.readouterr().out
    assert ("./dev chaos again" in said) is bool(outcomes[-1].missed)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="ascii"))
    assert [row["scenario"] for row in summary["rows"]] == [outcome.name for outcome in outcomes]


@needs.JUDGES
def test_a_quick_run_must_be_quick(tmp_path, capsys):
    outcomes = [everything.Outcome("a", checks=[met()])]
    assert everything.conclude(outcomes, Results("x", tmp_path), arguments(), everything.QUICK_MINUTES * 60 + 60.0) == 1
    assert everything.conclude(outcomes, Results("x", tmp_path), everything.parse(["--full"]), everything.QUICK_MINUTES * 60 + 60.0) == 0


def _judged(tmp_path, length: str, checks: list[Check]) -> list[Check]:
    file = tmp_path / "summary.json"
    file.write_text(json.dumps({"checks": list(map(dataclasses.asdict, checks)), "rows": [{"changes": 10}],
                                "manifest": {"configs": {}}}), encoding="ascii")
    (network_,) = everything.parts(everything.parse([f"--{length}", "--only=network"]))
    return network_.judged(file).checks


def test_a_quick_run_judges_all_that_its_length_allows_whatever_it_is_called(tmp_path):
    """Ten changes of the network, after each of which `status` was wrong and the kernel thought otherwise."""
    each = [{"kind": kind, "at_s": 2.0, "took_s": 2.0, "wrong": "no uplink", "agreed": False} for kind in network.Machine.KINDS * 2]
    row = network.row_of((20_000, 20_000), [], [], each, 7, {"seconds": 10.0})
    checks = network.must_show([row])
    assert [check.what for check in _judged(tmp_path, "quick", checks) if not check.met] == [
        "changes after which status was wrong", "changes that the kernel understood in another way"]
    kept = [check.what for check in _judged(tmp_path, "quick", checks)]
    assert [check.what for check in checks if check.what not in kept] == [
        "changes", "changes that were followed after a second or later"]
    assert len(_judged(tmp_path, "full", checks)) == len(checks)


def test_where_nothing_is_judged_nothing_held(tmp_path, capsys):
    outcomes = [everything.Outcome("a", checks=[])]
    assert everything.conclude(outcomes, Results("x", tmp_path), arguments(), 60.0) == 1
    assert "nothing was judged" in everything.line_of(outcomes[0])
    assert everything.conclude([], Results("x", tmp_path), arguments("--only=flood", "--plant=lost-write"), 60.0) == 1


def test_a_row_stands_for_all_of_its_blocks():
    def block(offloads: list[str], spin: str) -> dict:
        verdict = {"acked_lost": 0, "double_applied": 0, "linearizable": True, "agreed": True, "checkers": {}}
        report = {"sent": 9, "duplicates": 0, "timed_out": 0, "errors": {}, "send_failed": 0}
        measured = Block([], [unavailable.Cost(9, 0, 1.0, 1.0, 1.0, 1.0, [])], report, verdict, 0, None, 0.0, offloads,
                         dataclasses.asdict(Settings("memory", 3)), [], [])
        return {**dataclasses.asdict(measured), "events_wanted": 1, "config_hash": f"of {spin}"}

    def row(*blocks: dict) -> dict:
        return row_of(scenario.load("leader-kill"), "memory", "hedgerow", blocks)

    two = block(["append", "heartbeat"], "50us"), block(["heartbeat"], "50us")
    assert row(*two)["offloads"] == ["heartbeat"] and row(*two)["config_hash"] == "of 50us"
    assert row(*two, block(["heartbeat"], "0us"))["config_hash"] == "of 50us,of 0us"


@pytest.mark.parametrize("argv", [[], ["--quick", "--full"], ["--quick", "--only=no-such"], ["--quick", "--events=0"],
                                  ["--quick", "--plant=nothing"]])
def test_a_wrong_command_line_is_refused(argv):
    with pytest.raises(SystemExit):
        everything.parse(argv)
