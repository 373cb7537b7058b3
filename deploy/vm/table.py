# SPDX-License-Identifier: Apache-2.0
"""docs/KERNELS.md from the lane's results (results/vm/KERNEL.json): what works on which kernel, and how well. Its last part,
on network drivers, is made of the records that deploy/vm/net keeps.

`/usr/bin/python3 -m deploy.vm.table` writes it again; a full `./dev vm test` does so too.
"""

import json
import sys
from pathlib import Path

from deploy.vm.image import PROJECT
from deploy.vm.net import record

TARGET = PROJECT / "docs" / "KERNELS.md"
_HEAD = """# Kernels

What works on stock Debian kernels. `deploy/vm/table.py` makes this page from the results of `./dev vm test`: do not
edit it.

The times are virtual: one emulated CPU, one nanosecond for an instruction, no caches and no contention. They repeat
exactly, and compare engines and kernels with each other, not with a real machine. Delay 10 ms, service 2 ms, closed
loop. `fire_error` is (hedge really sent) - (due). The rows `qdisc` are of `hr-delay-line`, the published technique
(bench/delay_line); it has no clock, and so no laps.

"""
_COLUMNS = ("engine", "attach", "works", "p99 ms", "fire_error p50 us", "fire_error p99 us", "laps")


def text_of(results: dict[str, dict]) -> str:
    """`results` maps a series to the figures of its run."""
    parts = [_HEAD]
    for series, figures in sorted(results.items()):
        parts.append(f"## {series} ({figures['release']})\n\n" + _table(_COLUMNS, map(_cells, figures["engines"])))
    counts = {series: figures["verified_instructions"] for series, figures in sorted(results.items())}
    programs = sorted({name for each in counts.values() for name in each})
    parts.append("## Verified instructions\n\nHow many instructions the verifier processes before it accepts a program; "
                 "a million is the kernel's limit.\n\n" +
                 _table(("program", *counts), ((name, *(str(each.get(name, "-")) for each in counts.values()))
                                               for name in programs)))
    return "\n".join(parts).rstrip() + "\n\n" + record.section()


def _cells(row: dict) -> tuple[str, ...]:
    if not row["offered"]:
        return row["engine"], row["attach"], "no", "", "", "", ""
    return (row["engine"], row["attach"], "yes", f"{row['p99_ms']:.2f}", f"{row['fire_error_p50_us']:.0f}",
            f"{row['fire_error_p99_us']:.0f}", str(row["laps"]))


def _table(head, rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def write_drivers() -> None:
    """The part of deploy/vm/net alone, from its records."""
    page = TARGET.read_text(encoding="utf-8")
    TARGET.write_text(page.partition(record.HEADING)[0].rstrip() + "\n\n" + record.section(), encoding="utf-8")


def write(folder: Path = PROJECT / "results" / "vm") -> bool:
    """False when not every kernel has been through the whole lane."""
    results = {path.stem: json.loads(path.read_text(encoding="ascii")) for path in folder.glob("*.json")}
    whole = {series: each for series, each in results.items() if "engines" in each and "verified_instructions" in each}
    if len(whole) < 2:
        return False
    TARGET.write_text(text_of(whole), encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(0 if write() else "results/vm holds no whole run of two kernels: ./dev vm test")
