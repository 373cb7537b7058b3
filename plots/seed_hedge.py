# SPDX-License-Identifier: Apache-2.0
"""Draws results/seed-hedge: the latency tail of each mode, and below it how late hedges leave.

Columns are the variants (closed loop, 1,000/s, 10,000/s), rows the load. Called by bench/seed_hedge.py, or by hand:
`/usr/bin/python3 -m plots.seed_hedge [FOLDER]`.
"""

from pathlib import Path

from bench.histogram import Histogram
from plots import style
from plots.looks import MODES
from plots.style import plt

_VARIANTS = {"closed": "closed loop, 1 ms pause", "open1k": "open loop, 1,000/s", "open10k": "open loop, 10,000/s"}
_LOADS = {"idle": "idle machine", "stress": "2 busy processes per core"}


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    variants = [name for name in _VARIANTS if any(row["variant"] == name for row in summary["rows"])]
    loads = [name for name in _LOADS if any(row["load"] == name for row in summary["rows"])]
    runs = style.load_raw(folder)
    _draw_tails(folder / "latency.png", summary, runs, variants, loads)
    _draw_fire_errors(folder / "fire-error.png", summary, variants, loads)
    return folder / "latency.png"


def _draw_tails(path: Path, summary: dict, runs: list[dict], variants: list[str], loads: list[str]) -> None:
    figure, axes = plt.subplots(len(loads), len(variants), figsize=(4.4 * len(variants), 3.5 * len(loads) + 0.9),
                                sharex=True, sharey=True, squeeze=False)
    for load, line in zip(loads, axes, strict=True):
        for variant, axis in zip(variants, line, strict=True):
            _tail(axis, [run for run in runs if run["variant"] == variant and run["load"] == load])
            axis.set_title(f"{_VARIANTS[variant]}, {_LOADS[load]}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("latency (ms, logarithmic)")
    for line in axes:
        line[0].set_ylabel("requests slower than this")
    _finish(figure, axes, path, "Two replicas, 2 % of requests stalled 400 ms, hedged after 10 ms (all runs merged)",
            summary)


def _tail(axis, runs: list[dict]) -> None:
    for mode in MODES.of(row["mode"] for row in runs):
        merged = Histogram()
        for run in runs:
            if run["mode"] == mode:
                merged.merge(Histogram.from_json(run["client"]["histograms"]["latency"]))
        label, colour, line, _ = MODES[mode]
        axis.plot(*style.tail_points(merged, 1e6), color=colour, linestyle=line, label=label, drawstyle="steps-post")
    axis.set_xscale("log")
    axis.set_xlim(1.5, 1100)
    axis.set_xticks([2, 5, 10, 20, 50, 100, 400, 1000], ["2", "5", "10", "20", "50", "100", "400", "1000"])
    axis.axvline(10, color="#999999", linewidth=0.8)
    style.tail_axis(axis)


def _draw_fire_errors(path: Path, summary: dict, variants: list[str], loads: list[str]) -> None:
    figure, axes = plt.subplots(1, len(loads), figsize=(4.8 * len(loads), 4.2), sharey=True, squeeze=False)
    for load, axis in zip(loads, axes[0], strict=True):
        rows = [row for row in summary["rows"] if row["load"] == load and row["fire_error_p99_us"]]
        modes = MODES.of(row["mode"] for row in rows)
        for number, mode in enumerate(modes):
            label, colour, _, marker = MODES[mode]
            offset = 0.16 * (number - (len(modes) - 1) / 2)
            found = {row["variant"]: row for row in rows if row["mode"] == mode}
            for place, variant in enumerate(variants):
                if variant not in found:
                    continue
                p50, p99 = (max(found[variant][f"fire_error_{q}_us"], 0.1) for q in ("p50", "p99"))
                axis.plot([place + offset] * 2, [p50, p99], color=colour, linewidth=2.2)
                axis.plot(place + offset, p50, marker="_", markersize=11, color=colour)
                axis.plot(place + offset, p99, marker=marker, color=colour, linestyle="none",
                          label=label if variant == next(iter(found)) else None)
        axis.set_yscale("log")
        axis.set_xticks(range(len(variants)), [_VARIANTS[name].replace(", ", ",\n") for name in variants])
        axis.set_xlim(-0.5, len(variants) - 0.5)
        axis.grid(axis="x", visible=False)
        axis.set_title(_LOADS[load], fontsize=10)
    axes[0][0].set_ylabel("hedge sent too late by (us, logarithmic)\nfrom the median (dash) to p99 (marker)")
    _finish(figure, axes, path, "How late a hedge leaves, median of all runs", summary)


def _finish(figure, axes, path: Path, title: str, summary: dict) -> None:
    handles, labels = {}, []
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = [label for label, *_ in MODES.values() if label in handles]
    figure.suptitle(title, fontweight="bold", fontsize=12)
    figure.legend([handles[label] for label in labels], labels, loc="lower center", ncols=len(labels),
                  bbox_to_anchor=(0.5, 0.015), fontsize=9)
    style.save(figure, path, summary["manifest"], rect=(0, 0.07, 1, 0.99))


if __name__ == "__main__":
    style.main(draw, "results/seed-hedge")
