# SPDX-License-Identifier: Apache-2.0
"""The main demo, `./dev demo`: a replicated store of three servers whose leader is killed three times while clients
write and read, 2,000 operations a second. First without anything, then with hedging in the application, then with the
first clients again, unchanged, behind Hedgerow.

Says what happens while it happens, ends with a table, and draws results/demo/demo.png. Exits 0 only when it worked, and
takes everything down, after Ctrl-C too; with --keep it leaves the last cluster up and says how to look around.
"""

import argparse
import contextlib
import dataclasses
import subprocess
import json
from pathlib import Path

from bench import experiment, product, series
from bench.histogram import Histogram
from bench.history import figures as history_figures
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most
from chaos.cell import errors_of
from chaos.systems import CLIENT_TIMEOUT_S, Running, Settings
from chaos.systems import running as running_system
from chaos.unavailable import read_history
from deploy.lab import Lab
from demo import kv_kept, kv_run, stage
from demo.kv_progress import Progress
from plots import looks
from plots.charts import Charts, Tails, Waits

NAME = "demo"
STAGE = stage.Stage(tag="demo", instance="demo")
SETTINGS = Settings(mode="memory", replicas=3, hedge_delay="10ms")
# A bound for a machine in use; docs/figures.md has what an idle one shows.
_LONGEST_WAIT_MS = 1000


@dataclasses.dataclass(frozen=True)
class Way:
    system: str  # of chaos/systems.py
    label: str
    what: str


WAYS = (Way("noproxy-noretry", "no proxy, no retry",
            "The client knows one server, the first leader, and asks it once."),
        Way("noproxy-app", "hedging in the application",
            "The client knows all three servers, and asks another one when an answer takes 10 ms."),
        Way("hedgerow", "Hedgerow, client unchanged",
            "The first client again, asking once; the one address it knows is now Hedgerow's."))


def _series(folder: Path, summary: dict) -> tuple[dict, dict]:
    figures, found = {}, {}
    for row in summary["rows"]:
        run = json.loads((folder / "raw" / f"{row['system']}-01.json").read_text(encoding="ascii"))
        requests = read_history(folder / "raw" / f"{row['system']}.csv")
        figures[row["system"]] = history_figures(requests)
        latency = Histogram.from_json(figures[row["system"]].pop("latency"))
        start_ns = run["start_ns"]
        found[row["system"]] = {
            "kills_s": [[series.short((kill[at] - start_ns) / 1e9) for at in ("begin_ns", "end_ns")] for kill in run["kills"]],
            "tail_ms": series.tail(latency, 1e6),
            "slots": series.slots_of((((request.intended_ns - start_ns) / 1e9,
                                       (request.ended_ns - request.intended_ns) / 1e6 if request.ok else None)
                                      for request in requests), CLIENT_TIMEOUT_S * 1e3)}
    return figures, found


def lead_where_the_client_asks(up: Running) -> None:
    """A client that knows one server knows the one that leads, as long as nothing has happened: else chance would say
    whether a kill ever hits it."""
    known = up.cluster.nodes[0]
    if (leader := up.cluster.wait_ready()) is not known:
        subprocess.run([binary("hedgerow-node"), "transfer", "--socket", leader.socket, "--to", str(known.number)],
                       check=True, capture_output=True, timeout=20)


def row_of(way: Way, up: Running, done: kv_run.KvRun) -> dict:
    waits = [cost.unavailable_ms for cost in done.costs]
    verdict = done.verdict
    sound = verdict["linearizable"] and not verdict["acked_lost"] and not verdict["double_applied"]
    status = done.proxy["services"][0] if done.proxy else {}
    return {"system": way.system, "label": way.label, "operations": done.report["sent"],
            "client_errors": errors_of(done.report), "unavailable_ms": waits, "longest_ms": done.longest_ms,
            "acked_lost": verdict["acked_lost"], "double_applied": verdict["double_applied"],
            "linearizable": verdict["linearizable"], "sound": sound,
            "duplicate_answers": done.report["duplicates"], "identity_ok": status.get("identity_ok"),
            "hedges": product.number(status.get("hedges")) if status else done.report["hedges"],
            **{f"wait{number}": round(wait) for number, wait in enumerate(waits, start=1)}, "consistent": "yes" if verdict["linearizable"] else "NO"}


