# SPDX-License-Identifier: Apache-2.0
"""Draws results/steer: processor time of a message, answer times, highest rates and bursts, by system. `./dev bench steer` calls it at
its end; `/usr/bin/python3 -m plots.steer` draws again."""

from pathlib import Path

from plots import style
from plots.looks import STEERING
from plots.style import plt


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    systems = STEERING.of(row["system"] for row in summary["rows"])
    rows = {(row["load"], row["transport"], row["workers"], row["system"]): row for row in summary["rows"]}
    workers = sorted({key[2] for key in rows})
    middle = workers[len(workers) // 2]
    transports = [each for each in ("udp", "tcp", "both") if any(key[1] == each for key in rows)]
    figure, axes = plt.subplots(2, 3, figsize=(15, 8))

    def by_transport(axis, load: str, key: str, title: str, unit: str, scale: float = 1.0) -> None:
        _bars(axis, [(each, {system: rows.get((load, each, middle, system)) for system in systems}) for each in transports], key, scale)
        axis.set_title(f"{title}, {middle} workers")
        axis.set_ylabel(unit)

    by_transport(axes[0][0], "working", "total_us", f"CPU, workers take {summary['manifest']['work_us']} us", "us per message")
    by_transport(axes[0][1], "idle", "total_us", "CPU, idle workers", "us per message")
    by_transport(axes[0][2], "idle", "p99_us", "p99, idle workers", "us")
    axes[0][2].set_yscale("log")  # one disturbed round is a hundred times the others
    by_transport(axes[1][0], "idle", "highest_rate", "highest rate without loss", "thousand messages/s", 1e-3)
    _bars(axes[1][1], [(f"{each} workers", {system: rows.get(("idle", "tcp", each, system)) for system in systems}) for each in workers],
          "total_us", 1.0)
    axes[1][1].set_title("CPU, idle workers, TCP")
    axes[1][1].set_ylabel("us per message")
    by_transport(axes[1][2], "idle", "burst_10000_ms", "10,000 connects until answered", "ms")
    handles = [plt.Rectangle((0, 0), 1, 1, color=STEERING[system].colour) for system in systems]
    figure.legend(handles, [STEERING[system].label for system in systems], loc="upper center", ncol=len(systems))
    return style.save(figure, folder / "steer.png", summary["manifest"], (0, 0.02, 1, 0.95))


def _bars(axis, groups: list[tuple[str, dict]], key: str, scale: float) -> None:
    groups = [(label, by_system) for label, by_system in groups if any(row and row.get(key) is not None for row in by_system.values())]
    if not groups:
        axis.text(0.5, 0.5, "not measured", ha="center", transform=axis.transAxes)
        axis.set_yticks([])
    for place, (_, by_system) in enumerate(groups):
        for side, (system, row) in enumerate(by_system.items()):
            if row is None or row.get(key) is None:
                continue
            x, height = place + (side - (len(by_system) - 1) / 2) * 0.16, row[key] * scale
            axis.bar(x, height, width=0.15, color=STEERING[system].colour)
            low, high = row.get(f"{key}_min", row[key]) * scale, row.get(f"{key}_max", row[key]) * scale
            axis.vlines(x, low, high, color="#222222", linewidth=1.2)
            axis.annotate(f"{height:,.0f}", (x, max(height, high)), ha="center", va="bottom", fontsize=8, xytext=(0, 2),
                          textcoords="offset points")
    axis.set_xticks(range(len(groups)), [label for label, _ in groups])
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.15)


if __name__ == "__main__":
    style.main(draw, "results/steer")
