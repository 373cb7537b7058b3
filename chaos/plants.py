# SPDX-License-Identifier: Apache-2.0
"""Mistakes on purpose, so that it is seen that each scenario's judgement can fail: faults that do nothing, and histories of a store that
has lost a write, has done one twice, or has answered with a value that was overwritten before. `./dev chaos all --plant NAME` runs every
scenario with one of them, and succeeds when each is found. `./dev chaos flood --plant NAME` does the same under each flood: answers to honest
clients are lost or late, or a service that lives by its hedges makes none.
"""

import contextlib
import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.dns_rig import Staller, Stalls

NO_FAULT, LOST, TWICE, STALE = "no-fault", "lost-write", "write-done-twice", "stale-read"
PLANTS = {NO_FAULT: 1, LOST: None, TWICE: None, STALE: None}  # and how many of their checks find them, as Experiment.plants
LOST_ANSWERS, LATE_ANSWERS, NO_HEDGES = "lost-answers", "late-answers", "no-hedges"
FLOOD_PLANTS = (LOST_ANSWERS, LATE_ANSWERS, NO_HEDGES)
_LATE = Stalls(first_after_s=0.1, every_s=0.5, for_s=0.3)


def damage(plant: str | None, history: Path, final: Path) -> None:
    """In place; ValueError where the history has nothing to damage."""
    if plant in (LOST, TWICE):
        _shift_a_counter(history, final, -1 if plant == LOST else 1)
    elif plant == STALE:
        _answer_with_an_older_value(history)


@contextlib.contextmanager
def planted(plant: str | None, rig) -> Iterator[None]:
    """While the block runs, in the rig of a flood of the proxy: every fiftieth answer to a client is lost, no server answers for 300 ms in
    every 500, or the honest service makes a dry run."""
    with contextlib.ExitStack() as stack:
        if plant == LOST_ANSWERS:
            rig.lab.client.run(["nft", "add table ip plant; add chain ip plant in { type filter hook prerouting priority raw; }; "
                                       "add rule ip plant in iifname hr0 ip protocol udp numgen inc mod 50 == 0 drop"])
            stack.callback(rig.lab.client.run, ["nft", "delete table ip plant"])
        elif plant == LATE_ANSWERS:
            for server in rig.servers:
                staller = Staller(server, _LATE)
                staller.start()
                stack.callback(staller.end)
        elif plant == NO_HEDGES:
            rig.dry_run("on")
            stack.callback(rig.dry_run, "off")
        yield


def _read(file: Path) -> list[dict]:
    with open(file, newline="", encoding="ascii") as lines:
        return list(csv.DictReader(lines))


def _write(file: Path, rows: list[dict]) -> None:
    with open(file, "w", newline="", encoding="ascii") as lines:
        writer = csv.DictWriter(lines, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _shift_a_counter(history: Path, final: Path, by: int) -> None:
    """The final reads of a counter all of whose increments were answered, so that nothing else can explain it."""
    increments = Counter((row["key"], row["ending"] == "ok") for row in _read(history) if row["kind"] == "i")
    keys = [key for key, ok in increments if ok and not increments[key, False]]
    if not keys:
        raise ValueError("no counter has all its increments answered")
    key = max(keys, key=lambda each: increments[each, True])
    rows = _read(final)
    for row in rows:
        if (row["kind"], row["key"]) == ("c", key):
            row["value"] = str(int(row["value"]) + by)
    _write(final, rows)


def _answer_with_an_older_value(history: Path) -> None:
    """The first read of a register that began after two writes of it had been answered one after the other gets the first one's value."""
    rows = _read(history)
    of_key: dict[str, list[dict]] = {}
    for row in sorted(rows, key=lambda each: int(each["sent_ns"])):
        if row["kind"] == "p" and row["ending"] == "ok":
            of_key.setdefault(row["key"], []).append(row)
        if row["kind"] != "g" or row["ending"] != "ok":
            continue
        done = [put for put in of_key.get(row["key"], []) if int(put["ended_ns"]) < int(row["sent_ns"])]
        pairs = [(first, then) for first in done for then in done if int(first["ended_ns"]) < int(then["sent_ns"])]
        if pairs:
            row["value"] = pairs[0][0]["value"]
            return _write(history, rows)
    raise ValueError("no read follows two writes")
