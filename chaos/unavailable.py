# SPDX-License-Identifier: Apache-2.0
"""What a fault cost the clients, from the history of a run and the instants of its faults.

For each event, of the requests that were meant to leave from 0.1 s before the fault until 1 s after its end (or until
the next fault comes near):

- `unavailable`: the longest wait for an answer. A request that got none, or an error, has waited its whole time-out:
  its answer never came.
- `outage`: the longest time in which no write at all was acknowledged. Kinder to a client that gives up at once and asks
  again; what was lost does not count in it.
- `next_answer`: from the fault to the first success that answers a request which was meant to leave after it. The whole
  window's longest wait also holds what the machine makes its clients wait now and then, fault or none; this does not.
- `calm`: the longest wait of those that were meant to leave in the 0.9 s before all that, when nothing was wrong: what
  `unavailable` would find, at least, without a fault. A machine whose processors are taken away for some milliseconds
  now and then has no smaller figures.

Waits count from when a request was meant to leave, so that a load which was held up does not hide it.
"""

import csv
import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

BEFORE_NS = 100_000_000
AFTER_NS = 1_000_000_000
CALM_NS = 900_000_000  # the pauses between faults are longer
SLOT_NS = 20_000_000  # of the profile
_WRITES = "ip"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    intended_ns: int
    ended_ns: int
    ok: bool
    write: bool


@dataclasses.dataclass(frozen=True)
class Event:
    begin_ns: int
    end_ns: int  # of the fault


@dataclasses.dataclass
class Cost:
    requests: int
    failed: int
    unavailable_ms: float
    outage_ms: float
    next_answer_ms: float
    calm_ms: float
    profile_ms: list[float | None]  # by slot from BEFORE_NS before the fault: the longest wait of those sent in it


def read_history(path: Path) -> list[Request]:
    """In the order in which the requests were meant to leave."""
    with open(path, encoding="ascii", newline="") as file:
        found = [Request(int(line["intended_ns"]), int(line["ended_ns"]), line["ending"] == "ok",
                         line["kind"] in _WRITES) for line in csv.DictReader(file)]
    return sorted(found, key=lambda request: request.intended_ns)


def costs(requests: Sequence[Request], events: Sequence[Event], timeout_ns: int) -> list[Cost]:
    """One for each event; `requests` as read_history gives them."""
    acknowledged = sorted(request.ended_ns for request in requests if request.ok and request.write)
    intended = [request.intended_ns for request in requests]
    found = []
    for number, event in enumerate(events):
        begin_ns, end_ns = event.begin_ns - BEFORE_NS, event.end_ns + AFTER_NS
        if number + 1 < len(events):
            end_ns = min(end_ns, events[number + 1].begin_ns - BEFORE_NS)
        around = requests[bisect_left(intended, begin_ns):bisect_left(intended, end_ns)]
        if not around:
            raise ValueError(f"event {number + 1}: nothing was sent around it")
        waits = [_wait_ns(request, timeout_ns) for request in around]
        found.append(Cost(len(around), sum(not request.ok for request in around), max(waits) / 1e6,
                          _longest_gap_ns(acknowledged, begin_ns, end_ns) / 1e6,
                          _next_answer_ns(around, event.begin_ns, timeout_ns) / 1e6,
                          _calm_ns(requests, intended, begin_ns, timeout_ns) / 1e6,
                          _profile(around, waits, begin_ns, end_ns)))
    return found


def _wait_ns(request: Request, timeout_ns: int) -> int:
    return request.ended_ns - request.intended_ns if request.ok else timeout_ns


def _next_answer_ns(around: Iterable[Request], begin_ns: int, timeout_ns: int) -> int:
    """The time-out where no request that was made after the fault was answered."""
    answered = (request.ended_ns for request in around if request.ok and request.intended_ns >= begin_ns)
    return min(answered, default=begin_ns + timeout_ns) - begin_ns


def _calm_ns(requests: Sequence[Request], intended: Sequence[int], end_ns: int, timeout_ns: int) -> int:
    before = requests[bisect_left(intended, end_ns - CALM_NS):bisect_left(intended, end_ns)]
    return max((_wait_ns(request, timeout_ns) for request in before), default=0)


def _longest_gap_ns(acknowledged: Sequence[int], begin_ns: int, end_ns: int) -> int:
    """Between two acknowledgements that follow each other, of the gaps that overlap the window."""
    first = max(0, bisect_left(acknowledged, begin_ns) - 1)
    longest, previous = 0, None
    for at_ns in acknowledged[first:]:
        if previous is not None:
            longest = max(longest, at_ns - previous)
        previous = at_ns
        if at_ns > end_ns:
            return longest
    # Nothing was acknowledged any more.
    return max(longest, end_ns - max(begin_ns, previous if previous is not None else begin_ns))


def _profile(around: Iterable[Request], waits: Iterable[int], begin_ns: int, end_ns: int) -> list[float | None]:
    slots: list[float | None] = [None] * ((end_ns - begin_ns) // SLOT_NS + 1)
    for request, wait_ns in zip(around, waits, strict=True):
        slot = (request.intended_ns - begin_ns) // SLOT_NS
        slots[slot] = max(slots[slot] or 0.0, wait_ns / 1e6)
    return slots
