# SPDX-License-Identifier: Apache-2.0
"""Compares what a client saw directly with what it saw by the VIP.

A transcript is a list of lines, in the order in which the client's answers came. Beside it stand counts that no client sees: how many
datagrams the standby got, and how many the proxy delivered.
"""

import collections
import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Seen:
    """One run of a client."""

    lines: list[str]
    more: int = 0  # datagrams that the proxy delivered beyond those that the client read
    at_standby: int = 0
    accounted: int = 0  # of those, what the proxy says that it sent there: hedges, copies, and requests around a leader that seems slow
    moved: int = 0  # flows that went on with another backend
    state: str = "running"


def difference(direct: list[str], proxied: list[str]) -> list[str]:
    """One sentence for each kind of harm; empty where the two are the same."""
    if direct == proxied:
        return []
    wanted, got = collections.Counter(direct), collections.Counter(proxied)
    found = [f"missing by the VIP: {count} x {line}" for line, count in (wanted - got).items()]
    found += [f"more by the VIP: {count} x {line}" for line, count in (got - wanted).items()]
    return found or [f"another order, from line {next(n for n, pair in enumerate(zip(direct, proxied)) if pair[0] != pair[1])} on"]


def harm(direct: Seen, proxied: Seen, *, alone: bool, right: str = "") -> list[str]:
    """`alone`: nothing may be sent twice or elsewhere. `right` stands in what is right."""
    found = difference(direct.lines, proxied.lines)
    if proxied.accounted and not alone and sorted(direct.lines) == sorted(proxied.lines):
        found = []  # where the standby was asked, its answer to one request may overtake the leader's to another
    if not re.search(right, "\n".join(direct.lines) or "\0"):
        found.append(f"directly the client saw no {right!r}, so nothing was compared: {direct.lines[:5]}")
    if proxied.more > 0:
        found.append(f"{proxied.more} datagrams were delivered after the client had ended, or twice")
    allowed = 0 if alone else proxied.accounted
    if proxied.at_standby > allowed:
        found.append(f"the standby got {proxied.at_standby} datagrams, of which the proxy accounts for {allowed}")
    if proxied.moved:
        found.append(f"{proxied.moved} flows were moved between healthy servers")
    if proxied.state != "running":
        found.append(f"status says {proxied.state} of healthy servers")
    return found
