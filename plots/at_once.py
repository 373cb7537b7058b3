# SPDX-License-Identifier: Apache-2.0
"""Draws results/at-once: one figure for each workload, with percentiles, extra load and CPU over the load, of all systems.
Called by bench/at_once.py, or by hand: `/usr/bin/python3 -m plots.at_once`.
"""

from pathlib import Path

from plots import style
from plots.looks import AT_ONCE
from plots.style import plt

_TITLES = {"stall": "2 ms, 2 % stall for 400 ms on first sight", "tail": "bounded Pareto, mean 2 ms, longest 400 ms"}
_PANELS = (("p50_ms", "p50 (ms)", True), ("p99_ms", "p99 (ms)", True), ("p999_ms", "p99.9 (ms)", True),
           ("extra_load", "extra load (%)", False), ("cpu_us_per_request", "CPU of all hosts (us per request)", False))
_MOST_MS = 1000  # the clients' time-out


def draw(folder: Path) -> str:
    summary = style.load_summary(folder)
    rows = [row for row in summary["rows"] if "proxies" in row]  # not those of the highest rates
    return ", ".join(str(_figure(folder, summary["manifest"], workload, [row for row in rows if row["workload"] == workload]))
                     for workload in dict.fromkeys(row["workload"] for row in rows))


def _figure(folder: Path, manifest: dict, workload: str, rows: list[dict]) -> Path:
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.4))
    loads = sorted({row["load"] for row in rows})
    for axis, (key, label, is_time) in zip(axes.flat, _PANELS, strict=False):
        for system in AT_ONCE.of(row["system"] for row in rows):
            points = sorted((row["load"], row[key]) for row in rows if row["system"] == system)
            if points:
                name, colour, line, marker = AT_ONCE[system]
                factor = 100 if key == "extra_load" else 1
                axis.plot([load for load, _ in points], [factor * value for _, value in points], color=colour, linestyle=line,
                          marker=marker, markersize=4.5, label=name)
        axis.set_ylabel(label)
        axis.set_xlabel("load (% of the highest rate)")
        axis.set_xticks(loads)
        if is_time:
            axis.set_yscale("log")
            axis.set_ylim(min((row[key] for row in rows), default=1) / 1.3, _MOST_MS * 1.3)
            ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick > axis.get_ylim()[0]]
            axis.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.minorticks_off()
        else:
            axis.set_ylim(bottom=min(0, *axis.get_ylim()))
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(handles, labels, loc="center left", fontsize=10)
    hosts = max((row["proxies"] for row in rows), default=1)
    clients = f", {hosts} client hosts" if hosts > 1 else ""
    figure.suptitle(f"3 replicas: {_TITLES.get(workload, workload)}{clients}", fontweight="bold", fontsize=12)
    return style.save(figure, folder / f"at-once-{workload}.png", manifest, rect=(0, 0.02, 1, 0.99))


if __name__ == "__main__":
    style.main(draw, "results/at-once")
