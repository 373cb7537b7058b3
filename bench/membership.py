# SPDX-License-Identifier: Apache-2.0
"""What clients see of a cluster whose members change: three nodes behind the proxy under 2,000 requests/s, first left alone; then a
fourth is added, catches up by a snapshot and is promoted, and one of the three is removed. With the kernel's offloads and
without. Each run is judged like chaos's: nothing lost, nothing done twice; and nothing is sent to who has left.
"""

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator

from bench import experiment, product, series
from bench.histogram import Histogram, percentiles
from bench.history import figures
from bench.outcome import Check, at_least, at_most
from chaos.block import FINAL_READ_WITHIN_S, final_of
from chaos.cell import errors_of
from chaos.judgement import judge_twice, require_checkers
from chaos.load_process import sending
from chaos.systems import Running, Settings, running
from chaos.unavailable import read_history
from deploy.lab import Lab
from deploy.lab.members import Delivered, Operator
from deploy.lab.servers.hedgerow_node import NO_OFFLOADS, PEER_PORT, HedgerowNode
from plots import looks
from plots.charts import Charts, Tails

NAME = "membership"
TAG = "membership"
OFFLOADS = ("on", "off")
PHASES = ("undisturbed", "changing")
MODES = ("memory", "disk")
REPLICAS = 3
RATE = 2_000  # two clients with a request each millisecond, as hr-kv-chaos comes
WORSE_BY = 3.0
_PAUSE_S = 1.0  # between an operator's steps, and before the first
_SILENCE_S = 2.0  # in which nothing may come for who has left
_LAST_WORD_S = 0.2  # until the last member knows that it is committed
_MOVED_PORT = PEER_PORT + 100
_CHANGES_WITHIN_S = 120.0
_SUMS = ("n", "lost", "errors", "duplicates", "acked_lost", "double_applied", "not_linearizable", "by_snapshot", "promoted",
         "removed", "to_removed")


@dataclasses.dataclass
class Changes:
    """What was done to the members, and what shows it."""

    steps: list[dict] = dataclasses.field(default_factory=list)  # what, begin_ns, end_ns: on the load's clock
    by_snapshot: int = 0  # the new one has installed one
    promoted: int = 0
    removed: int = 0
    sent_before: int = 0  # to who leaves; else the next figure would show nothing
    to_removed: int = 0  # datagrams and segments for its port, after it has left
    moved: int = 0
    leader_removed: int = 0
    gone: list[HedgerowNode] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        time.sleep(_PAUSE_S)
        begin_ns = time.monotonic_ns()
        yield
        self.steps.append({"what": what, "begin_ns": begin_ns, "end_ns": time.monotonic_ns()})


def change(lab: Lab, up: Running, *, more: bool = False) -> Changes:
    """As docs/cluster.md tells an operator to. `more`: another one moves to another port, and the leader is removed."""
    done, operator, (joins,) = Changes(), Operator(up.cluster), up.joining
    leader = operator.leader()
    leaves, stays = (node for node in up.cluster.nodes if node is not leader)
    with Delivered(lab, leaves.host) as delivered:
        with done.step("start"):
            joins.start()
        with done.step("add"):
            operator.add(joins)
        with done.step("catch up"):
            operator.wait_until_caught_up(joins)
        done.by_snapshot = int(_counter(joins, "snapshots.installed") > 0)
        with done.step("promote"):
            operator.change("promote", joins.number)
            up.proxy.drain(joins.host.name, undo=True)
        done.promoted = int(operator.role(joins) == "voter")
        done.sent_before = delivered.count()
        with done.step("remove"):
            up.proxy.drain(leaves.host.name)
            operator.change("remove", leaves.number)
        done.gone.append(leaves)
        done.removed = int(operator.role(leaves) in ("left", "none"))
        time.sleep(_LAST_WORD_S)
        before = delivered.count()
        time.sleep(_SILENCE_S)
        done.to_removed = delivered.count() - before
    with done.step("stop"):
        leaves.host.stop(leaves.process)
    if more:
        _change_more(done, operator, stays)
    time.sleep(_PAUSE_S)
    return done


