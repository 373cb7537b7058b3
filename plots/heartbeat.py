# SPDX-License-Identifier: Apache-2.0
"""Draws results/heartbeat: the share of heartbeats that waited longer than x for their answer, of all runs together, by who
answers, on an idle machine and on a busy one. Called by bench/heartbeat.py, or by hand:
`/usr/bin/python3 -m plots.heartbeat [FOLDER]`.
"""

from pathlib import Path

from bench.histogram import Histogram
from plots import style
from plots.looks import HEARTBEATS
from plots.style import plt


def draw(folder: Path) -> Path:
    summary, runs = style.load_summary(folder), style.load_raw(folder)
    loads = [load for load in ("idle", "stress") if any(run["load"] == load for run in runs)]
    figure, axes = plt.subplots(1, len(loads), figsize=(6.2 * len(loads), 4.8), squeeze=False)
    for axis, load in zip(axes[0], loads, strict=True):
        for server in HEARTBEATS.of(run["server"] for run in runs):
            label, colour, line, _ = HEARTBEATS[server]
            histograms = [Histogram.from_json(run["report"]["latency"]) for run in runs
                          if (run["load"], run["server"]) == (load, server)]
            if not histograms:
                continue
            together = histograms[0]
            for other in histograms[1:]:
                together.merge(other)
            axis.plot(*style.tail_points(together, 1e3), color=colour, linestyle=line, label=label, drawstyle="steps-post")
        axis.set_xscale("log")
        style.tail_axis(axis)
        axis.set_xlabel("from question to answer (us)")
        axis.set_title("idle" if load == "idle" else "two busy processes for each processor")
        axis.legend()
    figure.suptitle("How long a heartbeat waits for its answer", fontweight="bold", fontsize=12)
    return style.save(figure, folder / "heartbeat.png", summary["manifest"], rect=(0, 0.02, 1, 1))


if __name__ == "__main__":
    style.main(draw, "results/heartbeat")
