# SPDX-License-Identifier: Apache-2.0
"""Draws results/raft-hedge: the latency tail of gets and puts while the leader stops now and then, and while packets
between it and the client are lost. Called by bench/raft_hedge.py, or by hand: `/usr/bin/python3 -m plots.raft_hedge`.
"""

from pathlib import Path

from bench.histogram import Histogram
from plots import style
from plots.looks import MODES
from plots.style import plt

_VARIANTS = {"stall": "the leader stops for 400 ms in every 5 s",
             "loss": "2 % of the packets between client and leader are lost"}
_DELAY_MS, _GIVEN_UP_MS = 10, 5000


def draw(folder: Path) -> Path:
    summary, runs = style.load_summary(folder), style.load_raw(folder)
    variants = [name for name in _VARIANTS if any(row["variant"] == name for row in summary["rows"])]
    figure, axes = plt.subplots(2, len(variants), figsize=(5.6 * len(variants), 7.6), squeeze=False)
    for column, variant in enumerate(variants):
        for row, operation in enumerate(("get", "put")):
            axis = axes[row][column]
            _tail(axis, [run for run in runs if run["variant"] == variant], operation)
            axis.set_title(f"{operation}: {_VARIANTS[variant]}")
    for row in axes:
        row[0].set_ylabel("requests slower than this")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.suptitle("2,000 requests/s to 3 replicas, hedged after 10 ms", fontweight="bold", fontsize=12)
    figure.legend(handles, labels, loc="lower center", ncols=3, bbox_to_anchor=(0.5, 0.02), fontsize=9)
    return style.save(figure, folder / "raft-hedge.png", summary["manifest"], rect=(0, 0.05, 1, 0.99))


def _tail(axis, runs: list[dict], operation: str) -> None:
    for mode in MODES.of(row["mode"] for row in runs):
        merged = Histogram()
        for run in runs:
            if run["mode"] == mode:
                merged.merge(Histogram.from_json(run["operations"][operation]["latency"]))
        label, colour, line, _ = MODES[mode]
        axis.plot(*style.tail_points(merged, 1e6), color=colour, linestyle=line, label=label, drawstyle="steps-post")
    axis.set_xscale("log")
    axis.set_xlim(0.05, 1.3 * _GIVEN_UP_MS)
    axis.set_xticks([0.1, 1, 10, 100, 1000, _GIVEN_UP_MS], ["0.1", "1", "10", "100", "1,000", "5,000"])
    axis.minorticks_off()
    axis.set_xlabel("latency (ms, logarithmic; 5,000: no answer)")
    axis.axvline(_DELAY_MS, color="#999999", linewidth=0.8)
    style.tail_axis(axis)


if __name__ == "__main__":
    style.main(draw, "results/raft-hedge")
