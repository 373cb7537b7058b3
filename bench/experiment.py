# SPDX-License-Identifier: Apache-2.0
"""What every experiment shares: its command line, what it says while it runs, and how it ends (summary, table, what it must
show, plot)."""

import argparse
import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bench.outcome import Check, Results, print_checks, print_table


def parser(name: str, description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"bench {name}", description=description)
    made.add_argument("--rounds", type=int, default=10)
    _add_quiet_wait_and_into(made, name)
    return made


def add_run_options(parser: argparse.ArgumentParser, name: str, tag: str) -> None:
    """Those of every run in a lab that writes results."""
    _add_quiet_wait_and_into(parser, name)
    parser.add_argument("--lab", default=tag, help=f"tag of the lab and instance of the proxy (default: {tag})")


def _add_quiet_wait_and_into(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--quiet-wait", type=float, default=30.0,
                        help="seconds to wait at most for an idle machine before each run")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help=f"write there, not to results/{name}")


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """For an option's type: names with commas between them, each of which must be known."""
    known = list(known)

    def names(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return text.split(",")

    return names


class Progress:
    """A line for each run that is done, with the time that the others will take if they are like those."""

    def __init__(self, runs: int):
        self._runs, self._done, self._started_s = runs, 0, time.monotonic()

    def done(self, line: str) -> None:
        self._done += 1
        left_s = (time.monotonic() - self._started_s) / self._done * (self._runs - self._done)
        print(f"[{self._done}/{self._runs}, {left_s / 60:.0f} min left] {line}", flush=True)


def conclude(results: Results, manifest: Mapping, rows: list[dict], checks: list[Check], columns: Mapping[str, str],
             plot: str | None) -> int:
    """The exit status: 0 when everything that must be shown was. `plot` is the module of plots/ that draws it."""
    results.write_summary(manifest, rows, checks)
    print_table(rows, columns)
    met = print_checks(checks)
    if plot:
        # matplotlib is slow to load and not needed before.
        print(f"\nplot: {importlib.import_module(f'plots.{plot}').draw(results.folder)}")
    return 0 if met else 1
