# SPDX-License-Identifier: Apache-2.0
"""An experiment as it is declared, and the one runner of all: rounds in which the systems take turns, one lock and one rule of quiet for
the machine, a file for each cell and round, and a judgement that is made of these files alone, so that it can be made again. Each is a
module, run by `./dev bench NAME` or `./dev chaos NAME`; writes results/NAME/, and exits 1 when something that it must show is missed."""

import argparse
import contextlib
import dataclasses
import fcntl
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import cpu_time
from bench.manifest import config_hash
from bench.outcome import Check, Results, cell_text, planted_is_found, print_checks, print_table
from plots.charts import Charts

_MACHINE = Path("/run/hedgerow-experiment.lock")


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    about: str
    cell: Sequence[str]  # the fields by which the records of a cell are told from the others
    must_show: Callable[[list[dict]], list[Check]]
    rows: Callable[..., list[dict]]  # of a cell: the values of its fields, and its records
    columns: Mapping[str, str]
    charts: Charts | None = None
    _: dataclasses.KW_ONLY
    measure: Callable[["Running", argparse.Namespace], None]
    rounds: int = 10
    options: Sequence["Option"] = ()
    quick: Mapping[str, object] = dataclasses.field(default_factory=dict)  # what --quick has in place of the defaults
    settle: Callable[[argparse.ArgumentParser, argparse.Namespace], None] = lambda parser, arguments: None  # what no single option says
    notes: Callable[[argparse.Namespace], dict] = lambda arguments: {}  # for the manifest, beside the options
    plants: Mapping[str, int | None] = dataclasses.field(default_factory=dict)  # mistakes on purpose: so many of their checks find them; None: all
    tag: str = ""  # of the lab, where another one may be named
    again: Callable[[dict, Path], dict] = lambda record, raw: record  # what `./dev judge` makes anew of a record and the files beside it

    def main(self, argv: list[str]) -> int:
        return self.run(self.parse(argv))

    def parse(self, argv: list[str]) -> argparse.Namespace:
        made = parser(self.name, self.about, self.rounds > 1)
        made.set_defaults(rounds=self.rounds, stated_rounds=self.rounds)
        made.add_argument("--resume", action="store_true", help="go on with a run that was cut short, in the same order")
        if self.tag:
            made.add_argument("--lab", default=self.tag, help=f"tag of the lab and instance of the proxy (default: {self.tag})")
        if self.plants:
            made.add_argument("--plant", choices=self.plants, help="a mistake on purpose, which the checks must find")
        for flag, about in self.options:
            made.add_argument(*flag.split(), **about)
        if self.quick:
            made.add_argument("--quick", action="store_true", help="a look: " + ", ".join(f"{name} {value}" for name, value in self.quick.items()))
            made.set_defaults(**self.quick if "--quick" in argv else {})
        arguments = made.parse_args(argv)
        self.settle(made, arguments)
        return arguments

    def run(self, arguments: argparse.Namespace) -> int:
        """The exit status: 0 when everything that must be shown was."""
        with the_machine(arguments.quiet_wait > 0):
            running = Running(self, arguments)
            self.measure(running, arguments)
        given = {name: value for name, value in vars(arguments).items()
                 if name not in ("lab", "resume", "stated_rounds") and isinstance(value, (str, int, float, list, type(None)))}
        return self.conclude(running.results, given.get("plant"), given.get("quick", False), options=given, **self.notes(arguments))

    def conclude(self, results: Results, plant: str | None = None, quick: bool = False, **settings) -> int:
        records = records_of(results.raw)
        rows = self.rows_of(records)
        checks = [check for check in self.must_show(rows) if not (quick and check.needs_full)]
        if plant:
            checks = planted_is_found(plant, checks, self.plants[plant])
        return conclude(results, results.manifest(configs_of(records), **quiet_of(records), **settings), rows, checks, self.columns, self.charts)

    def line(self, record: dict) -> str:
        """Of one run: what its rows say beside the cell's name, a line each."""
        return "\n    ".join("  ".join(f"{label} {cell_text(row[field])}" for field, label in self.columns.items()
                                       if field not in (*self.cell, "runs") and row.get(field) is not None)
                             for row in self.rows_of([record]))

    def rows_of(self, records: Iterable[dict]) -> list[dict]:
        cells: dict[tuple, list[dict]] = {}
        for record in records:
            cells.setdefault(tuple(record[field] for field in self.cell), []).append(record)
        return [row for cell, found in cells.items() for row in self.rows(*cell, found)]


