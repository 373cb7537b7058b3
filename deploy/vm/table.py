# SPDX-License-Identifier: Apache-2.0
"""docs/KERNELS.md. How well engines work on which kernel is from the lane's results (results/vm/KERNEL.json) of a full
`./dev vm test`, which are not kept. The rest is from records beside this file: verified instructions (verified/) and network
drivers (net/record/).

`/usr/bin/python3 -m deploy.vm.table` writes it again; a full `./dev vm test` does so too, and `--record` the parts of its record.
"""

import json
from pathlib import Path

from deploy.vm.image import PROJECT
from deploy.vm.net import record

TARGET = PROJECT / "docs" / "KERNELS.md"
VERIFIED = Path(__file__).parent / "verified"
_INSTRUCTIONS = "## Verified instructions"
_FIRST_TABLE = "### 6.1 ("
_HEAD = """# Kernels

What works on stock kernels of Debian and Ubuntu, under emulation ([deploy/vm](../deploy/vm/README.md)). `deploy/vm/table.py` makes
this page. Do not edit it.

## Engines

How a copy is held until it falls due: Hedgerow's wheel with each of its two clocks, and `hr-delay-line`, the published technique, which
holds it in a queueing discipline. The delay is 10 ms, an answer takes 2 ms. `fire_error` is the time of the send after the time when it was
due; laps are rounds of the wheel's clock. "no": the kernel lacks `tcx`. Times are virtual (one nanosecond for an instruction, no caches):
they compare engines and kernels with each other, not with a real machine.

"""
_COLUMNS = ("engine", "attach", "works", "p99 ms", "fire_error p50 us", "fire_error p99 us", "laps")


def text_of(results: dict[str, dict]) -> str:
    """`results` maps a series to the figures of its run."""
    parts = [_HEAD]
    for series, figures in sorted(results.items()):
        parts.append(f"### {series} ({figures['release']})\n\n" + _table(_COLUMNS, map(_cells, figures["engines"])) + "\n")
    return "".join(parts).rstrip() + "\n\n" + recorded()


def recorded() -> str:
    """The parts that are from records."""
    return _instructions() + "\n" + record.section()


def _instructions() -> str:
    files = {path.stem: path for path in VERIFIED.glob("*.tsv")}
    counts = {series: counts_of(files[series]) for series in sorted(files, key=lambda series: [int(word) for word in series.split(".")])}
    compilers = {path.read_text(encoding="ascii").splitlines()[0].removeprefix("# ") for path in files.values()}
    most = {name: max(each.get(name, 0) for each in counts.values()) for each in counts.values() for name in each}
    programs = sorted(most, key=most.get, reverse=True)[:6]
    return (f"{_INSTRUCTIONS}\n\nHow many instructions the verifier processes before it accepts a program that {' and '.join(sorted(compilers))} "
            "compiled; a million is the kernel's limit. The six largest:\n\n" +
            _table(("program", *counts), ((name, *(str(each.get(name, "-")) for each in counts.values())) for name in programs)))


def counts_of(file: Path) -> dict[str, int]:
    """Of a file that has a program and its verified instructions in each line; none of one that does not exist."""
    if not file.exists():
        return {}
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines() if not line.startswith("#"))
    return {name: int(count) for name, count in lines}


def _cells(row: dict) -> tuple[str, ...]:
    if not row["offered"]:
        return row["engine"], row["attach"], "no", "", "", "", ""
    return (row["engine"], row["attach"], "yes", f"{row['p99_ms']:.2f}", f"{row['fire_error_p50_us']:.0f}",
            f"{row['fire_error_p99_us']:.0f}", str(row["laps"]))


def _table(head, rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def write_recorded() -> None:
    """All but the engines' tables, which stay as they are."""
    page = TARGET.read_text(encoding="utf-8")
    engines = page[page.index(_FIRST_TABLE):page.index(_INSTRUCTIONS)]
    TARGET.write_text(_HEAD + engines.rstrip() + "\n\n" + recorded(), encoding="utf-8")


def write(folder: Path = PROJECT / "results" / "vm") -> bool:
    """False when not every kernel has been through the whole lane."""
    results = {path.stem: json.loads(path.read_text(encoding="ascii")) for path in folder.glob("*.json")}
    whole = {series: each for series, each in results.items() if "engines" in each}
    if len(whole) < 2:
        return False
    TARGET.write_text(text_of(whole), encoding="utf-8")
    return True


if __name__ == "__main__":
    if not write():
        print("results/vm holds no whole run of two kernels (./dev vm test): only what is from records is written")
        write_recorded()