def what_worked(rows: list[dict]) -> list[Check]:
    """The demo shows something only if kills hurt without Hedgerow, and do not with it."""
    found = {row["system"]: row for row in rows}
    hedgerow, bare = found["hedgerow"], found["noproxy-noretry"]
    return [at_least("no proxy, no retry: operations that failed", bare["client_errors"], 1),
            at_least("every way: kills", min(len(row["unavailable_ms"]) for row in rows), len(kv_run.KILLS_AT_S)),
            at_most("Hedgerow: operations that failed", hedgerow["client_errors"], 0),
            at_most("Hedgerow: acknowledged writes lost", hedgerow["acked_lost"], 0),
            at_most("Hedgerow: writes applied twice", hedgerow["double_applied"], 0),
            at_least("Hedgerow: linearizable", int(hedgerow["linearizable"]), 1),
            at_most("Hedgerow: second answers that reached the client", hedgerow["duplicate_answers"], 0),
            at_least("Hedgerow: every request accounted for", int(bool(hedgerow["identity_ok"])), 1),
            at_most("Hedgerow: longest wait", hedgerow["longest_ms"], _LONGEST_WAIT_MS, "ms"),
            at_least("every way: nothing acknowledged lost, nothing twice, linearizable",
                     int(all(row["sound"] for row in rows)), 1)]


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    """What ran last is left running to be kept."""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(STAGE.tag, replicas=SETTINGS.replicas))
        print("Three servers keep one store (Raft): one of them leads and takes the writes. Clients write and read,\n"
              f"2,000 operations a second, for {kv_run.SECONDS:.0f} s. Three times the leader is killed, and comes back "
              "2 s later.\nThree ways to ask, one after the other:\n", flush=True)
        for number, way in enumerate(WAYS, start=1):
            print(f"{number} of {len(WAYS)}: {way.label}\n           {way.what}")
            progress = Progress()
            progress.preparing("starting three servers")
            with contextlib.ExitStack() as of_way:
                up = of_way.enter_context(running_system(way.system, lab, SETTINGS))
                if way.system == "noproxy-noretry":
                    lead_where_the_client_asks(up)
                turn = running.turn(1, system=way.system)
                done = kv_run.run(lab, up, running.results.raw / f"{way.system}.csv", progress)
                row = row_of(way, up, done)
                progress.finish(row)
                turn.done({"row": row, **dataclasses.asdict(done), "config": up.config})
                if arguments.keep and way is WAYS[-1]:
                    up.keep()
                    lab.keep()
                    of_way.pop_all()
                    stack.pop_all()
                    arguments.kept = (lab, up)
    print("wait: the longest around that kill, in ms; 5000: no answer, the client has given up.\n"
          "lost: writes that were acknowledged and are not there. doubled: writes that were done twice.\n")


EXPERIMENT = experiment.Experiment(
    NAME, "Kill the leaders of a replicated store under load.", ("system",), what_worked, experiment.own_rows,
    {"label": "", "operations": "operations", "client_errors": "errors", "wait1": "wait, kill 1", "wait2": "kill 2", "wait3": "kill 3",
     "acked_lost": "lost", "double_applied": "doubled", "consistent": "linearizable"},
    Charts("A replicated store whose leader is killed three times: the longest wait of each moment, and the median", looks.STORES, "system",
           (Waits(no_answer_ms=CLIENT_TIMEOUT_S * 1e3), Tails("All operations", key=("system",))), _series),
    measure=measure, rounds=1, settle=stage.settle, options=(*stage.OPTIONS, ("--kill-leader", {
        "action": "store_true", "help": "in the lab that --keep left: kill the leader, start it again after 2 s, and nothing else"})))


def demo(arguments: argparse.Namespace) -> int:
    return STAGE.show(EXPERIMENT, arguments, kv_kept.say_how_to_look_around)


def main(argv: list[str]) -> int:
    arguments = EXPERIMENT.parse(argv)
    return kv_kept.kill_leader(STAGE.tag) if arguments.kill_leader else stage.main(STAGE, arguments, demo)
