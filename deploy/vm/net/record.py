# SPDX-License-Identifier: Apache-2.0
"""What the lane has found, in record/SERIES.json, and the tables that docs/KERNELS.md has of it.

A record says of each cell which offloads were on, what passed, and where the nodes' XDP ran. Only the nodes' XDP may be
refused: a driver without native XDP is no fault. A run that finds something else than the record fails, until --record.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from deploy.vm.net.cells import SERIES, UPLINKS, Pair, pairs
from deploy.vm.net.models import MODELS

FOLDER = Path(__file__).parent / "record"
HEADING = "## Network drivers"
_NOT_COMPARED = ("commit",)
_INTRO = HEADING + """

`./dev vm net test` makes this table: two emulated machines with unmodified kernels, one for the client with the proxy, one for three backends, and the cards that
QEMU has ([deploy/vm](../deploy/vm/README.md#real-drivers)). A cell is a kernel, a card, what carries the addresses (the card itself, a VLAN on it, an active-backup
bond, a bridge), an MTU, and how the programs are attached. In each recorded cell `dig` has answers by the VIP in both address families, a standby answers for a
stopped leader whose late answer ends in the proxy, answers of 2.7 kB and zone transfers of 150 kB and 2 MB arrive, no host receives a wrong checksum (virtio-net: the backends verify), and three
nodes elect a leader, which is killed. `record/` beside the lane has each cell.

"""


def key_of(row: dict) -> str:
    return f"{row['uplink']}-{row['mtu']}-{row['attach']}"


def file_of(series: str) -> Path:
    return FOLDER / f"{series}.json"


def read(series: str) -> dict:
    file = file_of(series)
    return json.loads(file.read_text(encoding="ascii")) if file.exists() else {"cards": {}}


def write(pair: Pair, release: str, rows: list[dict]) -> None:
    """Each row in place of its former one. A row of another kernel release than these goes."""
    record = read(pair.series)
    former = record["cards"].get(pair.model, {})
    kept = former.get("rows", []) if former.get("release") == release else []
    together = {key_of(row): row for row in (*kept, *rows)}
    ordered = sorted(together.values(), key=lambda row: (UPLINKS.index(row["uplink"]), row["mtu"], row["attach"] == "clsact"))
    record["cards"] = dict(sorted((record["cards"] | {pair.model: {"release": release, "rows": ordered}}).items()))
    FOLDER.mkdir(exist_ok=True)
    file_of(pair.series).write_text(json.dumps(record, indent=1) + "\n", encoding="ascii")


def differences(pair: Pair, rows: list[dict]) -> list[str]:
    """Against the record: what is another now. A row that the record lacks is a difference, too."""
    known = {key_of(row): row for row in read(pair.series)["cards"].get(pair.model, {}).get("rows", [])}
    found = []
    for row in rows:
        name = f"{pair.name}, {key_of(row)}"
        if (former := known.get(key_of(row))) is None:
            found.append(f"{name}: not in the record ({file_of(pair.series).name})")
            continue
        found += [f"{name}: {column} is {row[column]!r}, and the record says {former.get(column)!r}"
                  for column in row if column in former and column not in _NOT_COMPARED and row[column] != former[column]]
    return found


def failures(pair: Pair, rows: list[dict]) -> list[str]:
    return [f"{pair.name}, {key_of(row)}: {column} {value}" for row in rows for column, value in row.items()
            if isinstance(value, str) and value.startswith("FAILED")]


def section() -> str:
    """The page's part, from all records: a row for each kernel and card. A record has no cell that failed."""
    planned = {(pair.series, pair.model): len(pair.cells) for pair in pairs(SERIES, MODELS)}
    cards = {key: read(key[0])["cards"].get(key[1], {"rows": []}) for key in planned}
    rows = ((card.get("release", series), model, f"{len(card['rows'])} of {planned[series, model]}", _offloads(card["rows"]), _native(card["rows"]))
            for (series, model), card in cards.items())
    recorded = sum(len(card["rows"]) for card in cards.values())
    head = ("kernel", "card", "cells", "on at the client's card", "native XDP of a node")
    return f"{_INTRO}{recorded} of {sum(planned.values())} cells are recorded.\n\n{_lines([head, ['---'] * len(head), *rows])}"


def _native(rows: list[dict]) -> str:
    """Where `offloads.xdp: auto` or `native` ran in the driver; elsewhere it is generic."""
    return ", ".join(f"{row['uplink']} {row['mtu']}" for row in rows if any(row.get(mode, "").startswith("native XDP on") for mode in ("native", "auto"))) or "-"


def _offloads(rows: list[dict]) -> str:
    """Those of all rows, and in brackets the rows of the others: the kernel turns LRO off below a VLAN and a bridge."""
    found = []
    for offload in dict.fromkeys(offload for row in rows for offload in row["offloads"]):
        on = list(dict.fromkeys(row["uplink"] for row in rows if offload in row["offloads"]))
        everywhere = all(offload in row["offloads"] for row in rows)
        found.append(offload if everywhere else f"{offload} ({', '.join(on)})")
    return ", ".join(found)


def _lines(lines: Iterable[Iterable[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
