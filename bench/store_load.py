# SPDX-License-Identifier: Apache-2.0
"""What bench/kv.py and bench/offload.py share: one run of a load on a replicated store (hr-kv-load), its report and what all
processes' time was when its measured part began and ended; and the rounds of cells that differ in store and load.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import client_run, cpu_time, experiment
from bench.histogram import Histogram, percentiles
from bench.manifest import binary
from chaos.systems import HASHICORP, Running, Settings, running
from deploy.lab import Lab
from deploy.lab.cluster import Cluster
from deploy.lab.servers.store_node import StoreNode

KEYS = 100  # of each client: few enough that the puts before have written what the gets ask for
TIMEOUT_NS = 1_000_000_000  # of hr-kv-load: what is lost has waited that long


@dataclasses.dataclass
class LoadRun:
    argv: list[str]
    report: dict
    before: cpu_time.Sample  # of all processes of the lab's hosts but the load's
    after: cpu_time.Sample

    @property
    def spent(self) -> cpu_time.Spent:
        return cpu_time.spent(self.before, self.after)

    @property
    def answered(self) -> int:
        """At least one, to divide by."""
        return max(1, self.report["answered"])

    def process_us(self, pid: int) -> int:
        """Of one process, within the measured part."""
        return self.after.processes_us.get(pid, 0) - self.before.processes_us.get(pid, 0)


def run_load(lab: Lab, argv: list[str]) -> LoadRun:
    """To its end."""
    with tempfile.TemporaryFile("w+", encoding="ascii") as out:
        before, after = client_run.follow(lab.client, argv, lambda load: (pid for pid in lab.pids() if pid != load), stdout=out)
        out.seek(0)
        return LoadRun(argv, json.load(out), before, after)


def command(server: str, clients: int, operation: str, value_bytes: int, *, warm_up_s: float, measured_s: float, more: Sequence[str] = ()) -> list[str]:
    return [str(binary("hr-kv-load")), f"--server={server}", f"--clients={clients}", f"--operation={operation}", f"--keys={KEYS}",
            f"--value_bytes={value_bytes}", f"--warm_up={warm_up_s:g}s", f"--measured={measured_s:g}s", *more]


@dataclasses.dataclass
class Measured:
    """One load on a cluster whose leader was known when it began."""

    done: LoadRun
    leader_pid: int
    leader_changed: bool

    def figures(self) -> dict:
        """Of the load, and of all processes but the load's and the kernel outside of them (`servers_us_per_op`)."""
        report = self.done.report
        return {"n": report["answered"], "failed": report["failed"], "lost": report["lost"], "leader_changed": int(self.leader_changed),
                **percentiles([latency_of(report)], "us", ("p50", "p99")), "client_cpu_us_per_op": report["cpu_us"] / self.done.answered,
                "servers_us_per_op": self.done.spent.experiment_us / self.done.answered,
                "argv": self.done.argv, "report": report, "cpu": self.done.spent.as_json()}

    def described(self) -> list[str]:
        """The load for a configuration: not who leads and at which rate, which differ from run to run."""
        return [Path(self.done.argv[0]).name, *(part for part in self.done.argv[1:] if not part.startswith(("--server=", "--rate=")))]


def measured(lab: Lab, cluster: Cluster, argv_for: Callable[[StoreNode], list[str]]) -> Measured:
    leader = cluster.wait_ready()
    term, pid = leader.state().term, leader.process.pid
    done, now = run_load(lab, argv_for(leader)), leader.state()
    return Measured(done, pid, now is None or not now.leads or now.term != term)


def latency_of(report: dict) -> Histogram:
    """What is lost has waited its whole timeout."""
    latency = Histogram.from_json(report["latency"])
    for _ in range(report["lost"]):
        latency.record(TIMEOUT_NS)
    return latency


def on_fresh_stores(under_way: experiment.Running, arguments: argparse.Namespace, tag: str, asked: Sequence[str], cells: list,
                    turns: Callable[[int, int], list[list]], store: Callable[..., tuple[str, Settings]],
                    measure_cell: Callable[[Lab, Running, object], tuple[dict, list[str]]]) -> None:
    """Rounds: in each size the turns of a round, in its order, each turn's cells on a fresh store. `asked`: the systems by their names; one
    that could not be built ends the run before it begins."""
    if HASHICORP in asked:
        try:
            binary("hr-hashicorp-raft")
        except FileNotFoundError as error:
            raise SystemExit(f"{error}\nWithout {HASHICORP} the others are measured") from error
    under_way.expect(len(cells) * arguments.rounds)
    for number in range(1, arguments.rounds + 1):
        for replicas in map(int, arguments.replicas):
            with Lab(tag, replicas=replicas) as lab:
                for of_turn in filter(None, turns(replicas, number)):
                    system, settings = store(of_turn[0])
                    with running(system, lab, settings) as up:
                        for cell in of_turn:
                            if turn := under_way.turn(number, **dataclasses.asdict(cell)):
                                result, load = measure_cell(lab, up, cell)
                                turn.done({**result, "config": {**up.config, "load": load}})
