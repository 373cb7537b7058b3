# SPDX-License-Identifier: Apache-2.0
"""The small form of a run, which the repository keeps in published/NAME/: summary.json with the manifest, the rows, and
figures over the raw data; series.json with the series that charts are drawn from, thinned. The same form is made in memory
of a run in results/, so that the page knows one form only.
"""

import csv
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.heartbeat import PATIENCE_NS
from bench.histogram import Histogram, quantile
from bench.history import figures as history_figures
from bench.manifest import ROOT
from chaos.unavailable import read_history

PUBLISHED, RESULTS = ROOT / "published", ROOT / "results"
SLOT_S = 0.05
_NS_OF_MS, _NS_OF_US = 1e6, 1e3
_STEPS_A_DECADE = 40  # of a thinned curve: finer than a line is wide


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


def spread(values: Iterable[float]) -> dict:
    values = sorted(values)
    return {"n": len(values), "min": values[0], "avg": sum(values) / len(values),
            **{f"p{share:g}": quantile(values, share / 100) for share in (50, 95, 99)}, "max": values[-1]}


def spread_of(histogram: Histogram, unit_ns: float) -> dict:
    return {"n": histogram.count, "min": histogram.min / unit_ns, "avg": histogram.sum / histogram.count / unit_ns,
            **{f"p{share:g}": histogram.quantile(share / 100) / unit_ns for share in (50, 95, 99)},
            "max": histogram.max / unit_ns}


def tail(histogram: Histogram, unit_ns: float) -> list[list[float]]:
    """Points (value, share of all that are above it), as many as a line can show."""
    points, last = [], None
    for upper, share in histogram.cumulative():
        above = max(1 - share, 0.0)
        here = (_step(upper), _step(above * 1e9))
        if here != last:
            points.append([_short(upper / unit_ns), _short(above)])
            last = here
    return points


