# SPDX-License-Identifier: Apache-2.0
"""Draws results/chaos-NAME: how long clients waited, event by event, and the wait by the time of sending around a fault.
Called by chaos/run.py, or by hand: `/usr/bin/python3 -m plots.chaos [FOLDER]`.
"""

import statistics
from pathlib import Path

from plots import style
from plots.looks import STORES
from plots.style import plt

_BEFORE_MS, _SLOT_MS = 100.0, 20.0  # of the profiles: chaos/unavailable.py
_TICKS_MS = [1, 10, 100, 1000, 5000]


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    runs = style.load_raw(folder)
    modes = list(dict.fromkeys(row["mode"] for row in summary["rows"]))
    figure, axes = plt.subplots(len(modes), 2, figsize=(11.5, 3.9 * len(modes) + 0.9), squeeze=False)
    for mode, (left, right) in zip(modes, axes, strict=True):
        of_mode = [run for run in runs if run["mode"] == mode]
        _each_event(left, of_mode)
        _around_a_fault(right, of_mode)
        left.set_title(f"{mode}, each fault: longest wait (thick)\nand longest time without any write (thin)")
        right.set_title(f"{mode}, median fault:\nlongest wait by time of sending")
    axes[0][1].legend(loc="upper right", fontsize=8.5)
    scenario = summary["manifest"]["scenario"]
    figure.suptitle(f"{scenario['name']}: {scenario['what']}", fontweight="bold", fontsize=12)
    return style.save(figure, folder / "chaos.png", summary["manifest"], rect=(0, 0.02, 1, 0.99))


def _each_event(axis, runs: list[dict]) -> None:
    for system in STORES.of(run["system"] for run in runs):
        label, colour, line, _ = STORES[system]
        costs = [cost for run in runs if run["system"] == system for cost in run["costs"]]
        for figure, width in (("unavailable_ms", 2.2), ("outage_ms", 0.9)):
            values = sorted(cost[figure] for cost in costs)
            shares = [100 * (rank + 1) / len(values) for rank in range(len(values))]
            if values:
                axis.plot([values[0], *values], [0, *shares], color=colour, linestyle=line, linewidth=width,
                          label=label if figure == "unavailable_ms" else None, drawstyle="steps-post")
    axis.set_xscale("log")
    axis.set_xlim(0.5, 6500)
    axis.set_xticks(_TICKS_MS, [f"{tick:,}" for tick in _TICKS_MS])
    axis.minorticks_off()
    axis.set_xlabel("ms (logarithmic; 5,000: no answer)")
    axis.set_ylabel("share of faults (%)")


def _around_a_fault(axis, runs: list[dict]) -> None:
    for system in STORES.of(run["system"] for run in runs):
        label, colour, line, _ = STORES[system]
        profiles = [cost["profile_ms"] for run in runs if run["system"] == system for cost in run["costs"]]
        if not profiles:
            continue
        slots = range(max(map(len, profiles)))
        seen = [[profile[slot] for profile in profiles if slot < len(profile) and profile[slot] is not None]
                for slot in slots]
        points = [(slot * _SLOT_MS - _BEFORE_MS, statistics.median(waits)) for slot, waits in zip(slots, seen, strict=True)
                  if len(waits) * 2 >= len(profiles)]
        axis.plot(*zip(*points, strict=True), color=colour, linestyle=line, label=label, drawstyle="steps-post")
    axis.axvline(0, color="#999999", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_ylim(0.3, 6500)
    axis.set_yticks(_TICKS_MS, [f"{tick:,}" for tick in _TICKS_MS])
    axis.minorticks_off()
    axis.set_xlabel("request sent at (ms after the fault)")
    axis.set_ylabel("wait (ms, logarithmic)")


if __name__ == "__main__":
    style.main(draw, "results/chaos-leader-kill")
