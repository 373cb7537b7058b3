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
CHECKS = {"udp": "UDP", "hedge": "hedge, loser", "big": "2.7 kB", "tcp": "TCP", "checksums": "checksums"}
XDP = {"native": "native XDP", "generic": "generic XDP", "auto": "`auto`"}
HEADING = "## Network drivers"
_NOT_COMPARED = ("commit",)
_INTRO = HEADING + """

`./dev vm net test` makes these tables: two emulated machines, unmodified kernels, and the cards that QEMU has
([deploy/vm](../deploy/vm/README.md#real-drivers)). The client with the proxy has one machine; three backends share the other, each in a
namespace with a card of its own.

"""
_COLUMNS_TEXT = """A cell is a row of the tables below: a kernel, a card, what carries the addresses, an MTU, and how the programs are attached. One
that was not recorded yet has no row.

| column | says |
| --- | --- |
| uplink | what carries the addresses on all hosts: the card itself (plain), a VLAN on it, an active-backup bond, or a bridge |
| MTU | of the cards and the uplinks |
| attach | how the proxy's programs are attached at the uplink: `tcx` (Linux 6.6 and later) or `clsact` (all) |
| UDP | yes: `dig` gets the answer of each leader from the VIP, in both address families |
| hedge, loser | yes: the leader is stopped, and one question is answered by a standby; the leader's late answer ends in the proxy. Directly the question stays without answer |
| 2.7 kB | yes: answers of 2.7 kB and questions of 2 kB, fragmented where the MTU is 1500 |
| TCP | yes: a zone transfer of 150 kB in, 2 MB out, with segmentation offloads on |
| checksums | yes: no host has received a wrong checksum. Backends b and c verify each one in software, and the client does so for a while, except where it says "not by the client": its driver does not leave them to the kernel |
| native XDP, generic XDP, `auto` | where the programs of `hedgerow-node` ran with that setting of `offloads.xdp`, and why not in the driver, in the kernel's words. Three nodes elect a leader, announce it to the proxy, and store a value; heartbeats are answered and counted in the kernel; the leader is killed, and the next one stores a value. Empty: this setting was not tried in this row |
| commit | of Hedgerow, when the row was recorded; with a +, files had changed since |

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
    """The page's part, from all records."""
    cards = {series: read(series)["cards"] for series in SERIES}
    parts = [_INTRO, _overview(cards), "\n", _COLUMNS_TEXT]
    for each in cards.values():
        for model, card in each.items():
            parts.append(f"### {model}, kernel {card['release']}\n\nOn at the client's card: {_offloads(card['rows'])}.\n\n"
                         f"{_table(card['rows'])}\n")
    return "".join(parts).rstrip() + "\n"


def _overview(cards: dict[str, dict]) -> str:
    """Recorded cells of each kernel and card: a record has none that failed."""
    cells = {(pair.series, pair.model): len(pair.cells) for pair in pairs(SERIES, MODELS)}
    rows = {key: cards[key[0]].get(key[1], {}).get("rows", []) for key in cells}
    lines = [("kernel", *MODELS), ["---"] * (len(MODELS) + 1)]
    for series in SERIES:
        counts = (f"{len(rows[series, model])} of {cells[series, model]}" if (series, model) in cells else "" for model in MODELS)
        lines.append((series, *counts))
    return (f"{sum(map(len, rows.values()))} of {sum(cells.values())} cells are recorded; a cell with a failed check never is. Empty: there are "
            f"no such cells.\n\n{_lines(lines)}")


def _offloads(rows: list[dict]) -> str:
    """Those of all rows, and in brackets the rows of the others: the kernel turns LRO off below a VLAN and a bridge."""
    found = []
    for offload in dict.fromkeys(offload for row in rows for offload in row["offloads"]):
        on = list(dict.fromkeys(row["uplink"] for row in rows if offload in row["offloads"]))
        everywhere = all(offload in row["offloads"] for row in rows)
        found.append(offload if everywhere else f"{offload} ({', '.join(on)})")
    return ", ".join(found)


def _table(rows: list[dict]) -> str:
    columns = [*CHECKS, *XDP, "commit"]
    head = ("uplink", "MTU", "attach", *CHECKS.values(), *XDP.values(), "commit")
    lines = [head, ["---"] * len(head),
             *((row["uplink"], str(row["mtu"]), row["attach"], *(row.get(column, "") for column in columns)) for row in rows)]
    return _lines(lines)


def _lines(lines: Iterable[Iterable[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
