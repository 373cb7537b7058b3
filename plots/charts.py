# SPDX-License-Identifier: Apache-2.0
"""Charts, declared once beside the experiment that they show, and drawn from a run's form (report/published.py): as a picture beside the
run by draw(), and by panel() as SVG that becomes part of the page. A kind of chart says which panels a run has, and draws each on axes
that it is given. matplotlib is loaded when something is drawn: the machines of the lane have none.
"""

import dataclasses
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from plots.looks import Looks

# The page has these as variables, so that its charts follow its light or dark scheme; a picture has them as they are.
_INK, _MUTED, _GRID, _SHADE = "#1c2025", "#5b6571", "#dfe3e8", "#e4e6ea"
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _GRID: "--grid", _SHADE: "--shade", "#000000": "--ink"}
DARK = {  # a series' colour in looks.py: the same on a dark ground
    "#D55E00": "#ff8c42", "#CC79A7": "#e39ac6", "#0072B2": "#56b0ee", "#009E73": "#2fcb9c", "#56B4E9": "#56b4e9",
    "#8C6D31": "#cfa85c", "#444444": "#c4c4c4", "#666666": "#a8a8a8", "#E69F00": "#f5b942", "#B00020": "#ff6b7d"}
_LOOK = {"svg.fonttype": "none", "font.size": 9.5, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _MUTED,
         "xtick.color": _MUTED, "ytick.color": _MUTED, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
         "grid.color": _GRID, "axes.labelsize": 9.5, "lines.linewidth": 1.6}
_SIZE_IN = (4.9, 3.0)
_TAILS = {1e-1: "p90", 1e-2: "p99", 1e-3: "p99.9", 1e-4: "p99.99"}


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    draw: Callable  # on axes
    key: str  # of the page's ids


@dataclasses.dataclass(frozen=True)
class Kind:
    """Rows are those for which `where` is true. Those that agree in the fields `panel` make one, titled by `titles` of the fields'
    values; `by` is the field that looks are of, and `key` the fields that name a row's series."""

    title: str = ""
    panel: Sequence[str] = ()
    key: Sequence[str] = ()
    titles: Mapping = dataclasses.field(default_factory=dict)
    where: Callable[[dict], bool] = lambda row: True
    unit: str = "ms"

    def panels(self, run, charts: "Charts") -> Iterable[Panel]:
        groups: dict[tuple, list[tuple[int, dict]]] = {}
        for place, row in enumerate(run["rows"]):
            if self.where(row):
                groups.setdefault(tuple(row[field] for field in self.panel), []).append((place, row))
        for values, rows in groups.items():
            words = [self.titles.get(value, str(value)) for value in values]
            order = charts.looks.of(row[charts.by] for _, row in rows)
            rows.sort(key=lambda each: order.index(each[1][charts.by]))
            yield Panel(": ".join(filter(None, [self.title, ", ".join(words)])),
                        lambda axis, rows=rows: self.draw(axis, run, charts, rows), "-".join(map(str, values)))

    def series(self, run, rows: Iterable[tuple[int, dict]], name: str) -> Iterable[tuple[dict, list]]:
        """Of the rows that have it."""
        for _, row in rows:
            found = run["series"].get("-".join(str(row[field]) for field in self.key), {}).get(name)
            if found:
                yield row, found

    def draw(self, axis, run, charts: "Charts", rows: list[tuple[int, dict]]) -> None:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Tails(Kind):
    """The share of requests that waited longer than x."""

    def draw(self, axis, run, charts, rows):
        for row, points in self.series(run, rows, f"tail_{self.unit}"):
            shares = [1.0, *(max(point[1], 1e-9) for point in points[:-1])]
            axis.plot([point[0] for point in points], shares, drawstyle="steps-post", **charts.line(row))
        _log(axis.xaxis)
        axis.set_yscale("log")
        axis.set_ylim(5e-5, 1.0)
        axis.set_yticks(list(_TAILS), list(_TAILS.values()))
        axis.minorticks_off()
        axis.set_xlabel(f"wait ({self.unit})")
        axis.set_ylabel("share that waited longer")


