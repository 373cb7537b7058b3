# SPDX-License-Identifier: Apache-2.0
"""`./dev report --check`: the measured figures of the project's pages are those of runs in published/, or say that they are not.

Below `<!-- published: NAME -->` each number of a table's row stands in that run's row of the same label. Any other table with
numbers has the words NOT_RUN in its section, or before the page's first one. A number of the prose that follows
`<!-- published: NAME/PATH -->` is what the run has there.
"""

import re
from collections.abc import Iterator, Mapping

from report.check import close
from report.published import Run

PAGES = ("README.md", "docs/figures.md", "docs/STATUS.md")
NOT_RUN = "not run on this build"
_OF_PROSE = re.compile(r"<!-- published: ([^/\s]+)(/\S+) -->([\d,.]*\d)")
_NO_FIGURES = re.compile(r"\]\([^)]*\)|`[^`]*`|\bp\d{2}(\.\d)?\b")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?: %)?")


def wrong_rows(text: str, runs: Mapping[str, Run]) -> list[str]:
    found = [f"{name}{path}: no {number}" for name, path, number in _OF_PROSE.findall(text) if not close(number, float(runs[name].at(path)))]
    before, *sections = re.split(r"(?m)^##+ ", text)
    for section in (before, *sections):
        run = None
        for line in section.splitlines():
            if marked := re.fullmatch(r"<!-- published: (\S+) -->", line):
                run = marked[1]
            elif line and not line.startswith("|"):
                run = None
            elif numbers := [number.rstrip(",") for number in _NUMBER.findall(_NO_FIGURES.sub("", line))]:
                label = line.strip("| *").split("|")[0].strip("* ")
                if run is None:
                    found += [] if NOT_RUN in (before + section).lower() else [f"neither published nor '{NOT_RUN}': {line[:100]}"]
                    continue
                values = [value for row in runs[run].rows if label.startswith(row["label"]) for value in _values(list(row.values()))]
                found += [f"{run}, {label}: no {number}" for number in numbers if not any(close(number, value) for value in values)]
    return found


def _values(found) -> Iterator[float]:
    if isinstance(found, list):
        for each in found:
            yield from _values(each)
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield float(found)
