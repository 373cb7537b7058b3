# SPDX-License-Identifier: Apache-2.0
"""What hedging does for a replicated store whose leader falters without dying: the leader stops for 400 ms in every 5 s;
or 2 % of the packets between the client and the leader are lost, and no others. Gets and puts, 2,000/s in an open loop,
by a client that does not hedge (`baseline`), one that does (`app-cc`), and one that does not, behind the proxy
(`wheel`), which may send two copies at once while nodes are idle (`at-once`: idle_copies: 30%).
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

from bench import experiment, history, product, series
from bench.histogram import Histogram, percentiles
from bench.outcome import Check, at_least, at_most, median
from chaos import unavailable
from chaos.load_process import sending
from chaos.systems import CLIENT_TIMEOUT_S, Running, Settings
from chaos.systems import running as running_system
from chaos.unavailable import Event, Request
from deploy.lab import Lab
from deploy.lab.cluster import Cluster
from deploy.lab.network_faults import NetworkFaults
from deploy.lab.servers.hedgerow_node import HedgerowNode
from deploy.lab.servers.store_node import StoreNode
from plots import looks
from plots.charts import Charts, Tails

NAME = "raft-hedge"
TAG = "rafthedge"
VARIANTS, OPERATIONS = ("stall", "loss"), ("get", "put")
MODES = {"baseline": "noproxy-app", "app-cc": "noproxy-app", "wheel": "hedgerow", "at-once": "hedgerow"}  # as chaos names them
PROXIED = [mode for mode, system in MODES.items() if system == "hedgerow"]
DELAY_MS = 10.0  # the shipped default
AT_ONCE_P99_MS = 0.7  # under loss: the second copy has left already
STALL_S, EVERY_S, LOSS = 0.4, 5.0, 0.02
REPLICAS = 3
_FIRST_STALL_S, _HAND_BACK_BEFORE_S = 2.5, 1.5
_SUMS = ("n", "lost", "errors", "duplicates", "stalls", "leader_stalls", "packets_lost", "strayed")


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What was done to the leader during a run."""

    stalls: list[Event]
    leader_stalls: int = 0  # of them, those in which the node led when it was stopped
    packets_lost: int = 0
    strayed: bool = False  # the leader changed by itself, so that not all losses were the leader's


