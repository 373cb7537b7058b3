# SPDX-License-Identifier: Apache-2.0
"""Draws results/kv: how long one request takes and how many are answered in a second, by the number of clients, for each
size of cluster and place of the logs. Points are medians of the runs, bars the smallest and largest. Called by
bench/kv.py, or by hand: `/usr/bin/python3 -m plots.kv [FOLDER]`.
"""

import statistics
from pathlib import Path

from matplotlib.ticker import FuncFormatter, NullFormatter

from plots import style
from plots.looks import KV
from plots.style import plt

_FIGURES = (("p50_us", "half of the requests are faster than (us)"), ("ops_per_s", "answers per second"))


def draw(folder: Path) -> Path:
    summary, runs = style.load_summary(folder), style.load_raw(folder)
    places = sorted({(row["mode"], row["replicas"]) for row in summary["rows"]}, key=lambda place: (place[0] != "memory",
                                                                                                   place[1]))
    figure, axes = plt.subplots(2 * len(places), 2, figsize=(10.5, 6.6 * len(places) + 1.0), squeeze=False)
    for number, (mode, replicas) in enumerate(places):
        here = [run for run in runs if (run["mode"], run["replicas"]) == (mode, replicas)]
        for row, operation in enumerate(("put", "get")):
            for column, (key, unit) in enumerate(_FIGURES):
                axis = axes[2 * number + row][column]
                _panel(axis, [run for run in here if run["operation"] == operation], key)
                axis.set_title(f"{operation}, {replicas} replicas, {mode}")
                axis.set_ylabel(unit)
    found = {}
    for axis in axes.flat:
        found.update(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    figure.suptitle("Put and get of the replicated store, clients that wait for each answer", fontweight="bold",
                    fontsize=12)
    figure.legend(list(found.values()), list(found), loc="lower center", ncols=4, bbox_to_anchor=(0.5, 0.03 / len(places)))
    return style.save(figure, folder / "kv.png", summary["manifest"], rect=(0, 0.07 / len(places), 1, 1 - 0.01 / len(places)))


def _panel(axis, runs: list[dict], key: str) -> None:
    clients = sorted({run["clients"] for run in runs})
    systems = KV.of(run["system"] for run in runs)
    for number, system in enumerate(systems):
        label, colour, _, marker = KV[system]
        points, side = [], 0.06 * (number - (len(systems) - 1) / 2)
        for place, count in enumerate(clients):
            values = [run[key] for run in runs if (run["system"], run["clients"]) == (system, count)]
            if values:
                points.append((place + side, statistics.median(values)))
                axis.vlines(place + side, min(values), max(values), color=colour, linewidth=1.2)
        if points:
            axis.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=label)
        for place, value in points:
            axis.annotate(_short(value), (place, value), xytext=(7, 4), textcoords="offset points", fontsize=8,
                          color=colour)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_xticks(range(len(clients)), [f"{count} client{'s' if count > 1 else ''}" for count in clients])
    axis.margins(x=0.18, y=0.18)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1000:,.1f}k"


if __name__ == "__main__":
    style.main(draw, "results/kv")
