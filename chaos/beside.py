# SPDX-License-Identifier: Apache-2.0
"""The experiments that `./dev chaos all` runs beside the scenarios: they have loads and figures of their own. In a quick run they are
short, and checks that need their full length, or a machine that does nothing else, are not judged (`needs_full` of bench/outcome.py).
"""

import contextlib
import dataclasses
import json
from pathlib import Path

from bench.experiment import Experiment
from bench.outcome import Check
from chaos import flood, network, no_false_elections, rotate_keys, steer_starts, upgrade, worker_churn
from deploy.lab import CommandFailed


@dataclasses.dataclass(frozen=True)
class Done:
    amount: int  # of events, runs or seconds
    checks: list[Check]
    configs: dict[str, dict]


@dataclasses.dataclass(frozen=True)
class Beside:
    of: Experiment
    quick: tuple[str, ...]  # arguments
    amount: str  # the rows' field that says how much there was

    @property
    def name(self) -> str:
        """For ./dev chaos."""
        return self.of.name.removeprefix("chaos-")

    def run(self, length: str, raw: Path) -> Done:
        """What it prints goes into a file beside its results."""
        folder = raw / self.name
        folder.mkdir()
        with open(folder / "output", "w", encoding="utf-8") as said, contextlib.redirect_stdout(said):
            self.of.main([*(self.quick if length == "quick" else ()), f"--into={folder}"])
        return self.judged(folder / "summary.json", length)

    def judged(self, summary_file: Path, length: str) -> Done:
        if not summary_file.exists():
            raise CommandFailed(f"{self.name} has written no summary; {summary_file.parent / 'output'} says why")
        summary = json.loads(summary_file.read_text(encoding="ascii"))
        checks = [Check(**check) for check in summary["checks"] if length == "full" or not check["needs_full"]]
        return Done(int(sum(row.get(self.amount, 0) for row in summary["rows"])), checks, summary["manifest"]["configs"])


ALL = (
    Beside(upgrade.EXPERIMENT, ("--events=4", "--quiet-wait=0"), "events"),
    Beside(flood.EXPERIMENT, ("--rounds=1", "--settle=3", "--seconds=1.5", "--warm-up=0.5", "--pause=0.5", "--quiet-wait=0"), "runs"),
    Beside(no_false_elections.EXPERIMENT, ("--seconds=60", "--quiet-wait=0"), "seconds"),
    Beside(rotate_keys.EXPERIMENT, ("--changes=3", "--quiet-wait=0"), "changes"),
    Beside(network.EXPERIMENT, ("--changes=10", "--quick"), "changes"),
    Beside(worker_churn.EXPERIMENT, ("--quick", "--events=12"), "events"),
    Beside(steer_starts.EXPERIMENT, ("--quick",), "starts"))
