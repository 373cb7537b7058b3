# SPDX-License-Identifier: Apache-2.0
"""How long a heartbeat waits for its answer: from a node's kernel programs (`xdp`), from the same node's process with that
offload off (`process`), and from a process that only echoes datagrams of the same length (`echo`); on an idle machine and with
two busy processes for each processor. hr-load stands in for the node's leader in a cluster of two, seals its heartbeats as a
leader does, and runs under SCHED_FIFO: what waits for a processor is the answer, never the question.
"""

import argparse
import contextlib
import json
from collections.abc import Iterator

from bench import experiment, series
from bench.histogram import of_client, percentiles
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most
from bench.replicas import BenchServer, stress
from deploy.lab import Lab
from deploy.lab.data_dirs import DataDirs
from deploy.lab.lab import XdpOnSwitch
from deploy.lab.programs import bpf_object
from deploy.lab.servers.hedgerow_node import PEER_PORT, HedgerowNode, NodeSettings
from deploy.lab.waiting import until
from plots import looks
from plots.charts import Charts, Tails

NAME = "heartbeat"
TAG = "benchhb"
SERVERS, LOADS = ("xdp", "process", "echo"), ("idle", "stress")
STRESS_PER_CPU = 2
FIFO_PRIORITY = 50
ECHO_PORT = 4802
HEARTBEAT_BYTES = 88  # of a header and hr_peer_heartbeat (bpf/abi/peer_abi.h)
_WARM_UP_S = 1.0  # a node under stress has to hear of its leader, and to open its kernel part
_UP_WITHIN_S = 10.0
_PERCENTILES = ("min", "mean", "p50", "p95", "p99", "max")


def figures(client: dict) -> dict:
    summary = client["summary"]
    return {"n": summary["n"], "lost": summary["lost"], "others": summary["stray"] + summary["duplicates"],
            "send_lag_p99_us": summary["send_lag_p99_us"], **percentiles([of_client({"client": client})], "us", _PERCENTILES)}


def row_of(load: str, server: str, runs: list[dict]) -> dict:
    """Percentiles are of all runs' questions together, with the smallest and the largest of a run."""
    answered = sum(each["n"] - each["lost"] for each in runs)
    by_kernel = None if server == "echo" else sum(each["by_kernel"] for each in runs) / max(1, answered)
    return {"server": server, "load": load, "runs": len(runs), "n": sum(each["n"] for each in runs),
            "lost": sum(each["lost"] for each in runs), **percentiles(map(of_client, runs), "us", _PERCENTILES),
            **{f"{name}_us_{label}": pick(each[f"{name}_us"] for each in runs) for name in _PERCENTILES
               for label, pick in (("min", min), ("max", max))},
            "by_kernel": by_kernel, "xdp": runs[0]["xdp"], "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    found = {(row["server"], row["load"]): row for row in rows}
    xdp, echo = (found.get((server, "stress")) for server in ("xdp", "echo"))
    idle = found.get(("xdp", "idle"))
    return [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10),
            at_least("stress: p99 of the echoing process, times that of XDP",
                     echo["p99_us"] / xdp["p99_us"] if xdp and echo else None, 15),
            # Otherwise it is not XDP that was measured.
            at_least("idle: share of the heartbeats that the kernel answered", idle and idle["by_kernel"], 0.99),
            at_least("stress: share of the heartbeats that the kernel answered", xdp and xdp["by_kernel"], 0.9),
            at_most("XDP: heartbeats without an answer", xdp["lost"] + idle["lost"] if xdp and idle else None, 0)]


