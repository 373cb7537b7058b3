# SPDX-License-Identifier: Apache-2.0
"""Draws results/election: the share of terms that were quicker than x, for the two rounds of votes and for the time from a
leader's death to the next leader, by size of cluster, mode and kind of death. Called by bench/election.py, or by hand:
`/usr/bin/python3 -m plots.election [FOLDER]`.
"""

from pathlib import Path

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from plots import style
from plots.looks import CAUSES
from plots.style import plt

_COLOURS = {3: "#0072B2", 5: "#D55E00"}
_LINES = {"memory": "-", "disk": "--"}


def draw(folder: Path) -> Path:
    summary, runs = style.load_summary(folder), style.load_raw(folder)
    sizes = sorted({run["replicas"] for run in runs})
    modes = [mode for mode in _LINES if any(run["mode"] == mode for run in runs)]
    figure, axes = plt.subplots(1, 2 + len(sizes), figsize=(4.6 * (2 + len(sizes)), 4.6))
    for axis, key, title in ((axes[0], "vote_us", "RequestVote to quorum"), (axes[1], "pre_vote_us", "PreVote to quorum")):
        for replicas in sizes:
            for mode in modes:
                _steps(axis, [run for run in runs if (run["replicas"], run["mode"]) == (replicas, mode)], key,
                       color=_COLOURS[replicas], linestyle=_LINES[mode], label=f"{replicas} nodes, {mode}")
        axis.set_title(title)
        axis.set_xlabel("us")
    for axis, replicas in zip(axes[2:], sizes, strict=True):
        for cause in CAUSES.of(run["cause"] for run in runs):
            label, colour, *_ = CAUSES[cause]
            for mode in modes:
                here = [run for run in runs if (run["replicas"], run["mode"], run["cause"]) == (replicas, mode, cause)]
                _steps(axis, here, "outage_ms", color=colour, linestyle=_LINES[mode], label=f"{label}, {mode}")
        axis.set_title(f"from death to the next leader, {replicas} nodes")
        axis.set_xlabel("ms")
    for axis in axes:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(0, 1.02)
        axis.set_ylabel("share of terms that were quicker")
        axis.legend(fontsize=8, loc="best")
    figure.suptitle("Elections of idle clusters", fontweight="bold", fontsize=12)
    return style.save(figure, folder / "election.png", summary["manifest"], rect=(0, 0.02, 1, 1))


def _steps(axis, runs: list[dict], key: str, **look) -> None:
    values = sorted(term[key] for run in runs for term in run["terms"] if term[key] is not None)
    if values:
        axis.step(values, [(i + 1) / len(values) for i in range(len(values))], where="post", **look)


if __name__ == "__main__":
    style.main(draw, "results/election")