def _step(value: float) -> int:
    return math.floor(math.log10(value) * _STEPS_A_DECADE) if value > 0 else -1


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def slots_of(points: Iterable[tuple[float, float | None]], no_answer_ms: float) -> list[list[float]]:
    """Of (sent at, s; answered after, ms, or None): for each slot of time its begin, the median wait, the longest, and how many
    were never answered."""
    slots: dict[int, list[float | None]] = {}
    for at_s, wait_ms in points:
        slots.setdefault(math.floor(at_s / SLOT_S), []).append(wait_ms)
    found = []
    for slot in sorted(slots):
        waits = sorted(no_answer_ms if wait is None else wait for wait in slots[slot])
        found.append([round(slot * SLOT_S, 3), _short(waits[len(waits) // 2]), _short(waits[-1]), slots[slot].count(None)])
    return found


def _of_demo(folder: Path, summary: dict) -> tuple[dict, dict]:
    figures, series = {}, {}
    for row in summary["rows"]:
        run = _json(folder / "raw" / f"{row['system']}.json")
        requests = read_history(folder / "raw" / f"{row['system']}.csv")
        whole = history_figures(requests)
        latency = Histogram.from_json(whole.pop("latency"))
        figures[row["system"]] = whole
        start_ns = run["start_ns"]
        series[row["system"]] = {
            "kills_s": [[_short((kill[at] - start_ns) / 1e9) for at in ("begin_ns", "end_ns")] for kill in run["kills"]],
            "tail_ms": tail(latency, _NS_OF_MS),
            "slots": slots_of((((request.intended_ns - start_ns) / 1e9,
                                (request.ended_ns - request.intended_ns) / 1e6 if request.ok else None)
                               for request in requests), no_answer_ms=5000.0)}
    return figures, series


def _of_demo_dns(folder: Path, summary: dict) -> tuple[dict, dict]:
    series = {}
    for row in summary["rows"]:
        with open(folder / "raw" / f"{row['mode']}.csv", encoding="ascii", newline="") as file:
            lines = [(float(line["intended_us"]) / 1e6, float(line["latency_us"]) / 1e3 if line["latency_us"] else None)
                     for line in csv.DictReader(file)]
        origin_s = min(at_s for at_s, _ in lines)
        waits = Histogram()
        for _, wait_ms in lines:
            waits.record(int((2000.0 if wait_ms is None else wait_ms) * 1e6))
        first_s, every_s, for_s = summary["manifest"]["configs"][row["config_hash"]]["stall"]
        end_s = max(at_s for at_s, _ in lines) - origin_s
        stalls = [[first_s + number * every_s, first_s + number * every_s + for_s] for number in range(1000)
                  if first_s + number * every_s < end_s]
        series[row["mode"]] = {"kills_s": stalls, "tail_ms": tail(waits, _NS_OF_MS),
                               "slots": slots_of(((at_s - origin_s, wait_ms) for at_s, wait_ms in lines), 2000.0)}
    return {}, series


def _of_raft_hedge(folder: Path, _summary: dict) -> tuple[dict, dict]:
    merged: dict[str, Histogram] = {}
    for run in _raw(folder):
        for operation, found in run["operations"].items():
            merged.setdefault(f"{run['variant']}-{operation}-{run['mode']}", Histogram()).merge(
                Histogram.from_json(found["latency"]))
    return {}, {key: {"tail_ms": tail(histogram, _NS_OF_MS)} for key, histogram in merged.items()}


def _of_heartbeat(folder: Path, _summary: dict) -> tuple[dict, dict]:
    merged: dict[str, Histogram] = {}
    for run in _raw(folder):
        histogram = merged.setdefault(f"{run['load']}-{run['server']}", Histogram())
        histogram.merge(Histogram.from_json(run["report"]["latency"]))
        for _ in range(run["report"]["lost"]):
            histogram.record(PATIENCE_NS)
    return ({key: spread_of(histogram, _NS_OF_US) for key, histogram in merged.items()},
            {key: {"tail_us": tail(histogram, _NS_OF_US)} for key, histogram in merged.items()})


def _of_election(folder: Path, _summary: dict) -> tuple[dict, dict]:
    values: dict[str, dict[str, list[float]]] = {}
    for run in _raw(folder):
        here = values.setdefault(f"{run['replicas']}-{run['mode']}-{run['cause']}", {})
        for term in run["terms"]:
            for name in ("pre_vote_us", "vote_us", "outage_ms"):
                if term[name] is not None:
                    here.setdefault(name, []).append(term[name])
    return ({key: {name: spread(found) for name, found in here.items()} for key, here in values.items()},
            {key: {name: sorted(map(_short, found)) for name, found in here.items()} for key, here in values.items()})


def _of_chaos(folder: Path, _summary: dict) -> tuple[dict, dict]:
    waits: dict[str, list[float]] = {}
    for run in _raw(folder):
        if "costs" in run:
            waits.setdefault(f"{run['mode']}-{run['system']}", []).extend(cost["unavailable_ms"] for cost in run["costs"])
    return ({key: spread(found) for key, found in waits.items()},
            {key: {"unavailable_ms": sorted(map(_short, found))} for key, found in waits.items()})


_MORE: dict[str, Callable[[Path, dict], tuple[dict, dict]]] = {
    "demo": _of_demo, "demo-dns": _of_demo_dns, "raft-hedge": _of_raft_hedge, "heartbeat": _of_heartbeat,
    "election": _of_election, "chaos-leader-kill": _of_chaos}


def published_form(folder: Path) -> dict:
    """Of a run's folder in results/."""
    summary = _json(folder / "summary.json")
    try:
        figures, series = _MORE.get(folder.name, lambda *_: ({}, {}))(folder, summary)
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


def _raw(folder: Path) -> list[dict]:
    found = [_json(path) for path in sorted((folder / "raw").glob("*.json"))]
    if not found:
        raise ValueError("there is nothing in raw/")
    return found


def _json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{_shown(path)} cannot be read ({error}): run the experiment again, or remove the folder") from error


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