@contextlib.contextmanager
def serving(lab: Lab, server: str) -> Iterator[tuple[list[str], HedgerowNode | None]]:
    """What hr-load must be told, and the node, if it is one."""
    host, leader = lab.replicas
    if server == "echo":
        with BenchServer(host, "hr-echo-server", [f"--listen={host.ipv4}:{ECHO_PORT}"]):
            yield [f"--target={host.ipv4}:{ECHO_PORT}", f"--request_bytes={HEARTBEAT_BYTES}"], None
        return
    settings = NodeSettings(offloads=(("xdp", "native"),) if server == "xdp" else (("heartbeat", "off"),))
    with (DataDirs(TAG, "memory") as data, XdpOnSwitch(lab, [host], bpf_object("node_pass")),
          HedgerowNode(host, 1, lab.replicas, data.path / host.name, settings) as node):
        _wait_until_up(node, server == "xdp")
        yield [f"--target={host.ipv4}:{PEER_PORT}", f"--from={leader.ipv4}:{PEER_PORT}", "--workload=heartbeat",
               f"--cluster_id={settings.cluster_id}", f"--cluster_key={settings.cluster_key}"], node


def _wait_until_up(node: HedgerowNode, wanted: bool) -> None:
    """With the offload as it was asked for."""
    def said() -> list[dict]:
        return [each for each in (node.status() or {}).get("offloads", []) if each["name"] == "heartbeat"]

    until(lambda: any(bool(each.get("on")) == wanted for each in said()), _UP_WITHIN_S,
          lambda: f"the node's heartbeat offload is not {'on' if wanted else 'off'}: {said()}\n{node.log_tail()}")


def answered_by_kernel(status: dict) -> int:
    return int(status.get("counters", {}).get("kernel.heartbeat_answered", 0))


def measure_cell(lab: Lab, load: str, server: str, arguments: argparse.Namespace) -> dict:
    """One run: a fresh server."""
    warm_up = round(_WARM_UP_S * 1e6 / arguments.interval_us)
    with serving(lab, server) as (target, node), stress(lab.client, STRESS_PER_CPU if load == "stress" else 0):
        flags = ["--loop=open", f"--rate={1e6 / arguments.interval_us:g}", f"--requests={arguments.questions}", f"--warmup={warm_up}",
                 "--poll_ahead=50us"]
        done = lab.replicas[1].run(["chrt", "--fifo", str(FIFO_PRIORITY), binary("hr-load"), *target, *flags],
                                   timeout=120 + arguments.questions * 0.01)
        status = node.status() if node else None
    client = json.loads(done.stdout)
    config = {"server": server, "load": load, "client": flags, "fifo": FIFO_PRIORITY,
              "node": {key: node.config[key] for key in ("durability", "offloads") if key in node.config} if node else None}
    xdp = None
    if node is not None:
        xdp = next(each.get("detail", "") for each in status["offloads"] if each["name"] == "heartbeat")
    # Some of the warm-up are among what the kernel counts: never more than there were, so this is never too much.
    by_kernel = max(0, answered_by_kernel(status) - warm_up) if status else None
    return {**figures(client), "by_kernel": by_kernel, "xdp": xdp, "client": client, "status": status, "config": config}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab(TAG, replicas=2) as lab:
        for turn in running.turns(load=arguments.loads, server=arguments.servers):
            turn.done(measure_cell(lab, turn["load"], turn["server"], arguments))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("load", "server"), must_show, lambda *cell: [row_of(*cell)],
    {"load": "load", "server": "server", "runs": "runs", "n": "n", "lost": "lost", "min_us": "min us", "mean_us": "mean", "p50_us": "p50", "p95_us": "p95",
     "p99_us": "p99", "p99_us_min": "min", "p99_us_max": "max", "max_us": "slowest", "by_kernel": "by kernel", "xdp": "XDP"},
    Charts("How long a heartbeat waits for its answer", looks.HEARTBEATS, "server",
           (Tails(panel=("load",), key=("load", "server"), unit="us",
                  titles={"idle": "idle machine", "stress": "two busy processes for each processor"}),),
           series.tails(lambda run: [(f"{run['load']}-{run['server']}", of_client(run))], "us", spreads=True)),
    measure=measure, options=(
        experiment.some("--servers", SERVERS), experiment.some("--loads", LOADS),
        experiment.number("--questions", 10_000, 1, 100_000, help="of each run"),
        experiment.number("--interval-us", 1000, 1.0, 1e6, help="from question to question")))
