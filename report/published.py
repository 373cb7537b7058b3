# SPDX-License-Identifier: Apache-2.0
"""The small form of a run, which the repository keeps in published/NAME/: summary.json with the manifest, the rows, and
figures over the raw data; series.json with the series that charts are drawn from, thinned. The same form is made in memory
of a run in results/, so that the page knows one form only.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

from bench.manifest import ROOT
from plots.charts import Charts
from report import experiments

PUBLISHED, RESULTS = ROOT / "published", ROOT / "results"

# A path of the machine that measured.
_PRIVATE = re.compile(rf"(?:{re.escape(str(ROOT))}|(?<![\w.])/(?:home|root|tmp|mnt|srv)/[\w.-]+)(?:/[\w.-]+)*")


class ReportError(Exception):
    """What is wrong, and what to do about it."""


@dataclasses.dataclass(frozen=True)
class Run:
    name: str
    source: str  # the folder that it comes from, from the root
    form: dict

    @property
    def manifest(self) -> dict:
        return self.form["manifest"]

    @property
    def rows(self) -> list[dict]:
        return self.form["rows"]

    def at(self, pointer: str):
        """What a JSON pointer (RFC 6901) names."""
        found = self.form
        for word in pointer.split("/")[1:]:
            found = found[int(word)] if isinstance(found, list) else found[word.replace("~1", "/").replace("~0", "~")]
        return found


def published_form(folder: Path, charts: Charts | None = None) -> dict:
    """Of a run's folder in results/."""
    summary = _json(folder / "summary.json")
    charts = charts or experiments.CHARTS.get(folder.name)
    try:
        figures, series = charts.series(folder, summary) if charts else ({}, {})
        # Configurations name the run's folders, which mean nothing elsewhere; rows name their configurations by hash.
        manifest = {**summary["manifest"], "configs": json.loads(_PRIVATE.sub("(path)", json.dumps(summary["manifest"]["configs"])))}
        checks = {"of": len(summary["checks"]), "met": sum(check["met"] for check in summary["checks"])}
        return {"name": summary["name"], "manifest": manifest, "rows": summary["rows"], "checks": summary["checks"],
                "figures": {**figures, "checks": checks}, "series": series}
    except (OSError, KeyError, ValueError, TypeError, IndexError) as error:
        raise ReportError(f"{_shown(folder)} is not whole ({type(error).__name__}: {error}): run the experiment again, or remove "
                          "the folder") from error


def keep(name: str, results: Path = RESULTS, published: Path = PUBLISHED) -> Path:
    """Puts the small form of results/NAME into published/NAME, in place of its former one."""
    there = sorted(path.parent.name for path in results.glob("*/summary.json"))
    if name not in there:
        raise ReportError(f"there is no {_shown(results)}/{name}/summary.json; runs that are there: {', '.join(there) or 'none'}")
    form = published_form(results / name)
    series, measured = form.pop("series"), form["manifest"]
    if "changed_meanwhile" not in measured:
        raise ReportError(f"{_shown(results)}/{name} does not say whether its programs stayed the same while they were measured: run the "
                          "experiment again")
    changed = measured["changed_meanwhile"] + ["files that no commit has"] * measured["uncommitted_changes"]
    if changed:
        raise ReportError(f"{_shown(results)}/{name} was measured of more than one build, or of none that a commit names: "
                          f"{', '.join(changed)} changed. Run it again from a clean commit, and build nothing meanwhile")
    if busy := measured.get("runs_not_quiet"):
        raise ReportError(f"{_shown(results)}/{name}: {busy} of its runs began on a machine that did other work. Run it again on a quiet one")
    if private := _PRIVATE.search(json.dumps(form)):
        raise ReportError(f"{_shown(results)}/{name} names a path of this machine, {private[0]}: it is not for the repository")
    folder = published / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(form, indent=1) + "\n", encoding="ascii")
    (folder / "series.json").write_text(json.dumps(series, separators=(",", ":")) + "\n", encoding="ascii")
    return folder


def load(results: Path = RESULTS, published: Path = PUBLISHED, warn: Callable[[ReportError], None] | None = None) -> dict[str, Run]:
    """By name; of a run that is in both folders, the newer one. A folder without a summary holds a run that did not end. `warn`
    gets what is wrong with a run in results/, which is then left out: its experiment may be running again at this moment."""
    runs: dict[str, Run] = {}
    for path in sorted(published.glob("*/summary.json")):
        folder = path.parent
        runs[folder.name] = _run(folder, {**_json(path), "series": _json(folder / "series.json")})
    for path in sorted(results.glob("*/summary.json")):
        folder = path.parent
        try:
            former = runs.get(folder.name)
            if former is None or _finished(folder) > former.manifest["finished"]:
                runs[folder.name] = _run(folder, published_form(folder))
        except ReportError as error:
            if warn is None:
                raise
            warn(error)
    return runs


def _run(folder: Path, form: dict) -> Run:
    missing = {"manifest", "rows", "figures", "series"} - form.keys()
    if missing:
        raise ReportError(f"{_shown(folder)}/summary.json lacks {', '.join(sorted(missing))}: keep the run again with ./dev report "
                          f"--keep {folder.name}, or remove the folder")
    return Run(folder.name, _shown(folder), form)


def _finished(folder: Path) -> str:
    try:
        return _json(folder / "summary.json")["manifest"]["finished"]
    except (KeyError, TypeError) as error:
        raise ReportError(f"{_shown(folder)}/summary.json has no manifest that says when it finished: remove the folder, or run "
                          "the experiment again") from error


def _json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{_shown(path)} cannot be read ({error}): run the experiment again, or remove the folder") from error


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
