# SPDX-License-Identifier: Apache-2.0
"""How long elections take: 3 and 5 nodes, both durability modes; the leader dies by SIGKILL, stalls (SIGSTOP) or is cut off,
again and again, and another one is elected. From the nodes' own measurements: PreVote to quorum, RequestVote to quorum, and
the fences, in which a process takes back what it has left to its kernel; and from the fault to the instant at which the next
leader leads. Idle clusters as shipped.
"""

import argparse
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench import experiment, series
from bench.histogram import quantile
from bench.outcome import Check, at_least, at_most
from chaos.faults import FaultSpec, World, make
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings
from deploy.lab.unsynced_disks import UnsyncedDisks
from plots import looks
from plots.charts import Charts, Steps

NAME = "election"
TAG = "benchel"
REPLICAS = ("3", "5", "7")
FAULTS = {"kill": "kill", "stall": "pause", "cut": "cut"}  # as chaos names them
MODES = {"disk": NodeSettings(durability="disk"),
         "memory": NodeSettings(durability="memory")}
WANTED_TERMS = 100
# Asking a node costs processor time, and so is begun when the election should be over; it is the node that says when it was.
_FIRST_LOOK_S, _LOOK_EVERY_S, _ELECTED_WITHIN_S = 0.25, 0.05, 15.0
_SPANS = {"vote": "vote_quorum", "pre_vote": "pre_vote_quorum"}


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """What a row is about."""

    replicas: int
    mode: str
    cause: str


@dataclasses.dataclass
class Term:
    """One leader's end and the next one's beginning."""

    terms: int  # that it took: 1, unless an election was lost
    outage_ms: float
    vote_us: float | None  # of the winner; None: not measured
    pre_vote_us: float | None
    fences_ns: dict[int, int]  # of the survivors: number by upper bound
    winner: int | None = None  # the node's number

    @classmethod
    def from_json(cls, raw: dict) -> "Term":
        return cls(**{**raw, "fences_ns": {int(upper): count for upper, count in raw["fences_ns"].items()}})


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Of a node's status. 64-bit integers come as text."""

    counts: Counter  # by upper bound
    sum_ns: int

    @classmethod
    def of(cls, status: dict, name: str) -> "Histogram":
        found = next((each for each in status.get("histograms", []) if each["name"] == name), {})
        counts = Counter({int(bucket["upper_ns"]): int(bucket["count"]) for bucket in found.get("buckets", [])})
        return cls(counts, int(found.get("sum_ns", 0)))

    def since(self, before: "Histogram") -> "Histogram":
        return Histogram(self.counts - before.counts, self.sum_ns - before.sum_ns)

    def mean_us(self) -> float | None:
        """Exact where there is one sample."""
        return self.sum_ns / count / 1e3 if (count := self.counts.total()) else None


def quantile_us(counts: Counter, share: float) -> float | None:
    """The upper bound of the bucket that holds it, so never too small, and an eighth too large at most."""
    left = share * counts.total()
    for upper_ns in sorted(counts):
        left -= counts[upper_ns]
        if left <= 1e-9:
            return (upper_ns + 1) / 1e3
    return None


def _series(folder: Path, _summary: dict) -> tuple[dict, dict]:
    values: dict[str, dict[str, list[float]]] = {}
    for record in series.raw(folder):
        here = values.setdefault(f"{record['replicas']}-{record['mode']}-{record['cause']}", {})
        for term in record["terms"]:
            for name in ("pre_vote_us", "vote_us", "outage_ms"):
                if term[name] is not None:
                    here.setdefault(name, []).append(term[name])
    return ({key: {name: series.spread(found) for name, found in here.items()} for key, here in values.items()},
            {key: {name: sorted(map(series.short, found)) for name, found in here.items()} for key, here in values.items()})


def term_of(before: dict[int, dict], after: dict[int, dict], winner: int, fault_ns: int) -> Term:
    """`before` and `after`: the survivors' status by number."""
    def since(number: int, name: str) -> Histogram:
        return Histogram.of(after[number], name).since(Histogram.of(before[number], name))

    fences = Counter()
    for number in after:
        fences += since(number, "fence").counts
    return Term(terms=int(after[winner]["term"]) - max(int(status["term"]) for status in before.values()),
                outage_ms=(int(after[winner]["led_since_ns"]) - fault_ns) / 1e6,
                **{f"{span}_us": since(winner, name).mean_us() for span, name in _SPANS.items()},
                fences_ns=dict(fences), winner=winner)


