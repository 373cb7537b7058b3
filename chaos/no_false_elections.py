# SPDX-License-Identifier: Apache-2.0
"""No living node is taken for dead: the store and its proxy as `./dev chaos leader-kill` runs them (the same
configuration, whose hash is in the row), under all the load that closed-loop clients can bring and two busy processes for
each processor, nodes at the priority that the shipped unit gives them. For ten minutes there must be no election, and no
leader may resign.
"""

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from bench import experiment, store_load
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most
from bench.replicas import MAX_SECONDS, stress
from bench.stopping import beside
from chaos.systems import Settings, running
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import Cluster
from deploy.lab.data_dirs import MODES
from deploy.lab.servers.hedgerow_node import SERVE_PORT
from deploy.lab.unit_priority import command_prefix
from deploy.lab.waiting import until

NAME = "chaos-no-false-elections"
TAG = "chaosnfe"
STRESS_PER_CPU = 2
WANTED_SECONDS = 600
# Most of them read: the log is kept in memory until there are snapshots, and ten minutes of nothing but puts are gigabytes.
CLIENTS = {"put": 16, "get": 48}
_LEFT_OVER_S = 30  # for everything else, so that no busy process ends before the load
_LOOK_EVERY_S = 2.0
_MEMORY_LEFT_KIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the nodes say, all together. Counters of a node that does not answer are missing, and it is asked again."""

    term: int
    won: int  # elections, since the nodes started
    resigned: int  # datagrams with RESIGN, sent by clocks and heard by nodes: many for each leader
    quorum_checks: int = 0  # times that a leader heard no majority and asked whether it may go on

    @classmethod
    def of(cls, statuses: list[dict]) -> "Seen":
        counters = [each.get("counters", {}) for each in statuses]
        return cls(term=max(int(each["term"]) for each in statuses),
                   won=sum(int(each.get("elections_won", 0)) for each in counters),
                   resigned=sum(int(value) for each in counters for key, value in each.items()
                                if "resign" in key and not key.startswith("elections_begun.")),
                   quorum_checks=sum(int(each.get("leader_quorum_checks", 0)) for each in counters))


def elections(first: Seen, last: Seen) -> int:
    """That were begun, or won: a term without a winner is one too many as well."""
    return max(last.term - first.term, last.won - first.won)


def look(cluster: Cluster, within_s: float = 10.0) -> list[dict]:
    def statuses() -> list[dict] | None:
        found = [node.status() for node in cluster.nodes]
        return None if None in found else found

    return until(statuses, within_s, lambda: "a node does not say how it is")


def watch(cluster: Cluster, first: Seen, going_on: Callable[[], bool]) -> tuple[Seen, list[dict]]:
    """Until the loads have ended; what changed when, in seconds from the beginning."""
    started, last, changes = time.monotonic(), first, []
    while going_on():
        time.sleep(_LOOK_EVERY_S)
        statuses = look(cluster)
        now = Seen.of(statuses)
        if now != last:
            why = told(statuses, 2 * _LOOK_EVERY_S)
            changes.append({"at_s": round(time.monotonic() - started, 1), **dataclasses.asdict(now), "told": why})
            print("\n    ".join([f"  after {changes[-1]['at_s']:.0f} s: {now}", *why]), flush=True)
        last = now
        if memory_available_kib() < _MEMORY_LEFT_KIB:
            raise RuntimeError("less than 1 GiB of memory is left: the log is kept whole in memory; --seconds shortens the run")
    return last, changes


def told(statuses: list[dict], within_s: float) -> list[str]:
    """What the nodes say about it themselves: why one wanted to be elected, and when its loop stood still. They keep the last
    of these, so a late question finds nothing of it."""
    return [f"node {status['node']}, {int(incident['ago_ns']) / 1e9:.3f} s ago: {incident['what']}"
            for status in statuses for incident in status.get("incidents", []) if int(incident["ago_ns"]) < within_s * 1e9]


def memory_available_kib() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def load_command(operation: str, clients: int, seconds: float) -> list[str]:
    return [str(binary("hr-kv-load")), f"--server={VIP_KV[0]}:{SERVE_PORT}", f"--clients={clients}",
            f"--operation={operation}", "--keys=100", "--warm_up=0s", f"--measured={seconds:g}s"]


def row_of(settings: Settings, first: Seen, last: Seen, reports: dict[str, dict]) -> dict:
    """`reports` are the loads', by operation."""
    found = {"system": "hedgerow", "mode": settings.mode, "replicas": settings.replicas,
             "seconds": min(report["seconds"] for report in reports.values()), "stress_per_cpu": STRESS_PER_CPU,
             "elections": elections(first, last), "resigns": last.resigned - first.resigned,
             "quorum_checks": last.quorum_checks - first.quorum_checks}
    for operation, report in reports.items():
        latency = store_load.latency_of(report)
        found |= {f"{operation}s_per_s": report["answered"] / report["seconds"],
                  f"{operation}_p50_us": latency.quantile(0.5) / 1e3, f"{operation}_p99_us": latency.quantile(0.99) / 1e3}
    return found | {"failed": sum(report["failed"] for report in reports.values()),
                    "lost": sum(report["lost"] for report in reports.values())}


