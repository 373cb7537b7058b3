# SPDX-License-Identifier: Apache-2.0
"""Judges a page before it is written: every number on it stands in the run that it names, nothing is fetched from elsewhere, and
no number is there that names no run. Called by __main__.py and the tests.
"""

import math
import re
from collections.abc import Mapping
from html.parser import HTMLParser

from report.published import Run

_FREE = {"style", "code", "title", "script"}  # no figures: the look, commands
_PERCENTILE = re.compile(r"\bp\d{2}(\.\d)?\b")
_SCALES = {"%": 100.0, "k": 1e-3}


class _Page(HTMLParser):
    def __init__(self, runs: Mapping[str, Run]):
        super().__init__()
        self.problems: list[str] = []
        self.numbers = 0
        self._runs = runs
        self._open: list[tuple[str, dict]] = []

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self._look_outside(tag, dict(attributes))
        if tag not in ("meta", "link", "br", "img"):
            self._open.append((tag, dict(attributes)))

    def handle_startendtag(self, tag: str, attributes: list) -> None:
        self._look_outside(tag, dict(attributes))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        text = data.strip()
        if not text:
            return
        tags = [tag for tag, _ in self._open]
        if tags and tags[-1] == "style" and re.search(r"@import|url\((?!['\"]?(#|data:))", text):
            self.problems.append("the page's style fetches something")
        source = next((found for tag, found in reversed(self._open) if tag == "data" or "data-label" in found), None)
        if source is not None:
            self._compare(text, source)
        elif "svg" not in tags and not _FREE & set(tags) and re.search(r"\d", _PERCENTILE.sub("", text)):
            self.problems.append(f"a number that names no run: {text[:80]}")

    def _look_outside(self, tag: str, attributes: dict) -> None:
        for name, value in attributes.items():
            inside = (value or "").startswith(("#", "data:"))
            if name in ("src", "srcset", "poster", "data", "action", "background") and not inside:
                self.problems.append(f"<{tag} {name}={value}> is fetched")
            if name in ("href", "xlink:href") and not inside and tag != "a":
                self.problems.append(f"<{tag} {name}={value}> is fetched")
            if name == "style" and re.search(r"url\((?!['\"]?(#|data:))", value or ""):
                self.problems.append(f"<{tag} style={value}> is fetched")
        if tag in ("script", "iframe", "object", "embed", "link"):
            self.problems.append(f"<{tag}> has no place on the page")

    def _compare(self, text: str, source: dict) -> None:
        name, _, pointer = source["data-label"].partition("/") if "data-label" in source else (source["data-run"], "", source["data-path"])
        pointer = pointer if pointer.startswith("/") else f"/{pointer}"
        self.numbers += 1
        try:
            value = self._runs[name].at(pointer)
        except (KeyError, IndexError, ValueError, TypeError):
            self.problems.append(f"{text}: {name} has no {pointer}")
            return
        if isinstance(value, str):
            same = value.startswith(text) and source.get("value", value) == value
        else:
            same = close(text, float(value)) and float(source.get("value", value)) == float(value)
        if not same:
            self.problems.append(f"{text}: {name}{pointer} is {value}")


def close(text: str, value: float) -> bool:
    """Whether `text` is the value, rounded to the digits that it shows."""
    found = re.fullmatch(r"(-?[\d,]+(?:\.(\d+))?)\s*(\D*)", text)
    if not found or found[3].strip() not in ("", *_SCALES):
        return False
    half = 0.5 * 10 ** -len(found[2] or "")
    return math.isclose(float(found[1].replace(",", "")), value * _SCALES.get(found[3].strip(), 1.0), rel_tol=1e-9,
                        abs_tol=half * (1 + 1e-9))


def problems_of(page: str, runs: Mapping[str, Run]) -> list[str]:
    judge = _Page(runs)
    judge.feed(page)
    judge.close()
    if runs and not judge.numbers:
        judge.problems.append("there are runs, and no number of them on the page")
    return judge.problems
