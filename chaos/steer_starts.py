# SPDX-License-Identifier: Apache-2.0
"""Two properties of steering, by numbers. Balance: 10,000 addresses of IPv4 and as many of IPv6 come by UDP and TCP from 8 ports each; each
address meets one worker, the workers' shares are even (chi-square, 99 %), and `hedgerow steer explain` names that worker. Starts: the group
is started 1,000 times, its workers coming in random order, while sources are sending already; no source meets a second worker.

`--plant plain` does it to workers with SO_REUSEPORT sockets of their own, without steering. The run then succeeds if its checks find that.
"""

import argparse
import dataclasses
import ipaddress
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench import experiment, steer_rig
from bench.outcome import Check, at_least, at_most
from bench.steer_rig import Counts
from bench.steer_systems import Reuseport, Steer, System, Wanted
from deploy.lab import Lab

NAME = "chaos-steer-starts"
TAG = "chaosstart"
PLAIN = "plain"
WORKERS = 4
PORTS = 8
ADDRESSES, STARTS = 10_000, 1_000
# Chi-square that an even spread stays below in 99 of 100 cases, by degrees of freedom.
CHI_SQUARE_99 = {1: 6.635, 3: 11.345, 7: 18.475}
# One even spread in 100 is above it: then another group, with a seed of its own, has to be below.
_SEEDS = 2
_AT_ONCE = 256
_START_SOURCES, _START_RATE = 500, 4_000
_START_DELAY_MS = 60
_TRAFFIC_S, _TRAFFIC_AT_MOST_S = 0.3, 3.0  # of a start, until every source has been heard by both transports
_EXPLAIN_AT_ONCE = 4


def chi_square(found: Sequence[int]) -> float:
    if not sum(found):
        return 1e9  # nothing met one worker
    even = sum(found) / len(found)
    return sum((each - even) ** 2 / even for each in found)


@dataclasses.dataclass(frozen=True)
class Spread:
    """Of one group, by what its workers counted."""

    one_worker: int  # sources that met exactly one, with every message of both transports
    of_two: int
    shares: list[int]  # sources by slot
    slots: list[int | None]  # by source

    @classmethod
    def of(cls, by_slot: Sequence[Sequence[Counts]], sources: int, messages: int) -> "Spread":
        met = steer_rig.workers_met(by_slot, sources)
        whole = 0
        slots: list[int | None] = []
        for source, of_source in enumerate(met):
            slot = next(iter(of_source)) if len(of_source) == 1 else None
            slots.append(slot)
            whole += slot is not None and by_slot[slot][source] == Counts(messages, messages)
        shares = Counter(slots)
        return cls(whole, sum(len(of_source) > 1 for of_source in met), [shares[slot] for slot in range(len(by_slot))], slots)


# -- balance -----------------------------------------------------------------------------------------------------


def visit_all(lab: Lab, system: System, family: int, addresses: int) -> dict:
    """Every address from PORTS ports, by both transports."""
    failed = {}
    for transport in ("udp", "tcp"):
        argv = steer_rig.load_command(steer_rig.target(system.host, family), addresses, transport, visits=addresses * PORTS, at_once=_AT_ONCE,
                                      timeout="10s")
        failed[transport] = steer_rig.visit(lab, argv, system.host.scratch("visits"), timeout_s=600)["failed"]
    return failed


def explained(steer: Steer, family: int, addresses: int) -> list[int]:
    """The slot that `steer explain` names, of every address."""
    first = ipaddress.ip_address(steer_rig.NETWORKS[family][1])

    def explain(number: int) -> int:
        return int(json.loads(steer.call("explain", str(first + number), "--json")).get("slot", 0))

    with ThreadPoolExecutor(_EXPLAIN_AT_ONCE) as pool:
        return list(pool.map(explain, range(addresses)))


def balance(lab: Lab, kind: type[System], family: int, addresses: int) -> dict:
    """One group, or a second one where the first one's shares are uneven."""
    chi_squares = []
    for seed in range(1, _SEEDS + 1):
        with kind(lab.replicas[0], Wanted(WORKERS, "both", addresses, family=family), "balance") as system:
            failed = visit_all(lab, system, family, addresses)
            spread = Spread.of(system.counts(), addresses, PORTS)
            named = explained(system, family, addresses) if isinstance(system, Steer) else []
        chi_squares.append(chi_square(spread.shares))
        print(f"  IPv{family}, group {seed}: {spread.one_worker} of {addresses} addresses met one worker, shares {spread.shares}, chi-square "
              f"{chi_squares[-1]:.2f}", flush=True)
        if chi_squares[-1] < CHI_SQUARE_99[WORKERS - 1]:
            break
    return {"what": f"balance, IPv{family}", "addresses": addresses, "visits": 2 * addresses * PORTS, "failed": sum(failed.values()),
            "one_worker": spread.one_worker, "of_two": spread.of_two, "shares": spread.shares, "chi_square": min(chi_squares),
            "groups": len(chi_squares), "explained_right": sum(slot == said for slot, said in zip(spread.slots, named, strict=False))}


# -- starts ------------------------------------------------------------------------------------------------------


