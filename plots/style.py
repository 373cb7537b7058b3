# SPDX-License-Identifier: Apache-2.0
"""One look for all charts. Imported by charts.py when it draws, before pyplot, to choose the Agg backend."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend must be chosen first)

plt.rcParams.update({
    "figure.dpi": 110, "savefig.dpi": 140, "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.7, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "lines.linewidth": 1.8,
})


def footnote(figure, manifest: dict) -> None:
    text = (f"{manifest['cpus']} x {manifest['cpu']}, Linux {manifest['kernel']}, commit {manifest['commit'][:10]}"
            f"{' with changes' if manifest['uncommitted_changes'] else ''}, {manifest['finished'][:10]}")
    figure.text(0.995, 0.004, text, ha="right", va="bottom", fontsize=7, color="#555555")
