# SPDX-License-Identifier: Apache-2.0
"""Draws results/observe/: the throughput that is lost while somebody looks, a point for each round, a line for their
median, and what is allowed. Called by bench/observe.py.
"""

from pathlib import Path

from plots import style
from plots.style import plt

_LABELS = {"watched": "metrics and page,\nonce a second", "traced": "trace that\nmatches nothing",
           "top": "hedgerow top\n(program times)"}
_ALLOWED = {"watched": 1.0, "traced": 3.0}


def _rate(slices: list[dict]) -> float:
    return sum(each["n"] for each in slices) / sum(each["wall_s"] for each in slices)


def draw(folder: Path) -> Path:
    summary, rounds = style.load_summary(folder), style.load_raw(folder)
    rows = {row["mode"]: row for row in summary["rows"]}
    modes = [mode for mode in _LABELS if mode in rows]
    figure, axis = plt.subplots(figsize=(7.5, 4.6))
    for place, mode in enumerate(modes):
        losses = [100 * (1 - _rate(each[mode]) / _rate(each["alone"])) for each in rounds]
        spread = [place + 0.28 * (number / max(1, len(losses) - 1) - 0.5) for number in range(len(losses))]
        axis.scatter(spread, losses, s=22, color="#0072B2", alpha=0.75, zorder=3)
        axis.hlines(100 * rows[mode]["loss"], place - 0.3, place + 0.3, color="#D55E00", linewidth=2.5, zorder=4)
        axis.annotate(f"{100 * rows[mode]['loss']:+.2f} %", (place + 0.31, 100 * rows[mode]["loss"]), va="center",
                      fontsize=9)
        if mode in _ALLOWED:
            axis.hlines(_ALLOWED[mode], place - 0.4, place + 0.4, color="#222222", linestyle="--", linewidth=1.2)
    axis.axhline(0, color="#888888", linewidth=0.8)
    axis.set_xticks(range(len(modes)), [_LABELS[mode] for mode in modes])
    axis.set_xlim(-0.6, len(modes) - 0.2)
    axis.set_ylabel("throughput lost, %")
    axis.set_title(f"What looking costs, of {rows['alone']['rate']:,.0f} requests/s (dashed: allowed)")
    axis.grid(axis="x", visible=False)
    return style.save(figure, folder / "observe.png", summary["manifest"], rect=(0, 0.02, 1, 1))


if __name__ == "__main__":
    style.main(draw, "results/observe")
