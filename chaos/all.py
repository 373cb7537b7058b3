# SPDX-License-Identifier: Apache-2.0
"""Every scenario, one after the other, against our store behind the proxy; then the experiments beside them (daemons, floods, false
elections). One table, results/chaos-all/summary.json, and an exit status: 0 when everything held.

    ./dev chaos all --quick                     # a few events of each, at most 28 minutes on two processors
    ./dev chaos all --full                      # the number of events that each scenario's file names; a night
    ./dev chaos all --quick --only network-faults,ring-partition
    ./dev chaos all --quick --plant lost-write  # a mistake on purpose in each: the judgement must find every one

A scenario that needs a command which this build does not have yet is left out, and said to be. What breaks is judged as missed, and
the others go on.
"""

import argparse
import dataclasses
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from bench import experiment
from bench.outcome import Check, Results, at_least, at_most
from chaos import beside, plants, scenario
from chaos.cell import Cell, block_sizes, one_block
from chaos.judgement import require_checkers
from chaos.promises import held
from chaos.run import settings_of
from chaos.scenario import Scenario
from deploy.lab import CommandFailed, Lab, LabInUse

NAME = "chaos-all"
TAG = "chaosall"
QUICK_MINUTES = 28
_BESIDE_S = {"quick": 75.0, "full": 600.0}  # for the first guess of what is left


@dataclasses.dataclass
class Outcome:
    """Of one scenario, or of one experiment beside them."""

    name: str
    row: dict = dataclasses.field(default_factory=dict)
    checks: list[Check] = dataclasses.field(default_factory=list)
    broke: str = ""  # why nothing could be judged
    seconds: float = 0.0
    again: str = ""  # the command that does it again
    configs: dict[str, dict] = dataclasses.field(default_factory=dict)

    @property
    def missed(self) -> list[Check]:
        return [check for check in self.checks if not check.met]

    @property
    def verdict(self) -> str:
        return "BROKE" if self.broke else "MISSED" if self.missed or not self.checks else "held"

    def as_row(self) -> dict:
        return {"scenario": self.name, **self.row, "verdict": self.verdict, "broke": self.broke,
                "missed": [f"{check.what}: {check.figure} (wanted {check.wanted})" for check in self.missed],
                "seconds": round(self.seconds, 1)}


def run_scenario(what: Scenario, events: int, arguments: argparse.Namespace, results: Results) -> Outcome:
    outcome = Outcome(what.name)
    cell = Cell("hedgerow", settings_of(what, what.run.mode, what.run.replicas))
    with Lab(arguments.lab, replicas=what.run.replicas) as lab:
        for number, size in enumerate(block_sizes(events), start=1):
            one_block(lab, cell, what, size, arguments.seed + number, f"{what.name}-{number:02d}", results, arguments.plant)
    outcome.row = cell.row(what)
    outcome.configs = cell.configs
    checks = held(outcome.row, events, what)
    if arguments.plant:
        found = plants.found(arguments.plant, outcome.row) and any(not check.met for check in checks)
        checks = [at_least(f"{arguments.plant} is found", int(found), 1)]
    else:
        checks.append(at_most("histories on which the checkers do not agree", outcome.row["checkers_disagree"], 0))
    outcome.checks = checks
    return outcome


def run_beside(experiment_: beside.Beside, arguments: argparse.Namespace, results: Results) -> Outcome:
    done = experiment_.run(arguments.length, results.raw)
    return Outcome(experiment_.name, {"events": done.amount}, done.checks, configs=done.configs)


@dataclasses.dataclass
class Item:
    name: str
    guess_s: float
    run: Callable[[], Outcome]
    again: str


def items(arguments: argparse.Namespace, results: Results) -> list[Item]:
    found = []
    for what in map(scenario.load, scenario.names()):
        if arguments.only and what.name not in arguments.only:
            continue
        events = arguments.events or getattr(what.run, arguments.length)
        found.append(Item(what.name, guess_s(what, events),
                          lambda what=what, events=events: run_scenario(what, events, arguments, results),
                          f"./dev chaos {what.name} --events {events} --seed {arguments.seed} --systems hedgerow"))
    for other in beside.ALL:
        if arguments.plant or (arguments.only and other.name not in arguments.only):
            continue
        found.append(Item(other.name, _BESIDE_S[arguments.length],
                          lambda other=other: run_beside(other, arguments, results), f"./dev chaos {other.name}"))
    return found


def guess_s(what: Scenario, events: int) -> float:
    """How long it takes, roughly; what is left is guessed from that and from how long the others took."""
    of_an_event = what.lasts_s + sum(scenario.PAUSE_S) / 2 + 2 + (8 if "rolling-restart" in what.kinds else 0)
    return len(block_sizes(events)) * (10 + 2 * what.run.replicas) + events * of_an_event


