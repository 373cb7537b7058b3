# SPDX-License-Identifier: Apache-2.0
"""Draws results/standby-choice: p99 and each replica's share of the requests over the phases of the first round. Called by
bench/standby_choice.py, or by hand: `/usr/bin/python3 -m plots.standby_choice`.
"""

from pathlib import Path

from plots import style
from plots.style import plt

_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00")  # of a to e
_PHASES = {"healthy": "healthy", "slow-5s": "a 20 x\nslower", "back": "well", "one-slow": "a 20 x slower", "well": "well",
           "overloaded": "all overloaded"}


def draw(folder: Path) -> Path:
    summary, run = style.load_summary(folder), style.load_raw(folder)[0]
    figure, (latency, share) = plt.subplots(2, 1, figsize=(9, 6.4), sharex=True, height_ratios=(3, 3))
    seconds = [second["at_s"] for second in run["seconds"]]
    for key, line in (("p99_ms", "-"), ("p50_ms", ":")):
        latency.plot(seconds, [second[key] for second in run["seconds"]], color="#009E73", linestyle=line, label=key[:3])
    latency.set_yscale("log")
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
    latency.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    latency.minorticks_off()
    latency.set_ylabel("latency (ms), each second")
    latency.legend(loc="upper left")
    samples = run["samples"]
    for colour, name in zip(_COLOURS, samples[0]["received"], strict=False):
        points = [(after["at_s"], after["received"][name] - before["received"][name],
                   sum(after["received"].values()) - sum(before["received"].values()))
                  for before, after in zip(samples, samples[1:], strict=False)]
        share.plot([at_s for at_s, _, _ in points], [100 * own / total if total else 0 for _, own, total in points], color=colour,
                   drawstyle="steps-pre", label=name)
    share.set_ylabel("share of the requests (%)")
    share.set_xlabel("seconds")
    share.set_ylim(0, None)
    share.legend(loc="lower right", ncols=5, bbox_to_anchor=(1, 0.98))
    for number, (name, begin_s, end_s) in enumerate(run["begins"]):
        for axis in (latency, share):
            if number % 2:
                axis.axvspan(begin_s, end_s, color="#f2f2f2", zorder=0)
        latency.text((begin_s + end_s) / 2, 1.0, _PHASES[name], transform=latency.get_xaxis_transform(), ha="center", va="bottom",
                     fontsize=9)
    figure.suptitle("1,500 requests/s to five alike replicas, the fastest preferred", fontweight="bold", fontsize=12)
    return style.save(figure, folder / "standby-choice.png", summary["manifest"], rect=(0, 0.02, 1, 0.97))


if __name__ == "__main__":
    style.main(draw, "results/standby-choice")
