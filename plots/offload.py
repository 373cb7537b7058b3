# SPDX-License-Identifier: Apache-2.0
"""Draws results/offload: for each size of cluster the closed-loop load-latency curve (a point for each number of clients: how
many puts they get answered in a second, and how long half and 99 % of them take at most), and the cluster's processor time
per put, by what the kernel was doing. Points are medians of the runs, bars the smallest and largest. Called by
bench/offload.py, or by hand: `/usr/bin/python3 -m plots.offload [FOLDER]`.
"""

from pathlib import Path

from matplotlib.ticker import FuncFormatter, NullFormatter

from plots import style
from plots.looks import OFFLOADS
from plots.style import plt

_KINDS = {"stack_share": ("network stack", "#D55E00"), "switch_share": ("waking and switching tasks", "#E69F00"),
          "offload_share": ("kernel programs", "#009E73"), "user_share": ("the nodes' own code", "#0072B2"),
          None: ("rest of the kernel", "#bbbbbb")}


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    rows = summary["rows"]
    sizes = sorted({row["replicas"] for row in rows})
    figure, axes = plt.subplots(len(sizes), 3, figsize=(15, 4.6 * len(sizes) + 1.2), squeeze=False)
    for line, replicas in enumerate(sizes):
        here = [row for row in rows if row["replicas"] == replicas and row.get("rate_per_s") is None]
        for column, (key, name) in enumerate((("p50_us", "half are faster than"), ("p99_us", "99 % are faster than"))):
            _curves(axes[line][column], here, key)
            axes[line][column].set_title(f"{replicas} replicas")
            axes[line][column].set_ylabel(f"{name} (us)")
        _costs(axes[line][2], here)
        axes[line][2].set_title(f"{replicas} replicas, {max(row['clients'] for row in here)} clients")
    found = {}
    for axis in axes.flat:
        found.update(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    clients = "/".join(str(count) for count in sorted({row["clients"] for row in rows}))
    figure.suptitle(f"Puts of 64 bytes in memory mode: closed loop, {clients} clients that wait for each answer",
                    fontweight="bold", fontsize=12)
    figure.legend(list(found.values()), list(found), loc="lower center", ncols=5,
                  bbox_to_anchor=(0.5, 0.04 / len(sizes)))
    return style.save(figure, folder / "offload.png", summary["manifest"], rect=(0, 0.2 / len(sizes), 1, 1 - 0.01 / len(sizes)))


def _curves(axis, rows: list[dict], key: str) -> None:
    for variant in OFFLOADS.of(row["variant"] for row in rows):
        label, colour, line, marker = OFFLOADS[variant]
        points = sorted((row for row in rows if row["variant"] == variant), key=lambda row: row["clients"])
        axis.plot([row["put_per_s"] for row in points], [row[key] for row in points], color=colour, marker=marker,
                  markersize=5, linestyle=line, label=label)
        for row in points:
            axis.vlines(row["put_per_s"], row[f"{key}_min"], row[f"{key}_max"], color=colour, linewidth=1.0)
            axis.hlines(row[key], row["put_per_s_min"], row["put_per_s_max"], color=colour, linewidth=1.0)
    axis.set_xscale("log")
    axis.set_yscale("log")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        side.set_minor_formatter(NullFormatter())
    axis.set_xlabel("puts per second")


def _costs(axis, rows: list[dict]) -> None:
    most = max(row["clients"] for row in rows)
    shown = [row for variant in OFFLOADS.of(row["variant"] for row in rows) for row in rows if (row["variant"], row["clients"]) == (variant, most)]
    left = [0.0] * len(shown)
    for key, (label, colour) in _KINDS.items():
        widths = [row["cluster_cpu_us_per_op"] * _share(row, key) for row in shown]
        axis.barh(range(len(shown)), widths, left=left, color=colour, label=label, height=0.7)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, total in enumerate(left):
        axis.annotate(f"{total:,.0f}", (total, place), xytext=(3, -3), textcoords="offset points", fontsize=8)
    axis.set_yticks(range(len(shown)), [row["variant"] for row in shown])
    axis.invert_yaxis()
    axis.set_xlabel("processor time of the cluster for each put (us)")


def _share(row: dict, key: str | None) -> float:
    """The last kind is what the others leave."""
    if key is not None:
        return row[key] or 0.0
    return max(0.0, 1.0 - sum(_share(row, other) for other in _KINDS if other is not None))


if __name__ == "__main__":
    style.main(draw, "results/offload")
