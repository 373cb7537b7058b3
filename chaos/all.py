# SPDX-License-Identifier: Apache-2.0
"""Every scenario, one after the other, against our store behind the proxy; then the experiments beside them (daemons, floods, false
elections). One table, results/chaos-all/summary.json, and an exit status: 0 when everything held.

    ./dev chaos all --quick                     # a few events of each, at most 28 minutes on two processors
    ./dev chaos all --full                      # the number of events that each scenario's file names; a night
    ./dev chaos all --quick --only network-faults,ring-partition
    ./dev chaos all --quick --plant lost-write  # a mistake on purpose in each: the judgement must find every one

What breaks is judged as missed, and the others go on. Each leaves a folder of its own in raw/.
"""

import argparse
import contextlib
import dataclasses
import json
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import experiment
from bench.outcome import Check, Results, at_most
from chaos import flood, network, no_false_elections, plants, rotate_keys, scenario, steer_starts, upgrade, worker_churn
from chaos.cell import block_sizes
from chaos.judgement import require_checkers
from chaos.run import experiment_of
from chaos.scenario import Scenario
from deploy.lab import CommandFailed, LabInUse

NAME = "chaos-all"
TAG = "chaosall"
QUICK_MINUTES = 28
_BESIDE_S = {"quick": 75.0, "full": 600.0}  # for the first guess of what is left
# The experiments beside the scenarios: how a quick run shortens each, and the rows' field that says how much it was.
BESIDE = {each.name.removeprefix("chaos-"): (each, quick.split(), amount) for each, quick, amount in (
    (upgrade.EXPERIMENT, "--events=4 --quiet-wait=0", "events"),
    (flood.EXPERIMENT, "--rounds=1 --settle=3 --seconds=1.5 --warm-up=0.5 --pause=0.5 --quiet-wait=0", "runs"),
    (no_false_elections.EXPERIMENT, "--seconds=60 --quiet-wait=0", "seconds"), (rotate_keys.EXPERIMENT, "--changes=3 --quiet-wait=0", "changes"),
    (network.EXPERIMENT, "--changes=10 --quick", "changes"), (worker_churn.EXPERIMENT, "--quick --events=12", "events"),
    (steer_starts.EXPERIMENT, "--quick", "starts"))}


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


@dataclasses.dataclass(frozen=True)
class Part:
    """A scenario, or an experiment beside them, with its arguments."""

    of: experiment.Experiment
    argv: Sequence[str]
    guess_s: float
    amount: str = ""  # of an experiment beside the scenarios, whose rows are not shown
    brief: bool = True  # what needs the full length, or a machine that does nothing else, is not judged (`needs_full` of bench/outcome.py)

    @property
    def name(self) -> str:
        return self.of.name.removeprefix("chaos-")

    @property
    def again(self) -> str:
        return " ".join(["./dev chaos", self.name, *(word for word in self.argv if not word.startswith(("--lab=", "--quiet-wait=")))])

    def run(self, raw: Path) -> Outcome:
        """What it prints goes into a file beside its results."""
        folder = raw / self.name
        folder.mkdir()
        with open(folder / "output", "w", encoding="utf-8") as said, contextlib.redirect_stdout(said):
            dataclasses.replace(self.of, charts=None).main([*self.argv, f"--into={folder}"])
        return self.judged(folder / "summary.json")

    def judged(self, summary_file: Path) -> Outcome:
        if not summary_file.exists():
            raise CommandFailed(f"{self.name} has written no summary; {summary_file.parent / 'output'} says why")
        summary = json.loads(summary_file.read_text(encoding="ascii"))
        rows: list[Mapping] = summary["rows"]
        return Outcome(self.name, {"events": int(sum(row.get(self.amount, 0) for row in rows))} if self.amount else rows[0],
                       [Check(**check) for check in summary["checks"] if not (self.brief and check["needs_full"])],
                       configs=summary["manifest"]["configs"])


def parts(arguments: argparse.Namespace) -> list[Part]:
    found, quick = [], arguments.length == "quick"
    for what in map(scenario.load, scenario.names()):
        events = arguments.events or getattr(what.run, arguments.length)
        found.append(Part(experiment_of(what), [f"--events={events}", f"--seed={arguments.seed}", "--systems=hedgerow", "--quiet-wait=0",
                                                f"--lab={arguments.lab}", *([f"--plant={arguments.plant}"] if arguments.plant else [])],
                          guess_s(what, events)))
    if not arguments.plant:
        found += [Part(each, short if quick else [], _BESIDE_S[arguments.length], amount, quick) for each, short, amount in BESIDE.values()]
    return [part for part in found if not arguments.only or part.name in arguments.only]


def guess_s(what: Scenario, events: int) -> float:
    """How long it takes, roughly; what is left is guessed from that and from how long the others took."""
    of_an_event = what.lasts_s + sum(scenario.PAUSE_S) / 2 + 2 + (8 if "rolling-restart" in what.kinds else 0)
    return len(block_sizes(events)) * (10 + 2 * what.run.replicas) + events * of_an_event


def run_all(todo: list[Part], results: Results) -> list[Outcome]:
    outcomes, started_s, guessed_s = [], time.monotonic(), 0.0
    for number, part in enumerate(todo, start=1):
        begun_s = time.monotonic()
        try:
            outcome = part.run(results.raw)
        except LabInUse:
            raise
        except Exception as error:  # whatever it is, the others are to be judged
            outcome = Outcome(part.name, broke=f"{type(error).__name__}: {error}")
            (results.raw / f"{part.name}.broke").write_text(traceback.format_exc(), encoding="utf-8")
        outcome.again = part.again
        outcome.seconds = time.monotonic() - begun_s
        outcomes.append(outcome)
        guessed_s += part.guess_s
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
    known = [*scenario.names(), *BESIDE]
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
    require_checkers()
    results, todo = experiment.results(NAME, arguments), parts(arguments)
    print(f"{len(todo)} scenarios and experiments, about {sum(part.guess_s for part in todo) / 60:.0f} minutes\n", flush=True)
    started_s = time.monotonic()
    outcomes = run_all(todo, results)
    return conclude(outcomes, results, arguments, time.monotonic() - started_s)
