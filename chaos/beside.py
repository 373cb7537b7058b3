# SPDX-License-Identifier: Apache-2.0
"""The experiments that `./dev chaos all` runs beside the scenarios: they have loads and figures of their own. In a quick run they are
short, and checks that need their full length, or a machine that does nothing else, are not judged (`needs_full` of bench/outcome.py).
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.outcome import Check
from chaos import flood, network, no_false_elections, rotate_keys, steer_starts, upgrade, worker_churn
from deploy.lab import CommandFailed


@dataclasses.dataclass(frozen=True)
class Done:
    amount: int  # of events, hooks or seconds
    checks: list[Check]
    configs: dict[str, dict]


@dataclasses.dataclass(frozen=True)
class Beside:
    name: str  # for ./dev chaos
    main: Callable[[list[str]], int]
    quick: tuple[str, ...]  # arguments
    amount: Callable[[list[Mapping]], int]  # of the rows

    def run(self, length: str, raw: Path) -> Done:
        """What it prints goes into a file beside its results."""
        folder = raw / self.name
        folder.mkdir()
        with open(folder / "output", "w", encoding="utf-8") as said, contextlib.redirect_stdout(said):
            self.main([*(self.quick if length == "quick" else ()), f"--into={folder}"])
        return self.judged(folder / "summary.json", length)

    def judged(self, summary_file: Path, length: str) -> Done:
        if not summary_file.exists():
            raise CommandFailed(f"{self.name} has written no summary; {summary_file.parent / 'output'} says why")
        summary = json.loads(summary_file.read_text(encoding="ascii"))
        checks = [Check(**check) for check in summary["checks"] if length == "full" or not check["needs_full"]]
        return Done(self.amount(summary["rows"]), checks, summary["manifest"]["configs"])


ALL = (
    Beside("upgrade", upgrade.main, ("--events=4", "--quiet-wait=0"), lambda rows: max(row["events"] for row in rows)),
    Beside("flood", flood.main, ("--rounds=1", "--settle=3", "--seconds=1.5", "--warm-up=0.5", "--pause=0.5", "--quiet-wait=0"), len),
    Beside("no-false-elections", no_false_elections.main, ("--seconds=60", "--quiet-wait=0"),
           lambda rows: int(sum(row["seconds"] for row in rows))),
    Beside("rotate-keys", rotate_keys.main, ("--changes=3", "--quiet-wait=0"),
           lambda rows: sum(row["changes"] for row in rows)),
    Beside("network", network.main, ("--changes=10", "--quick"), lambda rows: sum(row["changes"] for row in rows)),
    Beside("worker-churn", worker_churn.main, ("--quick", "--events=12"), lambda rows: sum(row["events"] for row in rows)),
    Beside("steer-starts", steer_starts.main, ("--quick",), lambda rows: sum(row.get("starts", 0) for row in rows)),
)
