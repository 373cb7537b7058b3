# SPDX-License-Identifier: Apache-2.0
"""Where results go and whether they are good enough: results/NAME/summary.json, raw files, and the list of what the
experiment must show, printed as a table at the end. The exit code of every experiment comes from here.
"""

import dataclasses
import json
import math
import os
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench import manifest
from bench.manifest import ROOT

_UNFINISHED = "raw-unfinished-"  # and the process that writes it
_STARTED = "started.manifest"  # in it: what was true when it began


@dataclasses.dataclass(frozen=True)
class Check:
    what: str
    wanted: str
    figure: str
    met: bool
    needs_full: bool = False  # a run of full length on a machine that does nothing else; `chaos all --quick` does not judge it
    finds: Sequence[str] = ()  # the planted mistakes with which it must be missed
    verdict: str = ""  # met, missed, undecided, not measured

    def as_json(self) -> dict:
        return {**dataclasses.asdict(self), "verdict": self.said}

    @property
    def said(self) -> str:
        return self.verdict or ("met" if self.met else "missed")


def at_most(what: str, figure: float | None, limit: float, unit: str = "", **kind) -> Check:
    """Met when the figure was measured and is not above the limit. `kind`: needs_full, finds."""
    return _limit(what, "<=", figure, limit, unit, figure is not None and figure <= limit, kind)


def at_least(what: str, figure: float | None, limit: float, unit: str = "", **kind) -> Check:
    return _limit(what, ">=", figure, limit, unit, figure is not None and figure >= limit, kind)


def _limit(what: str, sign: str, figure: float | None, limit: float, unit: str, met: bool, kind: Mapping) -> Check:
    measured = None not in (figure, limit) and not math.isnan(figure) and not math.isnan(limit)
    return Check(what, f"{sign} {limit:.6g} {unit}".strip(), "not measured" if figure is None else f"{figure:.6g} {unit}".strip(), met,
                 verdict="" if measured else "not measured", **kind)


def paired_at_most(what: str, ratios: Sequence[float], limit: float) -> Check:
    """Of a ratio that was taken in each round: the median, judged by the interval in which it lies with 95 %, by bootstrap over the
    rounds. A machine too noisy for a verdict makes the check undecided, not met."""
    if not ratios:
        return at_most(what, None, limit)
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(1000))
    low, high = medians[25], medians[974]
    verdict = "undecided" if len(ratios) < 3 or low <= limit < high else "met" if high <= limit else "missed"
    return Check(what, f"<= {limit:.6g}", f"{statistics.median(ratios):.4g} ({low:.4g} to {high:.4g})", verdict == "met", verdict=verdict)


def planted_is_found(plant: str, checks: Iterable[Check], least: int | None = None) -> list[Check]:
    """In place of the checks, after a run with a mistake on purpose: those that can see it are missed, all or at least so many."""
    of_it = [check for check in checks if plant in check.finds]
    return [at_least("checks that look for the mistake", len(of_it), 1),
            at_least("of them, that found it", sum(not check.met for check in of_it), len(of_it) if least is None else least)]


class Results:
    """The folder of one experiment, made before anything is measured. What a run writes takes the place of its forerunner's when the run
    ends, raw files and summary together: one that is cut short leaves the folder as it was, and takes nothing from one that runs beside it."""

    def __init__(self, name: str, folder: Path | None = None, resume: bool = False):
        self.name = name
        self.folder = folder or self.folder_named(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.raw = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{os.getpid()}-", dir=self.folder))
        self.raw.chmod(0o755)
        self._started = manifest.at_start()
        left = [path for path in self.folder.glob(f"{_UNFINISHED}*")
                if not Path("/proc", path.name.removeprefix(_UNFINISHED).partition("-")[0]).exists()]
        for path in sorted(left, key=lambda path: path.stat().st_mtime):
            if resume and (started := path / _STARTED).exists():
                self._take_over(json.loads(started.read_text(encoding="ascii")), path)
            shutil.rmtree(path)
        (self.raw / _STARTED).write_text(json.dumps(self._started) + "\n", encoding="ascii")

    def _take_over(self, started: dict, left: Path) -> None:
        """What a run of the same build has measured before it was cut short."""
        if any(started[key] != self._started[key] for key in ("commit", "uncommitted_changes", "kernel", "cpu")):
            raise SystemExit(f"{left} is of commit {started['commit'][:10]} or of another machine: it cannot be resumed; run without --resume")
        self._started = {**self._started, "started": started["started"], "resumed": True}
        for path in left.glob("*.json*"):
            if path.name != _STARTED:
                path.rename(self.raw / path.name)

    @staticmethod
    def folder_named(name: str) -> Path:
        return ROOT / "results" / name

    def manifest(self, configs: dict[str, dict], **settings) -> dict:
        return manifest.at_end(self._started, configs, **settings)

    def write_raw(self, name: str, content: Mapping) -> None:
        (self.raw / f"{name}.json").write_text(json.dumps(content) + "\n", encoding="ascii")

    def write_summary(self, manifest_: Mapping, rows: list[dict], checks: Iterable[Check]) -> None:
        summary, raw = self.folder / "summary.json", self.folder / "raw"
        summary.unlink(missing_ok=True)
        if self.raw != raw:
            shutil.rmtree(raw, ignore_errors=True)
            self.raw = self.raw.rename(raw)
            (raw / _STARTED).unlink()
        content = {"name": self.name, "manifest": manifest_, "rows": rows, "checks": [check.as_json() for check in checks]}
        summary.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")


def print_table(rows: Iterable[Mapping], columns: Mapping[str, str]) -> None:
    """`columns` maps a field to its heading; numbers are right-aligned and shortened."""
    cells = [list(columns.values())] + [[cell_text(row.get(field)) for field in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for number, line in enumerate(cells):
        print("  " + "  ".join(text.rjust(width) if _is_number(text) or number == 0 and i > 2 else text.ljust(width)
                               for i, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip())


def print_checks(checks: Iterable[Check]) -> bool:
    """Prints the table of what must be shown; True when all of it is met. Without a check nothing was shown."""
    checks = list(checks)
    width = max((len(check.what) for check in checks), default=0)
    print("\nmust show:")
    verdicts = ["MISSED" if check.said == "missed" else check.said for check in checks]
    for check, verdict in zip(checks, verdicts, strict=True):
        print(f"  {verdict.ljust(max(6, *map(len, verdicts)))}  {check.what.ljust(width)}  {check.figure} (wanted {check.wanted})")
    missed = sum(not check.met for check in checks)
    print(f"  {len(checks) - missed} met, {missed} missed{'' if checks else ': nothing was judged'}")
    return missed == 0 and bool(checks)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit() or text == "-"
