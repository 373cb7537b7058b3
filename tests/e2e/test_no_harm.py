# SPDX-License-Identifier: Apache-2.0
"""First, do no harm: with two healthy servers a client gets by the VIP what it gets from one of them. The rows stand in no_harm/table.py.

Each row's client runs twice, from a host without a proxy at the leader's own address and from another by the VIP, and the judge compares: the same
answers in the same order, nothing twice, nothing elsewhere. `plain` is the documented configuration, `copies` sends a second copy of all that may be sent twice, and `slow` holds
every answer back for longer than the delay, so that all are hedged.
"""

import contextlib
import dataclasses
import functools
import os
import re

import pytest

from deploy.lab import Host
from deploy.lab.network_faults import NetworkFaults
from deploy.lab.servers import Server
from harness.product import PROJECT
from no_harm import packets
from no_harm.judge import Seen, harm
from no_harm.scripted import HARMS, ScriptedServer
from no_harm.table import PLAIN, ROWS, SERVICES, SLOW, VARIANTS, Row, config

pytestmark = [pytest.mark.servers(a="no-harm", b="no-harm"), pytest.mark.lab(clients=2)]
SLOW_MS = 16.0


@dataclasses.dataclass(frozen=True)
class At:
    """Where a row's client stands and what it asks."""

    host: Host
    address: str
    port: int
    leader: str
    leader_server: Server
    alone: bool

    @property
    def six(self) -> bool:
        return ":" in self.address

    @property
    def bracketed(self) -> str:
        return f"[{self.address}]" if self.six else self.address

    def leader_or_any(self, tag: str) -> str:
        """A request that may be sent twice may be answered by either server."""
        return tag if self.alone else "a server"


def delivered(host: Host) -> int:
    return host.snmp("Udp")["InDatagrams"] + host.snmp("Udp6")["InDatagrams"]


def sent_to_standby(product, row: Row) -> int:
    return next(int(backend["sent"]) for backend in product.service_status(row.service)["backends"] if backend["name"] == "b")


def seen(lab, product, row: Row, servers: dict, *, direct: bool) -> Seen:
    vip, port, _ = SERVICES[row.service]
    leader = lab.replica("a").ipv6 if ":" in vip else lab.replica("a").ipv4
    host = lab.clients[1] if direct else lab.client
    at = At(host, leader if direct else vip, port, leader, servers["a"].get(row.server), row.alone)
    standby = lab.replica("b")
    before, accounted = delivered(standby), 0 if direct else sent_to_standby(product, row)
    lines = row.client(at)
    at_standby = delivered(standby) - before
    if direct:
        return Seen(lines, at_standby=at_standby)
    read = sum("bytes" in line for line in lines)  # of the scripted server each line is a datagram
    return Seen(lines, at_standby=at_standby, accounted=sent_to_standby(product, row) - accounted, moved=product.figure("flows_moved", row.service),
                more=product.figure("replies", row.service) - read if issubclass(row.server, ScriptedServer) else 0, state=product.status()["state"])


def judged(lab, product, row: Row, variant: str, servers: dict) -> list[str]:
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            server.get(row.server)
        if variant == SLOW:
            stack.enter_context(NetworkFaults(lab)).change([(name, client.name) for name in servers for client in lab.clients],
                                                       delayed=1.0, delays_ms=(SLOW_MS, SLOW_MS))
        directly = seen(lab, product, row, servers, direct=True)
        product.up(config(product, variant))
        return harm(directly, seen(lab, product, row, servers, direct=False), alone=row.alone, right=row.right)


CASES = [pytest.param(row, variant, id=f"{variant}-{row.name}", marks=[pytest.mark.long] if row.long else [])
         for variant in VARIANTS for row in ROWS if variant in row.variants]


@pytest.mark.parametrize("row, variant", CASES)
def test_a_client_gets_by_the_vip_what_it_gets_directly(lab, product, servers, row, variant):
    found = judged(lab, product, row, variant, servers)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", HARMS.values())
def test_the_judge_sees_a_proxy_that_does_harm(lab, product, servers, kind):
    """The servers behind this VIP answer twice, drop, swap or alter every fifth answer: what is seen there is no longer what is seen directly."""
    row = dataclasses.replace(next(row for row in ROWS if row.name == "order-flow"), client=functools.partial(packets.in_order, bursts=2))
    honest = functools.partial(seen, lab, product, row, servers)
    directly = honest(direct=True)
    product.up(config(product, PLAIN))
    assert not harm(directly, honest(direct=False), alone=True), "the control"
    found = harm(directly, seen(lab, product, dataclasses.replace(row, service=kind), servers, direct=False), alone=True)
    expected = {"twice": "more by the VIP", "drops": "missing by the VIP", "swaps": "another order", "alters": "missing by the VIP"}[kind]
    assert any(expected in sentence for sentence in found), found


def test_the_judge_sees_what_no_client_sees():
    direct, line = Seen(["answer"]), ["answer"]
    assert not harm(direct, Seen(line), alone=True)
    assert harm(direct, Seen(line, at_standby=1, accounted=1), alone=True)
    assert not harm(direct, Seen(line, at_standby=1, accounted=1), alone=False)
    for proxied in (Seen(line, at_standby=1), Seen(line, more=1), Seen(line, moved=1), Seen(line, state="degraded")):
        assert len(harm(direct, proxied, alone=False)) == 1, proxied
    two = ["first", "second"]
    for alone, accounted in ((True, 1), (False, 0)):
        assert harm(Seen(two), Seen(two[::-1], accounted=accounted), alone=alone)
    assert not harm(Seen(two), Seen(two[::-1], accounted=1), alone=False)
    assert harm(Seen([]), Seen([]), alone=False, right="answer")
    assert harm(Seen(["FAILURE"]), Seen(["FAILURE"]), alone=False, right="SUCCESS")


# -- docs/clients.md -----------------------------------------------------------------------------------------------

_MADE = re.compile(r"(?<=<!-- made by tests/e2e/test_no_harm.py -->\n).*?(?=<!-- end -->)", re.S)


def table() -> str:
    rows: dict[str, list[str]] = {}
    copied: dict[str, bool] = {}
    for row in ROWS:
        what = row.what.removesuffix("; IPv6")
        profiles = rows.setdefault(what, [])
        profiles += [row.profile] if row.profile not in profiles else []
        copied[what] = copied.get(what, False) or "copies" in row.variants
    lines = [f"| {what} | {', '.join(profiles)} | {'the same' if copied[what] else ''} |" for what, profiles in rows.items()]
    return "\n".join(["| client and what it does | profile | with `idle_copies: 100%` |", "|---|---|---|", *lines, ""])


def test_the_page_for_users_has_every_row():
    path = PROJECT / "docs" / "clients.md"
    page = path.read_text(encoding="utf-8")
    if os.environ.get("HEDGEROW_REWRITE") == "1":
        page = _MADE.sub(lambda _: table(), page)
        path.write_text(page, encoding="utf-8")
    assert _MADE.search(page)[0] == table(), "run it with HEDGEROW_REWRITE=1"
