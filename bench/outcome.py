# SPDX-License-Identifier: Apache-2.0
"""Where results go and whether they are good enough: results/NAME/summary.json, raw files, and the list of what the
experiment must show, printed as a table at the end. The exit code of every experiment comes from here.
"""

import dataclasses
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench import manifest
from bench.manifest import ROOT

_UNFINISHED = "raw-unfinished-"  # and the process that writes it


@dataclasses.dataclass(frozen=True)
class Check:
    what: str
    wanted: str
    figure: str
    met: bool
    needs_full: bool = False  # a run of full length on a machine that does nothing else; `chaos all --quick` does not judge it
    finds: Sequence[str] = ()  # the planted mistakes with which it must be missed


def at_most(what: str, figure: float | None, limit: float, unit: str = "", **kind) -> Check:
    """Met when the figure was measured and is not above the limit. `kind`: needs_full, finds."""
    text = "not measured" if figure is None else f"{figure:.6g} {unit}".strip()
    return Check(what, f"<= {limit:.6g} {unit}".strip(), text, figure is not None and figure <= limit, **kind)


def at_least(what: str, figure: float | None, limit: float, unit: str = "", **kind) -> Check:
    text = "not measured" if figure is None else f"{figure:.6g} {unit}".strip()
    return Check(what, f">= {limit:.6g} {unit}".strip(), text, figure is not None and figure >= limit, **kind)


def planted_is_found(plant: str, checks: Iterable[Check], least: int | None = None) -> list[Check]:
    """In place of the checks, after a run with a mistake on purpose: those that can see it are missed, all or at least so many."""
    of_it = [check for check in checks if plant in check.finds]
    return [at_least("checks that look for the mistake", len(of_it), 1),
            at_least("of them, that found it", sum(not check.met for check in of_it), len(of_it) if least is None else least)]


class Results:
    """The folder of one experiment, made before anything is measured. What a run writes takes the place of its forerunner's when the run
    ends, raw files and summary together: one that is cut short leaves the folder as it was, and takes nothing from one that runs beside it."""

    def __init__(self, name: str, folder: Path | None = None):
        self.name = name
        self.folder = folder or self.folder_named(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(f"{_UNFINISHED}*"):
            if not Path("/proc", left.name.removeprefix(_UNFINISHED).partition("-")[0]).exists():
                shutil.rmtree(left)
        self.raw = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{os.getpid()}-", dir=self.folder))
        self.raw.chmod(0o755)
        self._started = manifest.at_start()

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
        content = {"name": self.name, "manifest": manifest_, "rows": rows, "checks": [dataclasses.asdict(check) for check in checks]}
        summary.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")


def print_table(rows: Iterable[Mapping], columns: Mapping[str, str]) -> None:
    """`columns` maps a field to its heading; numbers are right-aligned and shortened."""
    cells = [list(columns.values())] + [[_cell(row.get(field)) for field in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for number, line in enumerate(cells):
        print("  " + "  ".join(text.rjust(width) if _is_number(text) or number == 0 and i > 2 else text.ljust(width)
                               for i, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip())


def print_checks(checks: Iterable[Check]) -> bool:
    """Prints the table of what must be shown; True when all of it is met. Without a check nothing was shown."""
    checks = list(checks)
    width = max((len(check.what) for check in checks), default=0)
    print("\nmust show:")
    for check in checks:
        print(f"  {'met   ' if check.met else 'MISSED'}  {check.what.ljust(width)}  {check.figure} (wanted "
              f"{check.wanted})")
    missed = sum(not check.met for check in checks)
    print(f"  {len(checks) - missed} met, {missed} missed{'' if checks else ': nothing was judged'}")
    return missed == 0 and bool(checks)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit() or text == "-"