def row_of(cell: Cell, rounds: list[list[Term]], hashed: str) -> dict:
    """Percentiles over the terms of all rounds; `_min` and `_max` are the smallest and largest median of a round."""
    terms = [term for each in rounds for term in each]
    row = {**dataclasses.asdict(cell), "terms": len(terms), "rounds": len(rounds),
           "terms_beyond_one": sum(term.terms - 1 for term in terms)}
    for name in ("vote_us", "pre_vote_us", "outage_ms"):
        stem, unit = name.rsplit("_", 1)
        row |= {f"{stem}_{label}_{unit}": quantile(_known(terms, name), share)
                for label, share in (("p50", 0.5), ("p99", 0.99))}
        medians = [quantile(_known(each, name), 0.5) for each in rounds if _known(each, name)]
        row |= {f"{stem}_p50_{unit}_min": min(medians, default=None), f"{stem}_p50_{unit}_max": max(medians, default=None)}
    outages, won = _known(terms, "outage_ms"), Counter(_known(terms, "winner"))
    row |= {"outage_min_ms": min(outages), "outage_mean_ms": sum(outages) / len(outages), "outage_p95_ms": quantile(outages, 0.95),
            "outage_max_ms": max(outages), "won": " ".join(str(won[number]) for number in range(1, cell.replicas + 1)) if won else None}
    fences = sum((Counter(term.fences_ns) for term in terms), Counter())
    return row | {"fences": fences.total(), "fence_p50_us": quantile_us(fences, 0.5),
                  "fence_p99_us": quantile_us(fences, 0.99), "config_hash": hashed}


def _known(terms: Iterable[Term], name: str) -> list[float]:
    return [value for term in terms if (value := getattr(term, name)) is not None]


def must_show(rows: list[dict]) -> list[Check]:
    """Each limit is for the worst row."""
    def worst(name: str) -> float | None:
        values = [row[name] for row in rows if row["mode"] == "memory"]
        return max(values) if values and None not in values else None

    measured = {(row["replicas"], row["mode"], row["cause"]) for row in rows}
    wanted = {(int(replicas), mode, cause) for replicas in REPLICAS for mode in MODES for cause in FAULTS}
    return [at_least("kinds of clusters, modes and faults", len(measured & wanted), len(wanted)),
            at_least("terms of each row", min((row["terms"] for row in rows), default=0), WANTED_TERMS),
            at_most("memory: RequestVote to quorum p50, worst row", worst("vote_p50_us"), 70, "us"),
            at_most("memory: RequestVote to quorum p99, worst row", worst("vote_p99_us"), 410, "us"),
            at_most("memory: fence p99, worst row", worst("fence_p99_us"), 200, "us")]


def survivors_of(cluster: Cluster, leader: HedgerowNode) -> dict[int, dict]:
    """Status by number of those that answer."""
    return {node.number: status for node in cluster.nodes if node is not leader and (status := node.status()) is not None}


def next_leader(cluster: Cluster, former: HedgerowNode, term: int) -> tuple[int, dict[int, dict]]:
    """The number of the leader of a later term, and all nodes' status then."""
    deadline = time.monotonic() + _ELECTED_WITHIN_S
    time.sleep(_FIRST_LOOK_S)
    while True:
        after = survivors_of(cluster, former)
        leading = {number: int(status["term"]) for number, status in after.items()
                   if status["role"] == "leader" and int(status["term"]) > term}
        if leading and len(after) == len(cluster.nodes) - 1:
            return max(leading, key=leading.__getitem__), after
        if time.monotonic() > deadline:
            raise RuntimeError(f"node {former.number} is not replaced: {cluster.states()}")
        time.sleep(_LOOK_EVERY_S)


