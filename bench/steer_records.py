# SPDX-License-Identifier: Apache-2.0
"""What became of each message of a run of hr-steer-load (bench/steer/stream.h, StreamRecord). Used by chaos/worker_churn.py."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<qIIIBBH")
_NO_ANSWER, _NONE_WANTED = 0xFFFFFFFF, 0xFFFFFFFE


class Record(NamedTuple):
    intended_ns: int  # CLOCK_MONOTONIC, as time.monotonic_ns()
    latency_us: int | None  # None: no answer
    source: int
    pid: int
    slot: int
    tcp: bool
    sent_again: int


def read(file: Path) -> list[Record]:
    """Those that asked for an answer."""
    return [Record(at, None if latency == _NO_ANSWER else latency, source, pid, slot, bool(tcp), again)
            for at, latency, source, pid, slot, tcp, again in _RECORD.iter_unpack(file.read_bytes()) if latency != _NONE_WANTED]


def slots_met(records: Iterable[Record]) -> dict[int, set[int]]:
    """Of each source that got an answer."""
    met: dict[int, set[int]] = {}
    for record in records:
        if record.latency_us is not None:
            met.setdefault(record.source, set()).add(record.slot)
    return met
