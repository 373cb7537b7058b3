# SPDX-License-Identifier: Apache-2.0
"""The zone `example.test` every DNS server of the lab serves, so that any two of them are replicas.

The one thing that differs is `whoami.example.test TXT`, which names the replica: a test reads from it who
answered. `big.example.test TXT` is larger than an Ethernet frame and smaller than 4096 bytes: it is truncated
at 512 and fragmented at 4096. It is many records and not one, because a config line of dnsmasq holds 1 KB.
"""

import dataclasses

ORIGIN = "example.test"
TTL_S = 300
NUMBERED_NAMES = 100  # n0 to n99, for load
NAMES = ",".join(f"n{number}.{ORIGIN}" for number in range(NUMBERED_NAMES))  # as hr-load takes them


@dataclasses.dataclass(frozen=True)
class Record:
    name: str
    kind: str  # A, AAAA or TXT
    value: str


def records(identity: str) -> list[Record]:
    found = [
        Record(f"ns1.{ORIGIN}", "A", "192.0.2.53"),
        Record(f"www.{ORIGIN}", "A", "192.0.2.1"),
        Record(f"www.{ORIGIN}", "AAAA", "2001:db8::1"),
        Record(f"www.{ORIGIN}", "TXT", "the same on every replica"),
        Record(f"whoami.{ORIGIN}", "TXT", identity),
    ]
    found += [Record(f"big.{ORIGIN}", "TXT", f"{number:02d}-" + "x" * 220) for number in range(12)]
    found += [Record(f"n{number}.{ORIGIN}", "A", f"198.51.100.{number}") for number in range(NUMBERED_NAMES)]
    return found


def master_file(identity: str) -> str:
    """The zone as RFC 1035 master file, for servers that read one."""
    lines = [f"{ORIGIN}. {TTL_S} IN SOA ns1.{ORIGIN}. hostmaster.{ORIGIN}. 1 3600 600 86400 60",
             f"{ORIGIN}. {TTL_S} IN NS ns1.{ORIGIN}."]
    lines += [f"{r.name}. {TTL_S} IN {r.kind} {quoted(r)}" for r in records(identity)]
    return "\n".join(lines) + "\n"


def quoted(record: Record) -> str:
    return f'"{record.value}"' if record.kind == "TXT" else record.value
