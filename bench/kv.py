# SPDX-License-Identifier: Apache-2.0
"""How fast the replicated store is, beside etcd and a store on hashicorp/raft (in memory only): put and get by 1, 16 and
64 clients that each wait for an answer before they ask again, 3, 5 and 7 replicas, logs in memory and on disk. Values have 64
bytes; puts of 256 and 1,000 bytes are measured in the first size. Clients
talk to the leader directly; rows of `hedgerow-proxy` go through the proxy, and those of `hedgerow-named` prove each request (ADR 39). Systems take turns within each round.
"""

import argparse
import dataclasses

from bench import experiment, store_load
from bench.histogram import percentiles
from bench.outcome import Check, at_least, at_most, median
from chaos.systems import HASHICORP, Settings
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import Cluster
from deploy.lab.servers import hashicorp_node
from deploy.lab.servers.hedgerow_node import SERVE_PORT
from plots import looks
from plots.charts import Charts, Lines

NAME = "kv"
TAG = "benchkv"
# As chaos names them.
SYSTEMS = {"hedgerow": "noproxy-noretry", "etcd": "etcd-default", "hedgerow-proxy": "hedgerow", "hedgerow-named": "noproxy-noretry",
           HASHICORP: HASHICORP}
_OURS = ("hedgerow", "hedgerow-proxy", "hedgerow-named")
_CLIENT = ("load", "000102030405060708090a0b0c0d0e0f")  # of `hedgerow-named`: a name, and its key
REPLICAS, MODES, CLIENTS, OPERATIONS = ("3", "5", "7"), ("memory", "disk"), ("1", "16", "64"), ("put", "get")
VALUES = ("64", "256", "1000")
_VALUE_BYTES = 64  # of all rows that say nothing else
_MEDIANS = ("ops_per_s", "cpu_us_per_op", "client_cpu_us_per_op")
_SUMS = ("n", "failed", "lost", "leader_changed")


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """What a row is about."""

    replicas: int
    mode: str
    system: str
    clients: int
    operation: str
    value_bytes: int = _VALUE_BYTES