@dataclasses.dataclass(frozen=True)
class Steps(Kind):
    """The share of a sorted list of values, `y`, that is at most x; disk mode dashed where a looks' line says nothing of it."""

    y: str = ""
    of: str = ""
    label: str = ""

    def draw(self, axis, run, charts, rows):
        for row, values in self.series(run, rows, self.y):
            look = charts.line(row)
            if charts.looks[row[charts.by]].line == "-" and row.get("mode") == "disk":
                look["linestyle"] = "--"
            axis.plot([values[0], *values], [0, *(100 * (rank + 1) / len(values) for rank in range(len(values)))],
                      drawstyle="steps-post", **look)
        _log(axis.xaxis)
        axis.set_ylim(0, 102)
        axis.set_xlabel(f"{self.label} ({self.unit})" if self.label else self.unit)
        axis.set_ylabel(f"share of {self.of} (%)")


@dataclasses.dataclass(frozen=True)
class Bars(Kind):
    """`y` of each row, side by side in each group; whiskers where the row has its smallest and largest."""

    y: str = ""
    groups: Mapping = dataclasses.field(default_factory=lambda: {"": ""})  # values of `group` to labels
    group: str = ""
    text: Callable[[float], str] = lambda value: f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    scale: float = 1.0
    log: bool = False

    def draw(self, axis, run, charts, rows):
        shown = [value for value in self.groups if any(row.get(self.group, "") == value for _, row in rows)]
        systems = list(dict.fromkeys(row[charts.by] for _, row in rows))
        width = 0.8 / len(systems)
        for place, row in rows:
            if row.get(self.group, "") not in shown or row.get(self.y) is None:
                continue
            value, side = row[self.y] * self.scale, systems.index(row[charts.by])
            x = shown.index(row.get(self.group, "")) + (side - (len(systems) - 1) / 2) * width
            axis.bar(x, value, width=width * 0.92, color=charts.looks[row[charts.by]].colour)
            low, high = (row.get(f"{self.y}_{end}") for end in ("min", "max"))
            if low is not None and high is not None:
                axis.vlines(x, low * self.scale, high * self.scale, color=_MUTED, linewidth=1.0)
            axis.annotate(self.text(value), (x, value), ha="center", va="bottom", fontsize=8, xytext=(0, 2), textcoords="offset points",
                          gid=f"data:{run['name']}/rows/{place}/{self.y}")
        if self.log:
            _log(axis.yaxis)
        else:
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}")
        axis.set_xticks(range(len(shown)), [self.groups[value] for value in shown])
        axis.grid(axis="x", visible=False)
        axis.margins(y=0.14)
        axis.set_ylabel(self.unit)


@dataclasses.dataclass(frozen=True)
class Lines(Kind):
    """`y` over `x`, a point for each row."""

    x: str = ""
    y: str = ""
    label: str = ""  # of x
    scale: float = 1.0
    log: str = "y"  # the axes that are logarithmic

    def draw(self, axis, run, charts, rows):
        for system in dict.fromkeys(row[charts.by] for _, row in rows):
            own = [row for _, row in rows if row[charts.by] == system and row.get(self.y) is not None]
            if own:
                own.sort(key=lambda row: row.get("clients", row[self.x]))
                axis.plot([row[self.x] for row in own], [self.scale * row[self.y] for row in own], markersize=4.5,
                          marker=charts.looks[system].marker, **charts.line(own[0]))
        for name in self.log:
            _log(getattr(axis, f"{name}axis"))
        axis.set_xlabel(self.label or self.x.replace("_", " "))
        axis.set_ylabel(self.unit)


@dataclasses.dataclass(frozen=True)
class Times(Kind):
    """`y` of each second or slot; marked are the phases that the series names, as (begin, end, name)."""

    y: str = ""
    log: bool = True

    def draw(self, axis, run, charts, rows):
        for row, points in self.series(run, rows, self.y):
            axis.plot(*zip(*points, strict=True), drawstyle="steps-post", **charts.line(row))
        for row, phases in self.series(run, rows, "phases"):
            for number, (begin_s, end_s, name) in enumerate(phases):
                if number % 2:
                    axis.axvspan(begin_s, end_s, color=_SHADE, zorder=0, linewidth=0)
                axis.text((begin_s + end_s) / 2, 1.0, name, transform=axis.get_xaxis_transform(), ha="center", va="bottom", fontsize=7)
            break
        if self.log:
            _log(axis.yaxis)
        axis.set_xlabel("seconds")
        axis.set_ylabel(self.unit)