@contextmanager
def sending(lab: Lab, family: int) -> Iterator[subprocess.Popen]:
    """Sources that do not mind whether anything listens."""
    log = lab.client.scratch("load") / f"starts-{family}.log"
    argv = steer_rig.load_command(steer_rig.target(lab.replicas[0], family), _START_SOURCES, "both", rate=_START_RATE, seconds=3600, warm_up=0,
                                  patient="true", retry="50ms", linger="0s", out="/dev/null")
    child = lab.client.popen(argv, log=log)
    try:
        yield child
        if child.poll() is not None:
            raise RuntimeError(f"the load ended with {child.returncode}: {log.read_text(encoding='utf-8')}")
    finally:
        lab.client.stop(child, signal.SIGKILL)


def heard_by_both(counts: Sequence[Sequence[Counts]]) -> int:
    """Sources of which workers have counted messages by UDP and by TCP."""
    return sum(any(each.udp for each in of_source) and any(each.tcp for each in of_source) for of_source in zip(*counts, strict=False))


def one_start(lab: Lab, kind: type[System], family: int) -> dict:
    wanted = Wanted(WORKERS, "both", _START_SOURCES, family=family, start_delay_ms=_START_DELAY_MS)
    with kind(lab.replicas[0], wanted, "starts") as system:
        deadline = time.monotonic() + _TRAFFIC_AT_MOST_S
        time.sleep(_TRAFFIC_S)
        while heard_by_both(system.counts()) < _START_SOURCES and time.monotonic() < deadline:
            time.sleep(0.05)
        order = system.order()
    counts = system.counts()
    met = steer_rig.workers_met(counts, _START_SOURCES)
    return {"family": family, "order": order[:WORKERS], "of_two": sum(len(slots) > 1 for slots in met), "met": sum(bool(slots) for slots in met),
            "met_by_both": heard_by_both(counts)}


def starts(lab: Lab, kind: type[System], count: int) -> tuple[dict, list[dict]]:
    each = []
    progress = experiment.Progress(count)
    for family, share in ((4, count - count // 2), (6, count // 2)):
        with sending(lab, family):
            for _ in range(share):
                each.append(one_start(lab, kind, family))
                progress.done(f"order {each[-1]['order']}, of two workers {each[-1]['of_two']}")
    return {"what": "starts", "starts": len(each), "orders": len({tuple(one["order"]) for one in each}), "of_two": sum(one["of_two"] for one in each),
            "sources": sum(one["met"] for one in each), "sources_share": sum(one["met"] for one in each) / (len(each) * _START_SOURCES),
            "both_share": sum(one["met_by_both"] for one in each) / (len(each) * _START_SOURCES)}, each


# -- judgement ---------------------------------------------------------------------------------------------------


def must_show(rows: Sequence[dict]) -> list[Check]:
    checks = []
    for row in rows:
        what = row["what"]
        if what == "starts":
            checks += [at_least("starts", row["starts"], STARTS, needs_full=True),
                       at_least("starts: orders in which workers came", row["orders"], min(10, row["starts"] // 4)),
                       at_least("starts: share of the sources that were heard", row["sources_share"], 0.95),
                       at_least("starts: share that was heard by both transports", row["both_share"], 0.9),
                       at_most("starts: sources that met a second worker", row["of_two"], 0, finds=[PLAIN])]
        else:
            checks += [at_least(f"{what}: addresses", row["addresses"], ADDRESSES, needs_full=True), at_most(f"{what}: visits that failed", row["failed"], 0),
                       at_least(f"{what}: addresses with all visits at one worker", row["one_worker"], row["addresses"]),
                       at_most(f"{what}: sources that met a second worker", row["of_two"], 0, finds=[PLAIN]),
                       at_most(f"{what}: chi-square of the shares (99 %)", row["chi_square"], CHI_SQUARE_99[WORKERS - 1]),
                       at_least(f"{what}: addresses that explain is right about", row["explained_right"], row["addresses"])]
    return checks


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    kind = Reuseport if arguments.plant else Steer
    parts = [*(("balance-4", "balance-6") if arguments.addresses else ()), *(("starts",) if arguments.starts else ())]
    with Lab(arguments.lab, replicas=1) as lab:
        steer_rig.route_sources(lab, lab.replicas[0])
        for turn in running.turns(what=parts):
            row, each = starts(lab, kind, arguments.starts) if turn["what"] == "starts" else (
                balance(lab, kind, int(turn["what"][-1]), arguments.addresses), [])
            turn.done({"row": row, "each": each, "config": {"workers": WORKERS, "ports": PORTS, "system": kind.name,
                                                            "start_sources": _START_SOURCES, "start_rate": _START_RATE}})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["what"], must_show, experiment.own_rows,
    {"what": "what", "addresses": "addresses", "starts": "starts", "one_worker": "one worker", "of_two": "of two workers",
     "chi_square": "chi-square", "explained_right": "explained", "orders": "orders"}, plants={PLAIN: None}, tag=TAG,
    measure=measure, rounds=1,
    quick={"addresses": 500, "starts": 20, "quiet_wait": 0.0}, options=(
        experiment.number("--addresses", ADDRESSES, 0, 60_000, help="of each family"), experiment.number("--starts", STARTS, 0, 10_000)))