def results(name: str, arguments: argparse.Namespace) -> Results:
    """In results/NAME only the stated form: a run with a planted mistake, a quick one, or one of fewer rounds stands beside it."""
    given, folder = vars(arguments), name
    if plant := given.get("plant"):
        folder = f"{name}-plant-{plant}"
    elif given.get("quick") or given.get("length") == "quick" or (given.get("rounds") or 0) < given.get("stated_rounds", 0):
        folder = f"{name}-short"
    return Results(name, arguments.into or Results.folder_named(folder), given.get("resume", False))


def records_of(raw: Path) -> list[dict]:
    """Of raw/, in the order in which the first round has them."""
    found = [json.loads(path.read_text(encoding="ascii")) for path in raw.glob("*.json")]
    return sorted((record for record in found if "round" in record), key=lambda record: (record["round"], record["place"]))


def configs_of(records: Iterable[dict]) -> dict[str, dict]:
    return {record["config_hash"]: record["config"] for record in records}


def quiet_of(records: Iterable[dict]) -> dict:
    """For the manifest: runs that began on a busy machine, and what a hypervisor took meanwhile."""
    records = list(records)
    return {"runs_not_quiet": sum(record["quiet"] is False for record in records), "stolen_us": sum(record["stolen_us"] for record in records)}


class Running:
    """One run of an experiment, while it measures."""

    def __init__(self, experiment: Experiment, arguments: argparse.Namespace):
        self.results = results(experiment.name, arguments)
        self._arguments, self._line = arguments, experiment.line
        self._cells: dict[tuple, int] = {}
        self._progress: Progress | None = None

    def turns(self, rounds: Sequence[int] = (), **axes: Sequence) -> Iterator["Turn"]:
        """In each round all cells of the axes, the last of which is in another order each time: no system always runs after the same one.
        Waits for a quiet machine before each. Cells that an earlier part of this run has done are left out."""
        rounds = rounds or range(1, self._arguments.rounds + 1)
        *outer, (last, systems) = axes.items()
        todo = [(number, dict(zip(axes, (*values, system), strict=True))) for number in rounds
                for values in itertools.product(*(values for _, values in outer)) for system in rotated(systems, number)]
        for cell in itertools.product(*axes.values()):
            self._cells.setdefault(cell, len(self._cells))
        todo = [(number, cell) for number, cell in todo if not self.file(number, cell).exists()]
        self._progress = Progress(len(todo))
        for number, cell in todo:
            yield self._turn(number, cell)

    def turn(self, number: int, **cell) -> "Turn | None":
        """One cell, in an order of the experiment's own; None where it has been done."""
        self._cells.setdefault(tuple(cell.values()), len(self._cells))
        return None if self.file(number, cell).exists() else self._turn(number, cell)

    def expect(self, turns: int) -> None:
        self._progress = Progress(turns)

    def _turn(self, number: int, cell: dict) -> "Turn":
        quiet = cpu_time.wait_until_quiet(at_most_s=self._arguments.quiet_wait)
        return Turn(self, number, cell, quiet, cpu_time.stolen_us())

    def file(self, number: int, cell: Mapping) -> Path:
        return self.results.raw / f"{'-'.join(map(str, cell.values()))}-{number:02d}.json"

    def keep(self, turn: "Turn", record: dict) -> None:
        record = {**record, **turn.cell, "round": turn.round, "place": self._cells[tuple(turn.cell.values())], "quiet": turn.quiet,
                  "stolen_us": cpu_time.stolen_us() - turn.stolen_us, "config_hash": config_hash(record["config"])}
        self.results.write_raw(turn.name, record)
        if self._progress:  # a demo says what happens by itself
            self._progress.done(f"round {turn.round} {' '.join(map(str, turn.cell.values()))}  {self._line(record)}")