def _change_more(done: Changes, operator: Operator, moves: HedgerowNode) -> None:
    with done.step("move"):
        operator.move(moves, _MOVED_PORT)
    done.moved = int(_address_of(operator, moves).endswith(f":{_MOVED_PORT}"))
    operator.wait_until_caught_up(moves)
    leader = operator.leader()
    with done.step("remove the leader"):
        operator.change("remove", leader.number)
    done.leader_removed = int(operator.leader() is not leader and operator.role(leader) in ("left", "none"))
    done.gone.append(leader)


def _address_of(operator: Operator, node: HedgerowNode) -> str:
    members = (operator.leader().status() or {}).get("members", [])
    return next((member["address"] for member in members if int(member["id"]) == node.number), "")


def _counter(node: HedgerowNode, name: str) -> int:
    return int((node.status() or {}).get("counters", {}).get(name, 0))


def run_once(lab: Lab, up: Running, seconds: float, seed: int, *, more: bool = False) -> dict:
    """Undisturbed for so long, then changing; one load and one history."""
    folder = lab.client.scratch("load")
    history, report_file = folder / "history.csv", folder / "report.json"
    argv = [*up.load, f"--seconds={seconds + _CHANGES_WITHIN_S:g}", f"--seed={seed}", f"--history={history}",
            f"--report={report_file}"]
    up.proxy.drain(up.joining[0].host.name)  # it is no member yet
    with sending(lab, argv, folder / "load.log") as load:
        time.sleep(_PAUSE_S)
        calm_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_of_calm_ns = time.monotonic_ns()
        # From now on no node's log reaches back to the beginning.
        for node in up.cluster.nodes:
            node.snapshot()
        begin_ns = time.monotonic_ns()
        done = change(lab, up, more=more)
        end_ns = time.monotonic_ns()
        if load.poll() is not None:
            raise RuntimeError("the load ended before the changes did")
    requests = read_history(history)
    phases = {"undisturbed": (calm_ns, end_of_calm_ns), "changing": (begin_ns, end_ns)}
    final = final_of(history)
    lab.client.run([*_final_read(up, done), f"--of={history}", f"--history={final}"], timeout=FINAL_READ_WITHIN_S)
    verdict = judge_twice(history, final)
    report = json.loads(report_file.read_text(encoding="ascii"))
    status = up.proxy.status_at_rest()
    return {"phases": {name: figures([r for r in requests if begin <= r.intended_ns < end])
                       for name, (begin, end) in phases.items()},
            "errors": errors_of(report), "duplicates": report["duplicates"], "acked_lost": verdict["acked_lost"],
            "double_applied": verdict["double_applied"], "not_linearizable": int(not verdict["linearizable"]),
            "by_snapshot": done.by_snapshot, "promoted": done.promoted, "removed": done.removed,
            "sent_before": done.sent_before, "to_removed": done.to_removed, "moved": done.moved, "leader_removed": done.leader_removed, "steps": done.steps, "begin_ns": begin_ns,
            "offloads_on": sorted(each["name"] for each in up.cluster.nodes[-1].offloads() if each.get("on")),
            "report": report, "verdict": verdict, "argv": argv, "proxy": product.service_figures(status, "kv"),
            "nodes": {node.number: node.status() for node in up.cluster.nodes}}


def _final_read(up: Running, done: Changes) -> list[str]:
    servers = ",".join(node.endpoint for node in up.cluster.nodes if node not in done.gone)
    return [f"--servers={servers}" if part.startswith("--servers=") else part for part in up.final]


@contextlib.contextmanager
def cluster_of_three(lab: Lab, mode: str, offloads: str) -> Iterator[Running]:
    settings = Settings(mode, REPLICAS, short_logs=True, joining=1, offloads=() if offloads == "on" else NO_OFFLOADS)
    with running("hedgerow", lab, settings) as up:
        try:
            yield up
        finally:
            for node in up.joining:
                node.stop()


