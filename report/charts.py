# SPDX-License-Identifier: Apache-2.0
"""The page's charts, drawn by matplotlib as SVG that becomes part of the page: one panel each, as wide as a telephone, whose
colours are the page's variables, so that they follow its light or dark scheme. Called by sections.py.
"""

import io
import re
from collections.abc import Callable, Iterable, Sequence

from plots import style
from plots.style import plt

# What stands for the page's own colours while matplotlib draws; `colour()` names a series' one.
_INK, _MUTED, _GRID, _SHADE = "#010203", "#040506", "#070809", "#0a0b0c"
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _GRID: "--grid", _SHADE: "--shade", "#000000": "--ink"}
DARK = {  # a series' colour in plots/looks.py: the same on a dark ground
    "#D55E00": "#ff8c42", "#CC79A7": "#e39ac6", "#0072B2": "#56b0ee", "#009E73": "#2fcb9c", "#56B4E9": "#56b4e9",
    "#8C6D31": "#cfa85c", "#444444": "#c4c4c4", "#666666": "#a8a8a8", "#E69F00": "#f5b942", "#B00020": "#ff6b7d"}
_LOOK = {"svg.fonttype": "none", "font.size": 9.5, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _MUTED,
         "xtick.color": _MUTED, "ytick.color": _MUTED, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
         "grid.color": _GRID, "axes.labelsize": 9.5, "lines.linewidth": 1.6}
_SIZE_IN = (4.9, 3.0)
_MS_TICKS = {0.1: "0.1", 1: "1", 10: "10", 100: "100", 1000: "1,000", 5000: "5,000"}


def variable(colour: str) -> str:
    return "--ink" if colour == "#000000" else f"--c{colour[1:].lower()}"


def panel(name: str, description: str, draw: Callable, size_in: tuple[float, float] = _SIZE_IN) -> str:
    """An <svg> with ids of its own; `draw` is given the axes."""
    with plt.rc_context({**_LOOK, "svg.hashsalt": name}):
        figure, axis = plt.subplots(figsize=size_in)
        draw(axis)
        figure.tight_layout(pad=0.3)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return _inline(out.getvalue(), name, description)


def _inline(text: str, name: str, description: str) -> str:
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # A bar's label says where its number stands: check.py compares.
    text = re.sub(r'<g id="data:([^"]+)">', r'<g data-label="\1">', text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'url\(#([^)]+)\)', rf'url(#{name}-\1)', text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"font: ((?:\w+ )?[\d.]+px) [^;\"]+", r"font: \1 var(--font)", text)
    for stand_in, name_of in _VARIABLES.items():
        text = text.replace(stand_in, f"var({name_of})")
    for light in DARK:
        text = text.replace(light.lower(), f"var({variable(light)})")
    # A hundredth of a point is finer than any screen.
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
    box = re.search(r'viewBox="[^"]+"', text)[0]
    return re.sub(r"<svg.*?>", f'<svg {box} role="img" aria-label="{description}">', text, count=1, flags=re.DOTALL)


def timeline(axis, series: dict, colour: str, no_answer_ms: float) -> None:
    """Median to longest wait of each slot of time, faults shaded, slots with requests that were never answered crossed."""
    slots = series["slots"]
    x = [slot[0] for slot in slots]
    for begin_s, end_s in series["kills_s"]:
        axis.axvspan(begin_s, end_s, color=_SHADE, linewidth=0)
        axis.axvline(begin_s, color=_MUTED, linewidth=1.0)
    axis.fill_between(x, [slot[1] for slot in slots], [slot[2] for slot in slots], color=colour, alpha=0.35, step="post",
                      linewidth=0)
    axis.step(x, [slot[2] for slot in slots], color=colour, where="post", linewidth=1.2)
    failed = [slot[0] for slot in slots if slot[3]]
    axis.scatter(failed, [no_answer_ms] * len(failed), marker="x", s=9, color="#B00020", linewidths=0.9, zorder=3)
    axis.set_yscale("log")
    axis.set_ylim(0.05, 12000)
    axis.set_yticks(*_ticks(_MS_TICKS))
    axis.minorticks_off()
    axis.set_xlim(0, x[-1] + 0.1)
    axis.set_xlabel("sent at (s)")
    axis.set_ylabel("wait (ms)")


def tails(axis, curves: Iterable[tuple[Sequence[Sequence[float]], str, str]], unit: str,
          limits: tuple[float, float] | None = None) -> None:
    """Each of `curves`: its points (value, share above it), colour and line."""
    for points, colour, line in curves:
        shares = [1.0, *(point[1] for point in points[:-1])]
        axis.plot([point[0] for point in points], [max(share, 1e-9) for share in shares], color=colour, linestyle=line,
                  drawstyle="steps-post")
    axis.set_xscale("log")
    style.tail_axis(axis)
    if limits:
        axis.set_xlim(*limits)
    low, high = axis.get_xlim()
    ticks = _MS_TICKS if unit == "ms" else {10.0 ** power: f"{10 ** power:,}" for power in range(7)}
    axis.set_xticks(*_ticks({at: text for at, text in ticks.items() if low <= at <= high}))
    axis.minorticks_off()
    axis.set_xlabel(f"wait ({unit})")
    axis.set_ylabel("share that waited longer")


def steps(axis, curves: Iterable[tuple[Sequence[float], str, str]], unit: str, of: str) -> None:
    """The share of each list that is at most x."""
    for values, colour, line in curves:
        axis.plot([values[0], *values], [0, *(100 * (rank + 1) / len(values) for rank in range(len(values)))], color=colour,
                  linestyle=line, drawstyle="steps-post")
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = {**_MS_TICKS, 0.2: "0.2", 0.5: "0.5", 2: "2", 5: "5", 20: "20", 50: "50", 200: "200"} if high / low < 300 else _MS_TICKS
    axis.set_xticks(*_ticks({at: text for at, text in sorted(ticks.items()) if low <= at <= high}))
    axis.minorticks_off()
    axis.set_ylim(0, 102)
    axis.set_xlabel(unit)
    axis.set_ylabel(f"share of {of} (%)")


def bars(axis, groups: Sequence[str], series: Iterable[tuple[str, Sequence[tuple[str, float] | None]]], unit: str,
         text: Callable[[float], str]) -> None:
    """Side by side in each group; each value comes with the place of its number, `run/pointer`."""
    series = list(series)
    width = 0.8 / len(series)
    for number, (colour, values) in enumerate(series):
        for group, found in enumerate(values):
            if found is None:
                continue
            place, value = found
            x = group + (number - (len(series) - 1) / 2) * width
            axis.bar(x, value, width=width * 0.92, color=colour)
            axis.annotate(text(value), (x, value), ha="center", va="bottom", fontsize=8, xytext=(0, 2),
                          textcoords="offset points", gid=f"data:{place}")
    axis.set_xticks(range(len(groups)), groups)
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.14)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}")
    axis.set_ylabel(unit)


def _ticks(ticks: dict[float, str]) -> tuple[list[float], list[str]]:
    return list(ticks), list(ticks.values())
