# SPDX-License-Identifier: Apache-2.0
"""Draws results/dns-stall: the latency tail of each mode while the primary is stopped now and then, and while both
servers are slow, each with the extra load that the mode caused. Called by bench/dns_stall.py, or by hand.
"""

from pathlib import Path

from bench.histogram import Histogram
from plots import style
from plots.looks import MODES
from plots.style import plt

_VARIANTS = {"stalled": "primary stopped for 1 s in every 10", "slow": "both servers answer after 15 ms"}


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    runs = style.load_raw(folder)
    variants = [name for name in _VARIANTS if any(row["variant"] == name for row in summary["rows"])]
    figure, axes = plt.subplots(2, len(variants), figsize=(5.4 * len(variants), 6.4), squeeze=False,
                                height_ratios=(3, 1))
    for column, variant in enumerate(variants):
        _tail(axes[0][column], [run for run in runs if run["variant"] == variant])
        axes[0][column].set_title(_VARIANTS[variant])
        _extra_load(axes[1][column], [row for row in summary["rows"] if row["variant"] == variant])
    axes[0][0].set_ylabel("requests slower than this")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.suptitle("1,000 DNS queries/s to nsd and knot, hedged after 10 ms", fontweight="bold", fontsize=12)
    figure.legend(handles, labels, loc="lower center", ncols=2, bbox_to_anchor=(0.5, 0.015), fontsize=9)
    return style.save(figure, folder / "dns-stall.png", summary["manifest"], rect=(0, 0.1, 1, 0.99))


def _tail(axis, runs: list[dict]) -> None:
    for mode in MODES.of(row["mode"] for row in runs):
        merged = Histogram()
        for run in runs:
            if run["mode"] == mode:
                merged.merge(Histogram.from_json(run["client"]["histograms"]["latency"]))
        label, colour, line, _ = MODES[mode]
        axis.plot(*style.tail_points(merged, 1e6), color=colour, linestyle=line, label=label, drawstyle="steps-post")
    axis.set_xscale("log")
    axis.set_xlim(0.03, 2500)
    axis.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1000"])
    axis.set_xlabel("latency (ms, logarithmic; 2,000 = given up)")
    axis.axvline(10, color="#999999", linewidth=0.8)
    style.tail_axis(axis)


def _extra_load(axis, rows: list[dict]) -> None:
    modes = MODES.of(row["mode"] for row in rows)[::-1]
    limit = max(12, 118 * max(row["extra_load_max"] for row in rows))
    for place, mode in enumerate(modes):
        row = next(row for row in rows if row["mode"] == mode)
        label, colour, _, _ = MODES[mode]
        percent = 100 * row["extra_load_max"]
        axis.barh(place, percent, color=colour, height=0.6)
        axis.text(percent + 0.01 * limit, place, f"{percent:.1f} %", va="center", fontsize=8)
    axis.axvline(5, color="#555555", linewidth=1, linestyle=(0, (2, 2)))
    axis.set_yticks(range(len(modes)), [MODES[mode][0].replace("hedging in the client", "client") for mode in modes],
                    fontsize=8)
    axis.set_xlim(0, limit)
    axis.set_xlabel("extra load (% of requests, worst run)\ndotted: the budget for hedges", fontsize=9)
    axis.grid(axis="y", visible=False)


if __name__ == "__main__":
    style.main(draw, "results/dns-stall")
