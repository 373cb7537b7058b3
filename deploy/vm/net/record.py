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
XDP = {"native": "`native`", "generic": "`generic`", "auto": "`auto`"}
HEADING = "## Network drivers"
_NOT_COMPARED = ("commit",)
_INTRO = HEADING + """

`./dev vm net test` makes these tables: two emulated machines with unmodified kernels, one for the client with the proxy, one for three backends, and the cards that QEMU has
([deploy/vm](../deploy/vm/README.md#real-drivers)). A cell is a row below.

"""
_COLUMNS_TEXT = """| column | says |
| --- | --- |
| uplink | what carries the addresses: the card itself (plain), a VLAN on it, an active-backup bond, or a bridge |
| attach | the proxy's programs at the uplink: `tcx` (Linux 6.6 and later) or `clsact` (all) |
| checks | "all": `dig` by the VIP in both address families; a hedge, and the loser's end; answers of 2.7 kB; a zone transfer of 150 kB in, 2 MB out; and no wrong checksum at any host. Each exception is named ("not by the client": its driver keeps checksums to itself) |
| XDP of a node | where its programs ran with each setting of `offloads.xdp`, and why not in the driver. Three nodes elect a leader, which is killed, and store values |
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
    head = ("uplink", "MTU", "attach", "checks", "XDP of a node", "commit")
    return _lines([head, ["---"] * len(head),
                   *((row["uplink"], str(row["mtu"]), row["attach"], _but(CHECKS, row, "yes") or "all", _but(XDP, row, ""), row.get("commit", ""))
                     for row in rows)])


def _but(columns: dict[str, str], row: dict, usual: str) -> str:
    """The columns that say something else than usual."""
    return "; ".join(f"{title}: {row.get(column, '')}" for column, title in columns.items() if row.get(column, "") != usual)


def _lines(lines: Iterable[Iterable[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