def row_of(mode: str, offloads: str, phase: str, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together; counts are sums. What is not of one phase stands in both rows."""
    both = [{**run, **run["phases"][phase]} for run in runs]
    return {"mode": mode, "offloads": offloads, "phase": phase, "runs": len(runs),
            **percentiles((Histogram.from_json(run["latency"]) for run in both), of=("p50", "p99", "p999", "max")),
            **{key: sum(run[key] for run in both) for key in _SUMS},
            "sent_before": min(run["sent_before"] for run in both),
            "kernel_part": min(len(run["offloads_on"]) for run in both), "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    found = {(row["mode"], row["offloads"], row["phase"]): row for row in rows}
    cells = sorted({(row["mode"], row["offloads"]) for row in rows})
    checks = [at_least("offloads on and off, both measured", len({offloads for _, offloads in cells}), len(OFFLOADS)),
              at_least("runs of each row", min((row["runs"] for row in rows), default=0), 5)]
    for mode, offloads in cells:
        of = f"{mode}, offloads {offloads}"
        calm, rough = (found[mode, offloads, phase] for phase in PHASES)
        checks += [at_most(f"{of}: p99.9, changing / undisturbed", rough["p999_ms"] / calm["p999_ms"], WORSE_BY),
                   at_most(f"{of}: requests without an answer or with an error", rough["errors"], 0),
                   at_most(f"{of}: acknowledged writes lost", rough["acked_lost"], 0),
                   at_most(f"{of}: writes done twice", rough["double_applied"], 0),
                   at_most(f"{of}: histories that are not linearizable", rough["not_linearizable"], 0),
                   at_least(f"{of}: nodes that caught up by a snapshot", rough["by_snapshot"], rough["runs"]),
                   at_least(f"{of}: nodes promoted", rough["promoted"], rough["runs"]),
                   at_least(f"{of}: nodes removed", rough["removed"], rough["runs"]),
                   at_least(f"{of}: packets to who leaves, before", rough["sent_before"], 1),
                   at_most(f"{of}: packets to the member that has left", rough["to_removed"], 0)]
        wanted = 1 if offloads == "on" else 0
        checks.append(Check(f"{of}: the kernel takes part", "yes" if wanted else "no", str(rough["kernel_part"]),
                            (rough["kernel_part"] > 0) == bool(wanted)))
    return checks


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    require_checkers()
    with Lab(TAG, replicas=REPLICAS + 1) as lab:
        for turn in running.turns(mode=arguments.modes, offloads=arguments.offloads):
            with cluster_of_three(lab, turn["mode"], turn["offloads"]) as up:
                turn.done({**run_once(lab, up, arguments.seconds, turn.round), "config": {**up.config, "seconds": arguments.seconds, "rate": RATE}})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("mode", "offloads"), must_show, lambda mode, offloads, runs: [row_of(mode, offloads, phase, runs) for phase in PHASES],
    {"mode": "mode", "offloads": "offloads", "phase": "phase", "runs": "runs", "n": "n", "p50_ms": "p50 ms",
     "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "max ms", "errors": "errors", "acked_lost": "lost",
     "double_applied": "twice", "by_snapshot": "by snapshot", "promoted": "promoted", "removed": "removed", "to_removed": "to the removed"},
    Charts("2,000 requests/s through the proxy while the members change", looks.PHASES, "phase",
           (Tails("offloads", panel=("mode", "offloads"), key=("mode", "offloads", "phase")),),
           series.tails(lambda run: [(f"{run['mode']}-{run['offloads']}-{phase}", Histogram.from_json(of["latency"]))
                                     for phase, of in run["phases"].items()])),
    measure=measure, options=(
        experiment.some("--modes", MODES, ["memory"]), experiment.some("--offloads", OFFLOADS),
        experiment.number("--seconds", 15.0, 2.0, 600.0, help="left alone; the changes take as long as they take")))
