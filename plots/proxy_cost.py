# SPDX-License-Identifier: Apache-2.0
"""Draws results/proxy-cost: answer times, added CPU, highest rate and memory of a DNS server asked directly and behind three
proxies. Bars are medians, whiskers the smallest and largest run. Called by bench/proxy_cost.py.
"""

from pathlib import Path

from plots import style
from plots.looks import PROXIES
from plots.style import plt


def draw(folder: Path) -> Path:
    summary = style.load_summary(folder)
    rows = {(row["system"], row["variant"]): row for row in summary["rows"]}
    systems = PROXIES.of(system for system, _ in rows)
    fixed = [variant for variant in dict.fromkeys(row["variant"] for row in summary["rows"]) if variant != "highest"]
    figure, axes = plt.subplots(2, 3, figsize=(12.5, 7.0))
    labels = [f"{int(variant):,}/s" for variant in fixed]
    _bars(axes[0][0], rows, fixed, labels, "p50_us", "half of the answers within", "us")
    _bars(axes[0][1], rows, fixed, labels, "p99_us", "99 % of the answers within", "us")
    _bars(axes[0][2], rows, fixed, labels, "added_us", "CPU added to the direct run's", "us per request")
    _bars(axes[1][0], rows, ["highest"], [""], "rate", "highest rate without loss", "requests per second")
    _bars(axes[1][1], rows, fixed[-1:], [""], "cpu_us_per_request", f"CPU of the whole machine, {labels[-1]}", "us per request")
    _memory(axes[1][2], rows, fixed[-1])
    handles = [plt.Rectangle((0, 0), 1, 1, color=PROXIES[system].colour) for system in systems]
    figure.suptitle(f"What stands before a DNS server ({summary['manifest']['server']})", fontweight="bold", fontsize=12)
    figure.legend(handles, [PROXIES[system].label for system in systems], loc="lower center", ncols=4, bbox_to_anchor=(0.5, 0.01))
    return style.save(figure, folder / "proxy-cost.png", summary["manifest"], rect=(0, 0.06, 1, 0.99))


def _bars(axis, rows: dict, variants: list[str], labels: list[str], key: str, title: str, unit: str) -> None:
    systems = PROXIES.of(system for system, _ in rows)
    for place, variant in enumerate(variants):
        for side, system in enumerate(systems):
            colour = PROXIES[system].colour
            row = rows.get((system, variant))
            if row is None or row.get(key) is None or (key == "added_us" and system == "direct"):
                continue
            x = place + (side - (len(systems) - 1) / 2) * 0.2
            axis.bar(x, row[key], width=0.18, color=colour)
            low, high = row.get(f"{key}_min"), row.get(f"{key}_max")
            if key == "added_us" and row.get("added_us_stdev") is not None:
                low, high = row[key] - row["added_us_stdev"], row[key] + row["added_us_stdev"]
            if low is not None:
                axis.vlines(x, low, high, color="#222222", linewidth=1.2)
            top = max(row[key], high if high is not None else row[key])
            axis.annotate(_short(row[key]), (x, top), ha="center", va="bottom", fontsize=8, xytext=(0, 2),
                          textcoords="offset points")
    axis.set_title(title)
    axis.set_ylabel(unit)
    axis.set_xticks(range(len(variants)), labels)
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.15)


def _memory(axis, rows: dict, variant: str) -> None:
    for side, system in enumerate(PROXIES.of(system for system, _ in rows)):
        colour = PROXIES[system].colour
        row = rows.get((system, variant))
        if row is None or system == "direct":
            continue
        resident, maps = row["rss_bytes"] / 1e6, row["map_bytes"] / 1e6
        axis.bar(side, resident, width=0.7, color=colour)
        axis.bar(side, maps, width=0.7, bottom=resident, color=colour, alpha=0.4)
        text = f"{resident:.0f}" + (f" + {maps:.0f} of maps" if maps else "")
        axis.annotate(text, (side, resident + maps), ha="center", va="bottom", fontsize=8, xytext=(0, 2),
                      textcoords="offset points")
    axis.set_title("memory: processes, maps (pale)")
    axis.set_ylabel("MB")
    axis.set_xticks([])
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.15)


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    style.main(draw, "results/proxy-cost")