def run_all(todo: list[Item], results: Results) -> list[Outcome]:
    outcomes, started_s, guessed_s = [], time.monotonic(), 0.0
    for number, item in enumerate(todo, start=1):
        begun_s = time.monotonic()
        try:
            outcome = item.run()
        except LabInUse:
            raise
        except Exception as error:  # whatever it is, the others are to be judged
            outcome = Outcome(item.name, broke=f"{type(error).__name__}: {error}")
            (results.raw / f"{item.name}.broke").write_text(traceback.format_exc(), encoding="utf-8")
        outcome.again = item.again
        outcome.seconds = time.monotonic() - begun_s
        outcomes.append(outcome)
        guessed_s += item.guess_s
        pace = (time.monotonic() - started_s) / guessed_s
        left_s = pace * sum(each.guess_s for each in todo[number:])
        print(f"[{number}/{len(todo)}, {left_s / 60:.0f} min left] {line_of(outcome)}", flush=True)
    return outcomes


def line_of(outcome: Outcome) -> str:
    row = outcome.row
    figures = ""
    if "operations" in row:
        figures = (f"{row['events']:3} events {row['operations']:7} operations, errors {row['client_errors']:4}, lost "
                   f"{row['acked_lost']}, twice {row['double_applied']}, worst wait {row['unavailable_max_ms']:6.0f} ms, ")
    why = "".join(f"; {check.what}: {check.figure}" for check in outcome.missed) or ("" if outcome.checks else ": nothing was judged")
    why = f": {outcome.broke.splitlines()[0]}" if outcome.broke else why
    return f"{outcome.name:21} {figures}{outcome.seconds:4.0f} s  {outcome.verdict}{why}"


def conclude(outcomes: list[Outcome], results: Results, arguments: argparse.Namespace, seconds: float) -> int:
    rows = [outcome.as_row() for outcome in outcomes]
    checks = [Check(outcome.name, "held", outcome.verdict, outcome.verdict == "held") for outcome in outcomes]
    if arguments.length == "quick" and not arguments.only and not arguments.events:
        checks.append(at_most("minutes, all of it", seconds / 60, QUICK_MINUTES))
    configs = {key: config for outcome in outcomes for key, config in outcome.configs.items()}
    described = results.manifest(configs, length=arguments.length, seed=arguments.seed, plant=arguments.plant,
                         minutes=round(seconds / 60, 1))
    print()
    status = experiment.conclude(results, described, rows, checks, {
        "scenario": "scenario", "verdict": "verdict", "mode": "mode", "events": "events", "operations": "operations",
        "client_errors": "errors", "acked_lost": "lost", "double_applied": "twice", "linearizable": "linearizable",
        "unavailable_max_ms": "worst wait ms", "seconds": "s"}, None)
    for outcome in outcomes:
        for check in outcome.missed:
            print(f"\n{outcome.name}: {check.what}: {check.figure}, wanted {check.wanted}\n  again: {outcome.again}")
        if outcome.broke:
            print(f"\n{outcome.name}: {outcome.broke}")
    print(f"\n{seconds / 60:.1f} minutes; {results.folder / 'summary.json'}, histories and what happened in {results.raw}")
    return status


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos all", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--quick", dest="length", action="store_const", const="quick", help="a few events of each")
    length.add_argument("--full", dest="length", action="store_const", const="full", help="as many as each file says")
    known = [*scenario.names(), *(other.name for other in beside.ALL)]
    parser.add_argument("--only", type=experiment.some_of(known), metavar="NAMES", help="these alone, with commas between them")
    parser.add_argument("--events", type=int, help="of each scenario, whatever its file says")
    parser.add_argument("--plant", choices=plants.PLANTS, help="a mistake on purpose in each scenario, which must be found")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path, metavar="FOLDER", help=f"write there, not to results/{NAME}")
    parser.add_argument("--lab", default=TAG, help=f"tag of the lab and instance of the proxy (default: {TAG})")
    arguments = parser.parse_args(argv)
    if arguments.events is not None and not 1 <= arguments.events <= 1000:
        parser.error("--events must be 1 to 1000")
    return arguments


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    try:
        require_checkers()
        results = experiment.results(NAME, arguments)
        todo = items(arguments, results)
        print(f"{len(todo)} scenarios and experiments, about {sum(item.guess_s for item in todo) / 60:.0f} minutes\n", flush=True)
        started_s = time.monotonic()
        outcomes = run_all(todo, results)
    except CommandFailed as error:
        print(f"chaos all: {error}", file=sys.stderr)
        return 1
    return conclude(outcomes, results, arguments, time.monotonic() - started_s)