def must_show(rows: list[dict]) -> list[Check]:
    checks = []
    for row in rows:
        mode = row["mode"]
        checks += [at_least(f"{mode}: seconds under load", row["seconds"], WANTED_SECONDS, needs_full=True),
                   at_least(f"{mode}: puts per second meanwhile", row["puts_per_s"], 1),
                   at_most(f"{mode}: elections", row["elections"], 0),
                   at_most(f"{mode}: leaders that resigned", row["resigns"], 0)]
    return checks


def one_mode(lab: Lab, settings: Settings, arguments: argparse.Namespace) -> dict:
    with contextlib.ExitStack() as stack:
        up = stack.enter_context(running("hedgerow", lab, settings))
        # Elections of the beginning are no fault; those of the busy processes' beginning are.
        up.cluster.wait_ready()
        first = Seen.of(look(up.cluster))
        stack.enter_context(stress(lab.client, STRESS_PER_CPU))
        with beside(lab, len(CLIENTS)) as pool:
            loads = {operation: pool.submit(store_load.run_load, lab, load_command(operation, clients, arguments.seconds))
                     for operation, clients in CLIENTS.items()}
            last, changes = watch(up.cluster, first, lambda: not all(load.done() for load in loads.values()))
            reports = {operation: load.result().report for operation, load in loads.items()}
        return {"row": row_of(settings, first, last, reports), "first": dataclasses.asdict(first), "last": dataclasses.asdict(last),
                "changes": changes, "reports": reports, "status": [node.status() for node in up.cluster.nodes],
                "proxy": up.proxy.status_at_rest(), "config": up.config}


def measure(running_: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab(arguments.lab, replicas=arguments.replicas) as lab:
        for turn in running_.turns(mode=arguments.mode):
            turn.done(one_mode(lab, Settings(turn["mode"], arguments.replicas), arguments))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["mode"], must_show, experiment.own_rows,
    {"mode": "mode", "replicas": "replicas", "seconds": "seconds", "elections": "elections", "resigns": "resigns",
     "quorum_checks": "quorum checks", "puts_per_s": "puts/s", "gets_per_s": "gets/s", "put_p50_us": "put p50 us",
     "put_p99_us": "p99 us", "failed": "failed", "lost": "lost"}, tag=TAG,
    measure=measure, rounds=1, notes=lambda _: {"clients": CLIENTS, "priority": command_prefix()}, options=(
        # The load bounds itself to 10 minutes, a busy process to MAX_SECONDS.
        experiment.number("--seconds", WANTED_SECONDS, 0.1, min(600, MAX_SECONDS - _LEFT_OVER_S), help=f"of load; {WANTED_SECONDS} are wanted"),
        experiment.some("--mode", MODES, ["memory"]), ("--replicas", {"type": int, "choices": (3, 5, 7), "default": 3})))
