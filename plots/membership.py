# SPDX-License-Identifier: Apache-2.0
"""Draws results/membership: the latency tail of clients while a cluster is left alone and while its members change, with the kernel's
offloads and without. Called by bench/membership.py, or by hand: `/usr/bin/python3 -m plots.membership`.
"""

from pathlib import Path

from bench.histogram import Histogram
from plots import style
from plots.style import plt

_PHASES = {"undisturbed": ("left alone", "#4477aa", "-"), "changing": ("one added, one removed", "#cc3311", "--")}


def draw(folder: Path) -> Path:
    summary, runs = style.load_summary(folder), style.load_raw(folder)
    cells = sorted({(row["mode"], row["offloads"]) for row in summary["rows"]})
    figure, axes = plt.subplots(1, len(cells), figsize=(5.6 * len(cells), 4.4), squeeze=False)
    for axis, (mode, offloads) in zip(axes[0], cells, strict=True):
        for phase, (label, colour, line) in _PHASES.items():
            merged = Histogram()
            for run in runs:
                if (run["mode"], run["offloads"]) == (mode, offloads):
                    merged.merge(Histogram.from_json(run["phases"][phase]["latency"]))
            axis.plot(*style.tail_points(merged, 1e6), color=colour, linestyle=line, label=label, drawstyle="steps-post")
        axis.set_title(f"{mode} mode, offloads {offloads}")
        axis.set_xscale("log")
        axis.set_xlabel("latency (ms, logarithmic)")
        style.tail_axis(axis)
    axes[0][0].set_ylabel("requests slower than this")
    axes[0][0].legend(fontsize=9)
    figure.suptitle("2,000 requests/s through the proxy while the members change", fontweight="bold", fontsize=12)
    return style.save(figure, folder / "membership.png", summary["manifest"], rect=(0, 0.04, 1, 0.98))


if __name__ == "__main__":
    style.main(draw, "results/membership")
