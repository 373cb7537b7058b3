# SPDX-License-Identifier: Apache-2.0
"""Pieces of the page: numbers that say where they come from, tables, legends, and the frame around all. Used by sections.py
and __main__.py.
"""

import dataclasses
import html
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from plots import charts
from plots.looks import Look
from report.published import Run

_CSS = Path(__file__).with_name("page.css")
_LIGHT = {"--ground": "#f6f7f8", "--card": "#ffffff", "--ink": "#1c2024", "--muted": "#5b6570", "--grid": "#dfe3e7",
          "--shade": "#eceef1", "--link": "#0b5cad"}
_DARK = {"--ground": "#121518", "--card": "#1a1e22", "--ink": "#e6e9ec", "--muted": "#9aa5b0", "--grid": "#333a41",
         "--shade": "#2a3037", "--link": "#7fb8f2"}
_BUSY = 1.5  # load average for each processor; our own load of a saturated machine stays below
_DASHES = {"-": "", "--": "5 3", ":": "1.5 2.5", "-.": "6 2 1.5 2"}


def count(value: float) -> str:
    return f"{value:,.0f}"


def amount(value: float) -> str:
    """Three digits, or all before the point."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def number(run: Run, pointer: str, text: Callable[[float], str] = amount) -> str:
    """`<data>`, by which check.py finds the number again. A figure that is missing is a dash."""
    value = run.at(pointer)
    if value is None:
        return "-"
    shown = str(value) if isinstance(value, str) else text(value)
    return (f'<data value="{html.escape(str(value))}" data-run="{run.name}" data-path="{html.escape(pointer)}">'
            f"{html.escape(shown)}</data>")


def name(run: Run, pointer: str, length: int | None = None) -> str:
    """A text of the run, shortened."""
    value = str(run.at(pointer))
    return (f'<data value="{html.escape(value)}" data-run="{run.name}" data-path="{html.escape(pointer)}">'
            f"{html.escape(value[:length])}</data>")


@dataclasses.dataclass(frozen=True)
class Row:
    head: str  # HTML
    cells: Sequence[str]
    ours: bool = False


def table(caption: str, heads: Sequence[str], rows: Iterable[Row]) -> str:
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "".join(f'<tr{" class=ours" if row.ours else ""}><th scope="row">{row.head}</th>'
                   f'{"".join(f"<td>{cell}</td>" for cell in row.cells)}</tr>' for row in rows)
    return (f'<p class="caption">{caption}</p><div class="scroll" tabindex="0" role="region" aria-label="{html.escape(caption)}">'
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def panels(figures: Iterable[tuple[str, str]]) -> str:
    """Of (title, svg)."""
    figures = list(figures)
    # Four stand two by two: a fourth alone in its row looks lost.
    return (f'<div class="panels{" pairs" if len(figures) in (2, 4) else ""}">' +
            "".join(f"<figure><h3>{title}</h3>{svg}</figure>" for title, svg in figures) + "</div>")


def legend(looks: Iterable[Look], filled: bool = False) -> str:
    def key(colour: str, line: str) -> str:
        stroke = f"var({charts.variable(colour)})"
        if filled:
            return f'<rect width="27" height="12" fill="{stroke}"/>'
        return f'<path d="M0 6H27" stroke="{stroke}" stroke-width="2.5" stroke-dasharray="{_DASHES[line]}"/>'

    return '<ul class="legend">' + "".join(
        f'<li><svg viewBox="0 0 27 12" aria-hidden="true">{key(look.colour, look.line)}</svg>{look.label}</li>'
        for look in dict.fromkeys(looks)) + "</ul>"


def made_by(run: Run, usual: str) -> str:
    """With which command, when, and on what; and which of its targets the run met."""
    command = run.manifest.get("command", usual)
    command = f"sudo {command}" if command.startswith("./dev ") else command
    changed = " with changes that are not in it" if run.manifest["uncommitted_changes"] else ""
    load, busy = run.manifest.get("load_average"), ""
    if load:
        busy = f", load average {number(run, '/manifest/load_average/0')} at its end"
        if load[0] > _BUSY * run.manifest["cpus"]:
            busy += ": <strong>the machine had other work as well, so the figures are rough</strong>"
    made = (f'<p class="made"><code>{html.escape(command)}</code>, from <code>{run.source}/</code>: '
            f"{name(run, '/manifest/finished', 10)}, {number(run, '/manifest/cpus', count)} processors "
            f"({name(run, '/manifest/cpu')}), Linux {name(run, '/manifest/kernel')}, commit "
            f"{name(run, '/manifest/commit', 10)}{changed}{busy}.</p>")
    return made + (_targets(run) if run.form["checks"] else "")


def _targets(run: Run) -> str:
    """Some count runs or events, which a shortened run misses."""
    rows = [Row(name(run, f"/checks/{at}/what"),
                [name(run, f"/checks/{at}/wanted"), name(run, f"/checks/{at}/figure"), "met" if check["met"] else "missed"])
            for at, check in enumerate(run.form["checks"])]
    return (f"<details><summary>{number(run, '/figures/checks/met', count)} of {number(run, '/figures/checks/of', count)} targets met"
            f"</summary>{table('What the experiment must show', ('target', 'wanted', 'found', ''), rows)}</details>")


def _colours(which: dict[str, str], dark: bool) -> str:
    series = {charts.variable(light): in_dark if dark else light for light, in_dark in charts.DARK.items()}
    return " ".join(f"{key}: {value};" for key, value in {**which, **series}.items())


def frame(sections: Iterable[tuple[str, str, str]], intro: str, foot: str) -> str:
    """The page, of sections (anchor, title, HTML)."""
    sections = list(sections)
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title, _ in sections)
    body = "\n".join(f'<section id="{anchor}"><h2>{title}</h2>\n{content}\n</section>' for anchor, title, content in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Hedgerow at a glance</title>
<style>
:root {{ {_colours(_LIGHT, False)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_colours(_DARK, True)} }} }}
{_CSS.read_text(encoding="ascii")}</style>
</head>
<body>
<header>
<h1>Hedgerow at a glance</h1>
{intro}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
<footer>{foot}</footer>
</body>
</html>
"""
