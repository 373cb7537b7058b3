# SPDX-License-Identifier: Apache-2.0
"""Draws results/demo-dns: for each mode the slowest and the median answer in every tenth of a second, over the run,
with the stops of the primary shaded. Called by demo/dns.py, or by hand: `/usr/bin/python3 -m plots.demo_dns [FOLDER]`.
"""

import csv
from pathlib import Path

from plots import style
from plots.looks import MODES
from plots.style import plt

_SLOT_S = 0.1
_GIVEN_UP_MS = 2000.0  # The client's time-out in bench/dns_rig.py.


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    rows = {row["mode"]: row for row in summary["rows"]}
    modes = MODES.of(row["mode"] for row in summary["rows"])
    figure, axes = plt.subplots(len(modes), 1, figsize=(9.5, 1.75 * len(modes) + 1.0), sharex=True, sharey=True,
                                squeeze=False)
    for mode, axis in zip(modes, axes[:, 0], strict=True):
        config = summary["manifest"]["configs"][rows[mode]["config_hash"]]
        _timeline(axis, mode, folder / "raw" / f"{mode}.csv", config["stall"])
        row = rows[mode]
        lost = f", {row['lost']} lost" if row["lost"] else ""
        axis.set_title(f"{MODES[mode][0]}: p99 {_ms(row['p99_ms'])}, slowest {_ms(row['max_ms'])}{lost}", loc="left")
    axes[-1][0].set_xlabel("time (s)")
    figure.supylabel("answer time (ms, logarithmic)", fontsize=10)
    figure.suptitle("DNS while a server stops: slowest (line) and median (band's edge) answer per 0.1 s",
                    fontweight="bold", fontsize=12)
    return style.save(figure, folder / "demo-dns.png", summary["manifest"], rect=(0.01, 0.02, 1, 0.99))


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _timeline(axis, mode: str, path: Path, stall: list[float]) -> None:
    slots: dict[int, list[float]] = {}
    with open(path, encoding="ascii") as file:
        lines = list(csv.DictReader(file))
    # The stalls count from the first measured request, which comes after the warm-up.
    origin_us = min(float(line["intended_us"]) for line in lines)
    for line in lines:
        latency_ms = float(line["latency_us"]) / 1e3 if line["latency_us"] else _GIVEN_UP_MS
        slots.setdefault(int((float(line["intended_us"]) - origin_us) / 1e6 / _SLOT_S), []).append(latency_ms)
    _, colour, _, _ = MODES[mode]
    x = [slot * _SLOT_S for slot in sorted(slots)]
    slowest = [max(slots[slot]) for slot in sorted(slots)]
    median = [sorted(slots[slot])[len(slots[slot]) // 2] for slot in sorted(slots)]
    axis.fill_between(x, median, slowest, color=colour, alpha=0.25, step="post", linewidth=0)
    axis.step(x, slowest, color=colour, where="post", linewidth=1.4)
    first_s, every_s, for_s = stall
    while first_s < x[-1]:
        axis.axvspan(first_s, first_s + for_s, color="#cccccc", alpha=0.6, linewidth=0)
        axis.text(first_s + for_s / 2, 5500, "stopped", ha="center", va="top", fontsize=7, color="#444444")
        first_s += every_s
    axis.axhline(10, color="#999999", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_ylim(0.05, 7000)
    axis.set_yticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1000"])
    axis.minorticks_off()
    axis.set_xlim(0, x[-1] + _SLOT_S)


if __name__ == "__main__":
    style.main(draw, "results/demo-dns")