@dataclasses.dataclass(frozen=True)
class Waits(Kind):
    """Median to longest wait of each slot of time, faults shaded, slots with requests that were never answered crossed."""

    no_answer_ms: float = 0

    def panels(self, run, charts):
        for place, row in enumerate(run["rows"]):
            if row[charts.by] in run["series"]:
                yield Panel(charts.looks[row[charts.by]].label, lambda axis, row=row, place=place: self.draw(axis, run, charts, [(place, row)]),
                            row[charts.by])

    def draw(self, axis, run, charts, rows):
        system = rows[0][1][charts.by]
        series, colour = run["series"][system], charts.looks[system].colour
        x, median, longest, lost = zip(*series["slots"], strict=True)
        for begin_s, end_s in series["kills_s"]:
            axis.axvspan(begin_s, end_s, color=_SHADE, linewidth=0)
            axis.axvline(begin_s, color=_MUTED, linewidth=1.0)
        axis.fill_between(x, median, longest, color=colour, alpha=0.35, step="post", linewidth=0)
        axis.step(x, longest, color=colour, where="post", linewidth=1.2)
        failed = [at_s for at_s, count in zip(x, lost, strict=True) if count]
        axis.scatter(failed, [self.no_answer_ms] * len(failed), marker="x", s=9, color="#B00020", linewidths=0.9, zorder=3)
        axis.set_ylim(0.05, 12000)
        _log(axis.yaxis)
        axis.set_xlim(0, x[-1] + 0.1)
        axis.set_xlabel("sent at (s)")
        axis.set_ylabel("wait (ms)")


@dataclasses.dataclass(frozen=True)
class Charts:
    """Of an experiment. `series`: of its folder and summary, what is drawn beyond the rows: (figures, series by the row's key)."""

    title: str
    looks: Looks
    by: str
    kinds: Sequence[Kind]
    series: Callable[[Path, dict], tuple[dict, dict]] = lambda folder, summary: ({}, {})

    def line(self, row: dict) -> dict:
        look = self.looks[row[self.by]]
        return {"color": look.colour, "linestyle": look.line, "label": look.label}

    def panels(self, run: Mapping) -> list[Panel]:
        return [dataclasses.replace(panel, key=f"{run['name']}-{number}-{panel.key}")
                for number, kind in enumerate(self.kinds) for panel in kind.panels(run, self)]

    def shown(self, run: Mapping) -> list:
        """The looks of a run's systems, in their order."""
        return [self.looks[name] for name in self.looks.of(row[self.by] for row in run["rows"])]


def draw(run: Mapping, charts: Charts, path: Path) -> Path:
    """The picture of a run."""
    from plots.style import footnote, plt  # matplotlib is slow to load and not needed before

    panels = charts.panels(run)
    columns = min(3, len(panels)) if len(panels) != 4 else 2
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(5.2 * columns, 3.7 * lines + 1.0), squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        panel.draw(axis)
        axis.set_title(panel.title, fontsize=10, pad=12)
    for axis in axes.flat[len(panels):]:
        axis.axis("off")
    looks = charts.shown(run)
    handles = [plt.Line2D([], [], color=look.colour, linestyle=look.line, linewidth=3) for look in looks]
    figure.suptitle(charts.title, fontweight="bold", fontsize=12)
    figure.legend(handles, [look.label for look in looks], loc="lower center", ncols=min(len(looks), 2 * columns), fontsize=9,
                  bbox_to_anchor=(0.5, 0.1 / figure.get_figheight()))
    footnote(figure, run["manifest"])
    figure.tight_layout(rect=(0, 0.5 / figure.get_figheight(), 1, 0.99))
    figure.savefig(path)
    plt.close(figure)
    return path


def variable(colour: str) -> str:
    return "--ink" if colour == "#000000" else f"--c{colour[1:].lower()}"


def svg(panel: Panel) -> str:
    """An <svg> for the page, as wide as a telephone, with ids of its own."""
    from plots.style import plt

    with plt.rc_context({**_LOOK, "svg.hashsalt": panel.key}):
        figure, axis = plt.subplots(figsize=_SIZE_IN)
        panel.draw(axis)
        figure.tight_layout(pad=0.3)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return _inline(out.getvalue(), panel.key, panel.title)


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


def _log(axis) -> None:
    """Logarithmic, with plain numbers: at 1, 2 and 5 where there is room."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    low, high = axis.get_view_interval()
    steps = (1,) if high / low > 300 else (1, 2, 5)
    at = [step * 10.0 ** power for power in range(-3, 8) for step in steps if low <= step * 10.0 ** power <= high]
    axis.set_ticks(at, labels=[f"{value:,g}" for value in at])
    axis.set_ticks([], minor=True)