def row_of(mode: str, variant: str, operation: str, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together, those included in which the leader changed by itself (`strayed`); extra load is the
    median, counts are sums. What a run counts for both operations (extra_load, errors, duplicates, stalls, packets_lost) is in both rows."""
    both = [{**run, **run["operations"][operation]} for run in runs]
    return {"mode": mode, "variant": variant, "operation": operation, "runs": len(runs),
            **{key: sum(run[key] for run in both) for key in _SUMS},
            **percentiles((Histogram.from_json(run["latency"]) for run in both), of=("p50", "p99", "p999", "max")),
            "extra_load": median(run["extra_load"] for run in both),
            "bites_least": min(run["leader_stalls" if variant == "stall" else "packets_lost"] for run in both),
            "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    def p99_ms(mode: str, variant: str, operation: str) -> float | None:
        return next((row["p99_ms"] for row in rows if (row["mode"], row["variant"], row["operation"]) ==
                     (mode, variant, operation)), None)

    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10)]
    for operation in OPERATIONS:
        checks += [at_most(f"loss: wheel {operation} p99 (delay + 2 ms)", p99_ms("wheel", "loss", operation),
                           DELAY_MS + 2, "ms"),
                   at_most(f"loss: at-once {operation} p99", p99_ms("at-once", "loss", operation),
                           AT_ONCE_P99_MS, "ms"),
                   at_least(f"stall: baseline {operation} p99", p99_ms("baseline", "stall", operation), 300, "ms"),
                   at_most(f"stall: wheel {operation} p99", p99_ms("wheel", "stall", operation), 80, "ms")]
    wheel = [row for row in rows if row["mode"] in PROXIED]
    for variant, least, of in (("stall", 1, "stalls of a leader"), ("loss", 10, "packets lost")):
        bites = [row.get("bites_least") for row in rows if row["variant"] == variant]
        if bites:
            checks.append(at_least(f"{variant}: {of} in the run with the fewest", None if None in bites else min(bites), least))
    checks.append(at_most("loss: runs in which the leader changed by itself", sum(row["strayed"] for row in rows), 0))
    checks.append(at_most("proxies: requests without an answer or with an error",
                          sum(row["lost"] for row in wheel) if wheel else None, 0))
    return checks


def figures(requests: list[Request]) -> dict[str, dict]:
    """By operation."""
    return {operation: history.figures(request for request in requests if request.write == (operation == "put"))
            for operation in OPERATIONS}


def load_command(up: Running, leader: StoreNode, mode: str, seconds: float, seed: int, folder: Path) -> list[str]:
    # The proxy finds the leader by itself; a client that has none is told, and where a follower would pass requests on,
    # talks to it directly. Not hedging is one send by time.
    direct = [] if mode in PROXIED else [f"--first_leader={leader.number - 1}"]
    hedging = ["--attempts=1"] if mode == "baseline" else []
    return [*up.load, *direct, *hedging, "--increments_percent=0", "--puts_percent=50", f"--seconds={seconds:g}",
            f"--seed={seed}", f"--history={folder / 'history.csv'}", f"--report={folder / 'report.json'}"]


def stall_leader(cluster: Cluster, node: HedgerowNode, seconds: float) -> Disturbance:
    """SIGSTOP for `node` at fixed times from now on. Each time another one takes over, so leadership is handed back well
    before the next: the client's leader is the one that stops, in every mode."""
    begun, stalls, led, at_s = time.monotonic(), [], 0, _FIRST_STALL_S
    while at_s + STALL_S < seconds:
        _sleep_until(begun + at_s - _HAND_BACK_BEFORE_S)
        leader = cluster.leader()
        if leader is not None and leader is not node:
            leader.transfer(node.number)
        _sleep_until(begun + at_s)
        led += cluster.leader() is node
        node.stall()
        try:
            begin_ns = time.monotonic_ns()
            time.sleep(STALL_S)
        finally:
            node.resume()
        stalls.append(Event(begin_ns, time.monotonic_ns()))
        at_s += EVERY_S
    return Disturbance(stalls, led)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def disturb(lab: Lab, cluster: Cluster, leader: HedgerowNode, variant: str, seconds: float, argv: list[str],
            log: Path) -> Disturbance:
    """One run of the load."""
    if variant == "stall":
        with sending(lab, argv, log, to_its_end_s=seconds):
            return stall_leader(cluster, leader, seconds)
    term = leader.state().term
    between = (leader.host.name, lab.client.name)
    with NetworkFaults(lab) as faults:
        faults.change([between, between[::-1]], seed=term, lost=LOSS)
        with sending(lab, argv, log, to_its_end_s=seconds):
            pass
        state = leader.state()
        lost = sum(link.lost for link in faults.counted().values())
        return Disturbance([], packets_lost=lost, strayed=state is None or not state.leads or state.term != term)


def run_once(lab: Lab, up: Running, mode: str, variant: str, arguments: argparse.Namespace, seed: int) -> dict:
    folder = lab.client.scratch("load")
    leader, before = up.cluster.wait_ready(), arrived(up.cluster)
    argv = load_command(up, leader, mode, arguments.seconds, seed, folder)
    done = disturb(lab, up.cluster, leader, variant, arguments.seconds, argv, folder / "load.log")
    up.cluster.wait_ready()
    reached = arrived(up.cluster) - before
    report = json.loads((folder / "report.json").read_text(encoding="ascii"))
    requests = unavailable.read_history(folder / "history.csv")
    costs = unavailable.costs(requests, done.stalls, int(CLIENT_TIMEOUT_S * 1e9))
    status = up.proxy.status_at_rest() if up.proxy else None
    return {"operations": figures(requests), "errors": sum(report["errors"].values()),
            "duplicates": report["duplicates"], "extra_load": (reached - report["opens"]) / report["sent"] - 1,
            "stalls": len(done.stalls), "leader_stalls": done.leader_stalls, "packets_lost": done.packets_lost, "strayed": int(done.strayed),
            "costs": [dataclasses.asdict(cost) for cost in costs], "report": report, "argv": argv,
            "proxy": product.service_figures(status, "kv") if status else None, "status": status,
            "nodes": {node.number: node.status() for node in up.cluster.nodes}}


def arrived(cluster: Cluster) -> int:
    """Requests that reached the nodes so far."""
    statuses = [node.status() for node in cluster.nodes]
    return sum(status["counters"].get("hkv_requests", 0) for status in statuses if status is not None)


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab(TAG, replicas=REPLICAS) as lab:
        for turn in running.turns(variant=arguments.variants, mode=arguments.modes):
            mode, variant = turn["mode"], turn["variant"]
            settings = Settings("memory", REPLICAS, f"{DELAY_MS:g}ms", idle_copies="30%" if mode == "at-once" else "0%")
            # A fresh store for each: its log is not cut yet.
            with running_system(MODES[mode], lab, settings) as up:
                record = run_once(lab, up, mode, variant, arguments, turn.round)
            turn.done({**record, "config": {**up.config, "mode": mode, "variant": variant, "seconds": arguments.seconds,
                                            "stall": [STALL_S, EVERY_S] if variant == "stall" else None,
                                            "loss": LOSS if variant == "loss" else None}})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("variant", "mode"), must_show,
    lambda variant, mode, runs: [row_of(mode, variant, operation, runs) for operation in OPERATIONS],
    {"variant": "variant", "mode": "mode", "operation": "op", "runs": "runs", "n": "n", "lost": "lost", "p50_ms": "p50 ms", "p99_ms": "p99 ms",
     "p999_ms": "p99.9 ms", "max_ms": "max ms", "extra_load": "extra load", "duplicates": "twice", "leader_stalls": "stalls",
     "packets_lost": "packets lost", "strayed": "strayed"},
    Charts("A store whose leader falters without dying", looks.MODES, "mode",
           (Tails(panel=("variant", "operation"), key=("variant", "operation", "mode"),
                  titles={"stall": "the leader stops now and then", "loss": "packets of the leader are lost"}),),
           series.tails(lambda run: [(f"{run['variant']}-{operation}-{run['mode']}", Histogram.from_json(of["latency"]))
                                     for operation, of in run["operations"].items()])),
    measure=measure, options=(
        experiment.some("--variants", VARIANTS), experiment.some("--modes", MODES),
        experiment.number("--seconds", 20.0, _FIRST_STALL_S + STALL_S + 0.1, 600, help="length of each run")))
