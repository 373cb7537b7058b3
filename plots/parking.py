# SPDX-License-Identifier: Apache-2.0
"""Draws results/parking: time per run of each kernel program, CPU per request and laps of the clock, with every
request parked, with every request cloned into a delay line, and with none of it. Bars are medians, whiskers the smallest
and largest run. Called by bench/parking.py.
"""

from pathlib import Path

from plots import style
from plots.looks import PARKING
from plots.style import plt

_VARIANTS = {"1000": "1,000/s", "20000": "20,000/s", "highest": "highest\nwithout loss"}
_PROGRAMS = {"hr_splitter": "splitter", "hr_reply": "reply", "hr_clock": "clock (a lap)"}


def draw(folder: Path) -> Path:
    summary, runs = style.load_summary(folder), style.load_raw(folder)
    figure, axes = plt.subplots(2, 3, figsize=(12.5, 7.2))
    for axis, (program, name) in zip(axes[0], _PROGRAMS.items(), strict=True):
        _bars(axis, runs, lambda run, p=program: run["programs"].get(p, {}).get("ns_per_run"))
        axis.set_title(name)
        axis.set_ylabel("ns per run")
    for axis, key, title, unit in ((axes[1][0], "cpu_us_per_request", "CPU, servers included", "us per request"),
                                   (axes[1][1], "laps_per_second", "the clock", "laps per second"),
                                   (axes[1][2], "rate", "rate", "requests per second")):
        _bars(axis, runs, lambda run, k=key: run[k])
        axis.set_title(title)
        axis.set_ylabel(unit)
    axes[1][2].set_yscale("log")
    modes = PARKING.of(run["mode"] for run in runs)
    handles = [plt.Rectangle((0, 0), 1, 1, color=PARKING[mode].colour) for mode in modes]
    figure.suptitle("What parking costs when every answer comes at once", fontweight="bold", fontsize=12)
    figure.legend(handles, [PARKING[mode].label for mode in modes], loc="lower center", ncols=4, bbox_to_anchor=(0.5, 0.01))
    return style.save(figure, folder / "parking.png", summary["manifest"], rect=(0, 0.06, 1, 0.99))


def _short(value: float) -> str:
    """Three digits are as many as fit over a bar."""
    if value >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _bars(axis, runs: list[dict], value) -> None:
    modes = PARKING.of(run["mode"] for run in runs)
    for number, mode in enumerate(modes):
        side = 0.8 / len(modes) * (number - (len(modes) - 1) / 2)
        for place, variant in enumerate(_VARIANTS):
            found = sorted(v for v in (value(run) for run in runs if run["mode"] == mode and run["variant"] == variant)
                           if v is not None)
            if not found:
                continue
            median = (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2
            axis.bar(place + side, median, width=0.75 / len(modes), color=PARKING[mode].colour)
            axis.vlines(place + side, found[0], found[-1], color="#222222", linewidth=1.2)
            axis.annotate(_short(median), (place + side, found[-1]), ha="center",
                          va="bottom", fontsize=8, xytext=(0, 2), textcoords="offset points")
    axis.set_xticks(range(len(_VARIANTS)), list(_VARIANTS.values()))
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.15)


if __name__ == "__main__":
    style.main(draw, "results/parking")
