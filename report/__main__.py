# SPDX-License-Identifier: Apache-2.0
"""`./dev report`: makes the page "At a glance" of the runs in published/ and results/, puts a run's small form into published/, or
compares the tables of the project's pages with published/.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.manifest import ROOT
from report import page, published
from report.check import problems_of
from report.published import ReportError, Run
from report.sections import SECTIONS
from report.tables import PAGES, wrong_rows

DEFAULT = ROOT / "build" / "report.html"
_INTRO = ("<p>Hedgerow makes a replicated UDP service look as if its leader never stalls and never dies: it sends a copy of a request to "
          "a standby when the leader's answer is late. This page shows the latest run of each experiment. Processes of one machine share "
          "its processors: compare the lines of one chart, and not with other machines.</p>")
_FOOT = ("Every number stands in the run that its section names. <code>./dev report</code> makes this page; a run in "
         "<code>results/</code> takes the place of an older one in <code>published/</code>.")


def build(runs: Mapping[str, Run]) -> str:
    text = page.frame(((section.name, section.title, section.html(runs.get(section.name))) for section in SECTIONS), _INTRO, _FOOT)
    found = problems_of(text, runs)
    if found:
        raise ReportError("the page is not what the runs say:\n  " + "\n  ".join(found))
    return text


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="report", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FILE", default=DEFAULT, help="where the page goes (default: build/report.html)")
    parser.add_argument("--keep", metavar="NAME", help="put the small form of results/NAME into published/NAME, and make no page")
    parser.add_argument("--check", action="store_true", help=f"compare the tables of {', '.join(PAGES)} with published/, and make no page")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    try:
        if arguments.check:
            runs = published.load(results=published.PUBLISHED)
            wrong = [f"{name}: {row}" for name in PAGES for row in wrong_rows((ROOT / name).read_text(encoding="utf-8"), runs)]
            print("\n".join(wrong) or f"the tables of {', '.join(PAGES)} are those of published/, or say that they are not")
            return bool(wrong)
        if arguments.keep:
            folder = published.keep(arguments.keep)
            print(f"kept {folder.relative_to(ROOT)}: {sum(path.stat().st_size for path in folder.iterdir()) // 1024} KiB")
            return 0
        runs = published.load(warn=lambda error: print(f"report: left out: {error}", file=sys.stderr))
        text = build(runs)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")
    except (ReportError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    for section in SECTIONS:
        run = runs.get(section.name)
        print(f"{section.name:18} {f'{run.source}/, of ' + run.manifest['finished'] if run else 'none: ' + section.command}")
    print(f"\n{arguments.out}: {len(text) // 1024} KiB; open it in a browser, it needs no network")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