def steady_leader(cluster: Cluster) -> tuple[HedgerowNode, dict[int, dict], int]:
    """The leader, the others' status, and its term: all of one leader's time, also where another led at first."""
    while True:
        leader = cluster.wait_ready()
        before = survivors_of(cluster, leader)
        own = leader.status()
        term = max(int(status["term"]) for status in before.values())
        if own is not None and own["role"] == "leader" and int(own["term"]) == term:
            return leader, before, term


def one_term(lab: Lab, cluster: Cluster, cause: str) -> Term:
    leader, before, term = steady_leader(cluster)
    fault = make([FaultSpec(FAULTS[cause])], World(lab, cluster, leader, [leader]))
    try:
        fault_ns = fault.begin()
        winner, after = next_leader(cluster, leader, term)
    finally:
        fault.end()
    return term_of(before, after, winner, fault_ns)


def config_of(cell: Cell, cluster: Cluster, sync_ms: int) -> dict:
    volatile = {"data_dir", "admin_socket", "cluster_key", "node"}
    return {**dataclasses.asdict(cell), "load": "none", "sync_ms": sync_ms,
            "node": {key: value for key, value in cluster.nodes[0].config.items() if key not in volatile}}


_STEPS = {"panel": ("replicas",), "key": ("replicas", "mode", "cause"), "titles": {3: "three nodes", 5: "five nodes", 7: "seven nodes"}, "of": "elections"}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    for number in range(1, arguments.rounds + 1):
        for replicas in arguments.replicas:
            with Lab(TAG, replicas=int(replicas)) as lab:
                for turn in running.turns([number], replicas=[int(replicas)], mode=arguments.modes, cause=arguments.causes):
                    terms, config = one_round(lab, Cell(**turn.cell), arguments)
                    turn.done({"terms": [dataclasses.asdict(term) for term in terms], "config": config})


def one_round(lab: Lab, cell: Cell, arguments: argparse.Namespace) -> tuple[list[Term], dict]:
    """A fresh store for each."""
    with contextlib.ExitStack() as stack:
        settings = MODES[cell.mode]
        data = stack.enter_context(DataDirs(TAG, settings.durability)).path
        sync_ms = arguments.sync_ms if settings.durability == "disk" else 0
        if sync_ms:
            disks = stack.enter_context(UnsyncedDisks(lab, data))
            data = disks.path
        cluster = stack.enter_context(hedgerow_cluster(lab, data, settings))
        if sync_ms:
            for node in cluster.nodes:
                disks.ask(node.host.name, f"slow {sync_ms}")
        return [one_term(lab, cluster, cell.cause) for _ in range(arguments.terms)], config_of(cell, cluster, sync_ms)


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, [field.name for field in dataclasses.fields(Cell)], must_show,
    lambda *cell: [row_of(Cell(*cell[:-1]), [[Term.from_json(term) for term in record["terms"]] for record in cell[-1]],
                          cell[-1][0]["config_hash"])],
    {"replicas": "nodes", "mode": "mode", "cause": "cause", "terms": "terms", "vote_p50_us": "vote p50 us",
     "vote_p99_us": "p99", "pre_vote_p50_us": "pre-vote p50 us", "pre_vote_p99_us": "p99", "fence_p50_us": "fence p50 us",
     "fence_p99_us": "p99", "outage_p50_ms": "death to leader p50 ms", "outage_min_ms": "min", "outage_mean_ms": "mean", "outage_p95_ms": "p95",
     "outage_p99_ms": "p99", "outage_max_ms": "max", "terms_beyond_one": "lost", "won": "won by node"},
    Charts("Elections of idle clusters, disk mode dashed", looks.CAUSES, "cause",
           (Steps("From the fault to the next leader", y="outage_ms", label="fault to next leader", **_STEPS),
            Steps("RequestVote to quorum", y="vote_us", unit="us", **_STEPS)), _series),
    measure=measure, options=(
        experiment.number("--terms", 10, 1, 1000, help=f"of each round; {WANTED_TERMS} in all are wanted"), experiment.some("--replicas", REPLICAS),
        experiment.some("--modes", MODES), experiment.some("--causes", FAULTS),
        experiment.number("--sync-ms", 0, 0, 5000, help="disk mode: each sync of a node's disk takes so much longer")))
