# SPDX-License-Identifier: Apache-2.0
"""One look for all plots, and axes that say their unit; looks.py has the systems. Imported by the plot of each experiment, before pyplot, to choose the Agg backend.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend must be chosen first)

plt.rcParams.update({
    "figure.dpi": 110, "savefig.dpi": 140, "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.7, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "lines.linewidth": 1.8,
})


def load_summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text(encoding="ascii"))


def load_raw(folder: Path, pattern: str = "*.json") -> list[dict]:
    return [json.loads(path.read_text(encoding="ascii")) for path in sorted((folder / "raw").glob(pattern))]


def footnote(figure, manifest: dict) -> None:
    text = (f"{manifest['cpus']} x {manifest['cpu']}, Linux {manifest['kernel']}, commit {manifest['commit'][:10]}"
            f"{' with changes' if manifest['uncommitted_changes'] else ''}, {manifest['finished'][:10]}")
    figure.text(0.995, 0.004, text, ha="right", va="bottom", fontsize=7, color="#555555")


def save(figure, path: Path, manifest: dict, rect: tuple[float, float, float, float]) -> Path:
    """With its footnote; `rect` is the part of the figure that is left for all else."""
    footnote(figure, manifest)
    figure.tight_layout(rect=rect)
    figure.savefig(path)
    plt.close(figure)
    return path


def main(draw: Callable[[Path], object], folder: str) -> None:
    """Draws what is in the folder that the command line names, or in `folder`."""
    print(draw(Path(sys.argv[1] if len(sys.argv) > 1 else folder)))


def tail_axis(axis) -> None:
    """Turns y into 'share of requests slower than x', logarithmic, labelled with percentiles."""
    axis.set_yscale("log")
    axis.set_ylim(5e-5, 1.0)
    ticks = {1e-1: "p90", 1e-2: "p99", 1e-3: "p99.9", 1e-4: "p99.99"}
    axis.set_yticks(list(ticks), list(ticks.values()))
    axis.minorticks_off()


def tail_points(histogram, unit_ns: float) -> tuple[list[float], list[float]]:
    """A histogram as the share of values above x: from 1 down, ending at the maximum."""
    points = histogram.cumulative()
    x = [value / unit_ns for value, _ in points]
    y = [1.0] + [max(1 - share, 1e-9) for _, share in points[:-1]]
    return x, y