def row_of(cell: Cell, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together, those included in which the leader changed; rates and costs are medians over the
    runs; counts are sums."""
    return {**dataclasses.asdict(cell), "runs": len(runs), **{key: sum(run[key] for run in runs) for key in _SUMS},
            **percentiles((store_load.latency_of(run["report"]) for run in runs), "us", ("p50", "p99")),
            **{key: median(run[key] for run in runs) for key in _MEDIANS}, "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    def figure(name: str, **wanted) -> float | None:
        return next((row[name] for row in rows if all(row[key] == value for key, value in wanted.items())), None)

    put = {"replicas": 3, "mode": "memory", "operation": "put", "value_bytes": _VALUE_BYTES}
    etcd = figure("ops_per_s", system="etcd", clients=64, **put)
    ours = figure("ops_per_s", system="hedgerow", clients=64, **put)
    own = [row for row in rows if row["system"] in _OURS]
    return [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10),
            at_most("memory, 3 replicas, 1 client: put p50", figure("p50_us", system="hedgerow", clients=1, **put), 200,
                    "us"),
            at_least("memory, 3 replicas, 64 clients: put", ours, 18_000, "/s"),
            at_least("memory, 3 replicas, 64 clients: put, times etcd's", ours / etcd if ours and etcd else None, 2.5),
            *_proof_costs(rows),
            at_most("ours: requests without an answer or with an error", sum(row["failed"] + row["lost"] for row in own),
                    0)]


def _proof_costs(rows: list[dict]) -> list[Check]:
    """Of each operation with the most clients that were measured with and without proof."""
    def rates(system: str) -> dict[tuple, float]:
        return {(row["replicas"], row["mode"], row["clients"], row["operation"]): row["ops_per_s"] for row in rows
                if row["system"] == system and row["value_bytes"] == _VALUE_BYTES}

    plain, named = rates("hedgerow"), rates("hedgerow-named")
    most = max((key[2] for key in plain.keys() & named.keys()), default=0)
    return [at_least(f"{mode}, {replicas} replicas, {clients} clients: {operation} that is proved, of those that are not",
                     named[replicas, mode, clients, operation] / plain[replicas, mode, clients, operation], 0.9)
            for replicas, mode, clients, operation in sorted(plain.keys() & named.keys()) if clients == most]


def measure_cell(lab: Lab, cluster: Cluster, cell: Cell, arguments: argparse.Namespace) -> tuple[dict, list[str]]:
    more = {"etcd": ["--store=etcd", f"--connections={arguments.etcd_connections}"],
            "hedgerow-named": [f"--client={_CLIENT[0]}", f"--key={_CLIENT[1]}"]}.get(cell.system, [])
    found = store_load.measured(lab, cluster, lambda leader: store_load.command(
        f"{VIP_KV[0]}:{SERVE_PORT}" if cell.system == "hedgerow-proxy" else leader.endpoint, cell.clients, cell.operation, cell.value_bytes,
        warm_up_s=arguments.warm_up, measured_s=arguments.seconds, more=more))
    return figures(found), found.described()


def figures(found: store_load.Measured) -> dict:
    figures_ = found.figures()
    return {**figures_, "ops_per_s": figures_["n"] / figures_["report"]["seconds"],
            "cpu_us_per_op": figures_["servers_us_per_op"] + figures_["client_cpu_us_per_op"]}


def cells_of(arguments: argparse.Namespace) -> list[Cell]:
    """Through the proxy: puts, and only in the first mode and size that were asked for; with proof: there as well. hashicorp-raft: in
    memory. Larger values: puts in the first size, of others than these."""
    first = (int(arguments.replicas[0]), arguments.modes[0])
    return [Cell(replicas, mode, system, clients, operation, value_bytes)
            for replicas in map(int, arguments.replicas) for mode in arguments.modes for system in arguments.systems
            for clients in map(int, arguments.clients) for operation in OPERATIONS for value_bytes in map(int, arguments.values)
            if (system != "hedgerow-proxy" or ((replicas, mode) == first and operation == "put"))
            and (system != "hedgerow-named" or (replicas, mode) == first)
            and (system != HASHICORP or mode == "memory")
            and (value_bytes == _VALUE_BYTES or (replicas == first[0] and operation == "put" and system not in ("hedgerow-proxy", "hedgerow-named")))]


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    cells = cells_of(arguments)

    def turns(replicas: int, number: int) -> list[list[Cell]]:
        return [[cell for cell in cells if (cell.replicas, cell.mode, cell.system) == (replicas, mode, system)]
                for mode in arguments.modes for system in experiment.rotated(arguments.systems, number)]

    def store(cell: Cell) -> tuple[str, Settings]:
        named = _CLIENT if cell.system == "hedgerow-named" else None
        return SYSTEMS[cell.system], Settings(cell.mode, cell.replicas, named_client=named, reads=arguments.hashicorp_reads)

    store_load.on_fresh_stores(running, arguments, TAG, arguments.systems, cells, turns, store,
                               lambda lab, up, cell: measure_cell(lab, up.cluster, cell, arguments))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, [field.name for field in dataclasses.fields(Cell)], must_show, lambda *cell: [row_of(Cell(*cell[:-1]), cell[-1])],
    {"replicas": "replicas", "mode": "mode", "system": "system", "clients": "clients", "operation": "op", "value_bytes": "bytes",
     "runs": "runs", "p50_us": "p50 us", "p99_us": "p99 us", "ops_per_s": "ops/s", "cpu_us_per_op": "cpu us",
     "client_cpu_us_per_op": "client's", "failed": "failed", "lost": "lost", "leader_changed": "leader changed"},
    Charts("Put and get of the replicated store, clients that wait for each answer", looks.KV, "system",
           tuple(Lines(y=key, unit=unit, panel=("replicas", "mode", "operation"), x="clients", log="xy",
                       titles={int(size): f"{size} replicas" for size in REPLICAS}, where=lambda row: row["value_bytes"] == _VALUE_BYTES)
                 for key, unit in (("p50_us", "us, p50"), ("ops_per_s", "answers per second")))),
    measure=measure, options=(
        experiment.some("--replicas", REPLICAS, ["3"], help="3,5,7 for the long run"), experiment.some("--modes", MODES),
        experiment.some("--clients", CLIENTS), experiment.some("--values", VALUES, help="bytes of what is put"), experiment.some("--systems", SYSTEMS),
        experiment.number("--seconds", 3.0, 0.1, 600, help="measured part of each run"),
        experiment.number("--warm-up", 0.5, 0.0, 60, help="seconds before it"),
        experiment.number("--etcd-connections", 1, 0, 10_000, help="that etcd's clients share, as the callers of one etcd client do; 0: one for each"),
        ("--hashicorp-reads", {"choices": hashicorp_node.READS, "default": "verify",
                               "help": "verify: a read asks a quorum first, so it is linearizable; lease: the leader's lease will do"})))
