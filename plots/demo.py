# SPDX-License-Identifier: Apache-2.0
"""Draws results/demo: every operation as a point, at the time it was sent and as high as its answer took, with the
kills marked; one panel for each way of asking. Called by demo/kv.py, or by hand: `/usr/bin/python3 -m plots.demo [FOLDER]`.
"""

import csv
import json
from pathlib import Path

from plots import style
from plots.looks import STORES
from plots.style import plt

_NO_ANSWER_MS = 5000.0  # The client's time-out in chaos/systems.py.
_FAILED = "#B00020"


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    rows = summary["rows"]
    figure, axes = plt.subplots(len(rows), 1, figsize=(9.5, 2.5 * len(rows) + 1.0), sharex=True, sharey=True,
                                squeeze=False)
    for row, axis in zip(rows, axes[:, 0], strict=True):
        run = json.loads((folder / "raw" / f"{row['system']}.json").read_text(encoding="ascii"))
        _panel(axis, row, run, folder / "raw" / f"{row['system']}.csv")
    axes[-1][0].set_xlabel("operation sent at (s)")
    figure.supylabel("wait for the answer (logarithmic)", fontsize=10)
    figure.suptitle("A replicated store whose leader is killed three times: every operation a point,\n"
                    "grey while the killed server is away", fontweight="bold", fontsize=12)
    return style.save(figure, folder / "demo.png", summary["manifest"], rect=(0.01, 0.02, 1, 0.99))


def _panel(axis, row: dict, run: dict, history: Path) -> None:
    answered, failed = _points(history, run["start_ns"])
    colour = STORES[row["system"]].colour
    for kill in run["kills"]:
        begin_s, end_s = ((kill[at] - run["start_ns"]) / 1e9 for at in ("begin_ns", "end_ns"))
        axis.axvspan(begin_s, end_s, color="#cccccc", alpha=0.5, linewidth=0)
        axis.axvline(begin_s, color="#222222", linewidth=1.0)
        axis.text(begin_s + 0.08, 0.027, f"leader {kill['server']} killed", fontsize=7.5, color="#222222", va="bottom")
    axis.scatter(*answered, s=2.0, color=colour, alpha=0.35, linewidths=0, rasterized=True)
    if failed[0]:
        axis.scatter(*failed, s=18, marker="x", color=_FAILED, linewidths=1.0)
    axis.set_title(f"{row['label']}: {_what_happened(row)}", loc="left")
    axis.set_yscale("log")
    axis.set_ylim(0.02, 12000)
    axis.set_yticks([0.1, 1, 10, 100, 1000, _NO_ANSWER_MS], ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "no answer"])
    axis.minorticks_off()
    axis.set_xlim(0, max(answered[0] + failed[0]) + 0.1)


def _points(history: Path, start_ns: int) -> tuple[tuple[list, list], tuple[list, list]]:
    """When each was meant to leave (s) and how long it took (ms): the answered, and the failed."""
    answered, failed = ([], []), ([], [])
    with open(history, encoding="ascii", newline="") as file:
        for line in csv.DictReader(file):
            at_s = (int(line["intended_ns"]) - start_ns) / 1e9
            ok = line["ending"] == "ok"
            wait_ms = (int(line["ended_ns"]) - int(line["intended_ns"])) / 1e6 if ok else _NO_ANSWER_MS
            points = answered if ok else failed
            points[0].append(at_s)
            points[1].append(wait_ms)
    return answered, failed


def _what_happened(row: dict) -> str:
    if row["client_errors"]:
        return f"{row['client_errors']:,} operation{'s' if row['client_errors'] > 1 else ''} failed"
    return f"no error, longest wait {row['longest_ms']:,.0f} ms"


if __name__ == "__main__":
    style.main(draw, "results/demo")