@dataclasses.dataclass
class Turn:
    running: Running
    round: int
    cell: dict
    quiet: bool | None
    stolen_us: int

    def __getitem__(self, axis: str):
        return self.cell[axis]

    @property
    def name(self) -> str:
        """Of its files in raw/."""
        return self.running.file(self.round, self.cell).stem

    def done(self, record: dict) -> None:
        """`record` has its `config`: all that defines the cell."""
        self.running.keep(self, record)


def rotated(systems: Sequence, number: int) -> list:
    """The order in round `number`, the first of which is the declared one."""
    shift = (number - 1) % len(systems) if systems else 0
    return [*systems[shift:], *systems[:shift]]


@contextlib.contextmanager
def the_machine(alone: bool) -> Iterator[None]:
    """One experiment at a time measures; with no time to wait for a quiet machine (tests), any number."""
    if not alone:
        yield
        return
    with open(_MACHINE, "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another experiment measures on this machine: wait for its end, or --quiet-wait=0 for figures that mean nothing") from None
        yield


def judge(experiment: Experiment, folder: Path) -> bool:
    """Makes a run's summary again from its raw files and histories, with the checks of today; its manifest stays."""
    summary = json.loads((folder / "summary.json").read_text(encoding="ascii"))
    raw = folder / "raw"
    records = [experiment.again(record, raw) for record in records_of(raw)] if raw.exists() else []
    rows = experiment.rows_of(records) if records else summary["rows"]
    checks = experiment.must_show(rows)
    if records:
        summary |= {"rows": rows, "checks": [check.as_json() for check in checks]}
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="ascii")
    print_table(rows, experiment.columns)
    return print_checks(checks)


def draw(folder: Path, charts: Charts) -> None:
    from plots import charts as drawing
    from report.published import published_form  # which knows every experiment

    run = published_form(folder, charts)
    print(f"\nplot: {drawing.draw(run, charts, folder / (run['name'] + '.png'))}")


def own_rows(*cell_and_records) -> list[dict]:
    """Of records that have a row each."""
    return [{**record["row"], "config_hash": record["config_hash"]} for record in cell_and_records[-1]]


def parser(name: str, description: str, has_rounds: bool = True) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=name.replace("chaos-", "chaos ", 1) if name.startswith("chaos-") else f"bench {name}",
                                   description=description, epilog=f"Writes results/{name}/, and exits 1 when something that it must show is missed.",
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    if has_rounds:
        made.add_argument("--rounds", type=int, default=10)
    made.add_argument("--quiet-wait", type=float, default=30.0, help="seconds to wait at most for an idle machine before each run")
    made.add_argument("--into", type=Path, metavar="FOLDER", help=f"write there, not to results/{name}")
    return made


Option = tuple[str, dict]  # of the command line: a flag, or two that mean the same, and what argparse is told of it


def some(flag: str, known: Iterable, default: Iterable | None = None, **about) -> Option:
    """Names with commas between them; all that are known where no others are the default."""
    known = list(known)
    return flag, {"type": some_of(known), "default": known if default is None else list(default), **about}


def number(flag: str, default: float | None, least: float, most: float, **about) -> Option:
    """Whole where its bounds are."""
    kind = int if isinstance(least, int) and isinstance(most, int) else float

    def within(text: str) -> float:
        if not least <= kind(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not {least:g} to {most:g}")
        return kind(text)

    return flag, {"type": within, "default": default, "metavar": "N", **about}


def some_of(known: Iterable) -> Callable[[str], list]:
    """For an option's type: names with commas between them, each of which must be known."""
    known = {str(name): name for name in known}

    def names(text: str) -> list:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return [known[name] for name in text.split(",")]

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
             charts: Charts | None) -> int:
    """The exit status: 0 when everything that must be shown was."""
    results.write_summary(manifest, rows, checks)
    print_table(rows, columns)
    met = print_checks(checks)
    if charts:
        draw(results.folder, charts)
    return 0 if met else 1
