# SPDX-License-Identifier: Apache-2.0
"""Draws results/adaptive: p99, hedge delay and extra load over the phases of the first round. Called by bench/adaptive.py, or
by hand: `/usr/bin/python3 -m plots.adaptive`.
"""

from pathlib import Path

from plots import style
from plots.style import plt

_MODES = {"adaptive": ("adaptive delay, the fastest first", "#009E73", "-"), "fixed": ("fixed delay", "#D55E00", "--")}
_PHASES = {"healthy": "healthy", "one-slow": "one replica\n20 x slower", "healthy-again": "healthy",
           "both-slow": "both\n20 x slower"}
_BUDGET = 0.05


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    # The first round's, without the answer times that are only computed with.
    runs = {run["mode"]: run for run in reversed(style.load_raw(folder)) if run["mode"] in _MODES}
    figure, (latency, delay, load) = plt.subplots(3, 1, figsize=(9, 8.4), sharex=True, height_ratios=(3, 2, 2))
    for mode, (label, colour, line) in _MODES.items():
        if mode not in runs:
            continue
        run = runs[mode]
        seconds = [second["at_s"] for second in run["seconds"]]
        latency.plot(seconds, [second["p99_ms"] for second in run["seconds"]], color=colour, linestyle=line,
                     label=f"p99, {label}")
        latency.plot(seconds, [second["p50_ms"] for second in run["seconds"]], color=colour, linestyle=line,
                     linewidth=0.9, alpha=0.6, label=f"p50, {label}")
        delay.plot([sample["at_s"] for sample in run["samples"]], [sample["delay_ms"] for sample in run["samples"]],
                   color=colour, linestyle=line, drawstyle="steps-post")
        load.plot([at_s for at_s, _ in run["extra_load"]], [100 * extra for _, extra in run["extra_load"]],
                  color=colour, linestyle=line)
    _phases(runs, (latency, delay, load))
    for axis, text in ((latency, "latency (ms), each second"), (delay, "hedge delay (ms)")):
        axis.set_yscale("log")
        axis.set_ylabel(text)
        ticks = [1, 2, 5, 10, 20, 50, 100]
        axis.set_yticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
    load.axhline(100 * (_BUDGET + 0.01), color="#999999", linewidth=0.8)
    load.text(0, 100 * (_BUDGET + 0.01) + 0.1, "budget + 1 point", fontsize=8, color="#555555", va="bottom")
    load.set_ylim(0, 100 * (_BUDGET + 0.02))
    load.set_ylabel("extra load in 10 s (%)")
    load.set_xlabel("seconds")
    handles, labels = latency.get_legend_handles_labels()
    figure.suptitle("1,000 requests/s to two alike replicas, 5 % budget", fontweight="bold", fontsize=12)
    figure.legend(handles, labels, loc="lower center", ncols=2, bbox_to_anchor=(0.5, 0.02), fontsize=9)
    return style.save(figure, folder / "adaptive.png", summary["manifest"], rect=(0, 0.07, 1, 0.99))


def _phases(runs: dict[str, dict], axes) -> None:
    run = next(iter(runs.values()))
    begins = run["changes_s"]
    ends = [*begins[1:], run["seconds"][-1]["at_s"] + 1]
    for number, (name, begin, end) in enumerate(zip(_PHASES.values(), begins, ends, strict=False)):
        for axis in axes:
            if number % 2:
                axis.axvspan(begin, end, color="#f2f2f2", zorder=0)
        axes[0].text((begin + end) / 2, 1.0, name, transform=axes[0].get_xaxis_transform(), ha="center", va="bottom",
                     fontsize=9)


if __name__ == "__main__":
    style.main(draw, "results/adaptive")
