# SPDX-License-Identifier: Apache-2.0
"""The published hedging experiment, rebuilt: two replicas that stall 2 % of all ids for 400 ms on first sight.

Closed loop as published, and open loop at 1,000 and 10,000 requests/s, each on an idle machine and with two busy
processes per core; without hedging, with hedging in the client, with Hedgerow (`wheel`) and with the
published technique, a clone of every request in a queueing discipline (bench/delay_line). Run by `./dev bench
seed-hedge`; writes results/seed-hedge/ and exits 1 when something it must show is missed.

`--vm SERIES` runs it once in a machine with a stock kernel and virtual time (deploy/vm), closed loop and idle, and
writes results/seed-hedge-vm-SERIES/.
"""

import argparse
import contextlib
import dataclasses
import time

from bench import delay_line, experiment, product, series, vm_run
from bench.client_run import MODES, ClientRun, Destinations, command, run_client
from bench.histogram import of_client, percentiles
from bench.outcome import at_least, at_most, median
from bench.replicas import BenchServer, packets_received, stress
from deploy.lab import VIP_RAW, Lab
from plots import looks
from plots.charts import Bars, Charts, Tails

NAME = "seed-hedge"
IN_KERNEL = ("wheel", *delay_line.MODES)
# htb is the delay line that every kernel has; the others join in a machine of the lane.
KNOWN_MODES = (*MODES, *delay_line.MODES)
NATIVE_MODES = (*MODES, "qdisc-htb")
PORT = 9000
DELAY = "10ms"
WARMUP = 200
LOADS = ("idle", "stress")
_WORDS = {"closed": "closed loop", "open1k": "1,000/s", "open10k": "10,000/s", "idle": "idle machine", "stress": "2 busy processes per core"}
STRESS_PER_CPU = 2
# Quick ids are answered after 2 ms; 1 s is the published client's time-out.
COMMON_FLAGS = ("--workload=raw", f"--warmup={WARMUP}", "--timeout=1s", "--linger=500ms")


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    client_flags: tuple[str, ...]
    rule: str


VARIANTS = {variant.name: variant for variant in (
    Variant("closed", ("--loop=closed", "--requests=5000", "--pause=1ms"), "mod"),
    # The published rule is periodic in the id and would be periodic in time at a fixed rate.
    Variant("open1k", ("--loop=open", "--rate=1000", "--requests=10000"), "hash"),
    Variant("open10k", ("--loop=open", "--rate=10000", "--requests=100000"), "hash"))}


def row_of(variant: str, load: str, mode: str, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together; costs are medians over the runs; n, lost and hedges are sums. A run without a hedge
    has no fire error."""
    middle = lambda key, of: median(run[key] for run in of) if of else None  # noqa: E731
    hedged = [run for run in runs if run["hedges"]]
    return {"mode": mode, "variant": variant, "load": load, "runs": len(runs),
            **{key: sum(run[key] for run in runs) for key in ("n", "lost", "hedges")},
            **percentiles(map(of_client, runs)),
            **{key: middle(key, hedged) for key in ("fire_error_p50_us", "fire_error_p99_us")},
            **{key: middle(key, runs) for key in ("extra_load", "cpu_us_per_request")}, "config_hash": runs[0]["config_hash"]}


class Rig:
    def __init__(self, lab: Lab):
        self.lab = lab
        a, b = lab.replica("a"), lab.replica("b")
        self.to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_RAW[0]}:{PORT}")
        self.service = product.service("raw", VIP_RAW[0], PORT, "raw", {"a": a.ipv4, "b": b.ipv4}, delay=DELAY)

    def run(self, mode: str, variant: Variant, load: str, round_number: int, stress_pids: list[int]) -> dict:
        """One run: fresh servers, a fresh product, one client."""
        # Every mode of a round meets the same stalls; every round others.
        server_flags = [f"--rule={variant.rule}", "--fraction=0.02", f"--seed={round_number}", "--service=2ms",
                        "--stall=400ms", "--ttl=1s"]
        flags = [*COMMON_FLAGS, *variant.client_flags]
        argv = command(mode, self.to, flags, DELAY)
        shared = self.lab.client.scratch("seen") / f"{time.monotonic_ns()}"
        replicas = [self.lab.replica("a"), self.lab.replica("b")]
        with contextlib.ExitStack() as stack:
            stack.callback(shared.unlink, missing_ok=True)
            servers = [stack.enter_context(BenchServer(host, "hr-echo-server", [
                f"--listen={host.ipv4}:{PORT}", f"--shared={shared}", *server_flags])) for host in replicas]
            proxy = None
            if mode in IN_KERNEL:
                proxy = stack.enter_context(delay_line.hedger(self.lab.client, "bench-seed", self.service, mode))
            before = sum(packets_received(host) for host in replicas)
            client = run_client(self.lab.client, argv, self.lab,
                                stress=stress_pids)
            received = sum(packets_received(host) for host in replicas) - before
            status = proxy.status_at_rest() if proxy else None
        config = {"mode": mode, "variant": variant.name, "load": load, "client": argv[1:],
                  "server": [flag for flag in server_flags if not flag.startswith("--seed")],
                  "product": {"services": [self.service]} if proxy else None}
        return {**_figures(client, received, status), "argv": client.argv, "client": client.report, "cpu": client.spent.as_json(),
                "replica_packets": received, "servers": [server.counters for server in servers], "status": status, "config": config}


def _figures(client: ClientRun, received: int, status: dict | None) -> dict:
    summary = client.summary
    figures = {key: summary[key] for key in ("n", "lost", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms",
                                             "fire_error_p50_us", "fire_error_p99_us", "hedges", "duplicates")}
    if status is not None:
        seen = product.service_figures(status, "raw")
        figures.update({key: seen[key] for key in ("fire_error_p50_us", "fire_error_p99_us", "hedges", "identity_ok")})
    sent = summary["n"] + summary["warmup"]
    # What the replicas got beyond one request each: the same count for every mode.
    figures["extra_load"] = (received - sent) / sent
    figures["cpu_us_per_request"] = client.spent.experiment_us / summary["n"]
    figures["cpu_client_us_per_request"] = summary["cpu_us_per_request"]
    return figures


def must_show(rows: list[dict]) -> list:
    found = {(row["mode"], row["variant"], row["load"]): row for row in rows}
    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10)]
    wheel = found.get(("wheel", "closed", "idle"), {})
    baseline = found.get(("baseline", "closed", "idle"), {})
    checks += [
        at_least("closed, idle: baseline p99", baseline.get("p99_ms"), 390, "ms"),
        at_most("closed, idle: wheel p99", wheel.get("p99_ms"), 12.6, "ms"),
        at_most("closed, idle: wheel fire_error p99", wheel.get("fire_error_p99_us"), 250, "us"),
        at_most("closed, idle: wheel lost", wheel.get("lost"), 0),
        at_most("closed, idle: wheel extra_load", wheel.get("extra_load"), 0.025)]
    for variant in VARIANTS:
        wheel = found.get(("wheel", variant, "stress"), {})
        app_cc = found.get(("app-cc", variant, "stress"), {})
        limits = [(app_cc[key] * factor if app_cc.get(key) is not None else float("nan"))
                  for key, factor in (("fire_error_p99_us", 0.1), ("p99_ms", 1.1))]
        checks += [at_least(f"{variant}, stress: requests measured", wheel.get("n"), 10_000),
                   at_most(f"{variant}, stress: wheel fire_error p99 (a tenth of app-cc's)",
                           wheel.get("fire_error_p99_us"), limits[0], "us"),
                   at_most(f"{variant}, stress: wheel p99 (1.1 of app-cc's)", wheel.get("p99_ms"), limits[1], "ms")]
    return checks


def must_show_in_vm(rows: list[dict]) -> list:
    """In virtual time: exact where the clock is, and no engine later than half a millisecond."""
    found = {row["mode"]: row for row in rows}
    return [at_least("baseline p99", found.get("baseline", {}).get("p99_ms"), 390, "ms"),
            at_most("wheel fire_error p99", found.get("wheel", {}).get("fire_error_p99_us"), 50, "us"),
            *(at_most(f"{mode} p99 (delay + service + 0.5 ms)", found.get(mode, {}).get("p99_ms"), 12.5, "ms")
              for mode in IN_KERNEL),
            *(at_most(f"{mode} lost", found.get(mode, {}).get("lost"), 0) for mode in IN_KERNEL)]


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab("benchseed", replicas=2) as lab:
        rig = Rig(lab)
        for turn in running.turns(variant=arguments.variants, load=arguments.loads, mode=arguments.modes):
            with stress(lab.client, STRESS_PER_CPU if turn["load"] == "stress" else 0) as pids:
                turn.done(rig.run(turn["mode"], VARIANTS[turn["variant"]], turn["load"], turn.round, pids))


def run_in_vm(series: str) -> int:
    folder = vm_run.run(series, "seed_hedge", ["--inside-vm", "--rounds=1", "--variants=closed", "--loads=idle",
                                               f"--modes=baseline,app-cc,{','.join(IN_KERNEL)}"], NAME)
    if folder is None:
        return 1
    experiment.draw(folder, EXPERIMENT.charts)  # the machine has no matplotlib
    return 0


def main(argv: list[str]) -> int:
    arguments = EXPERIMENT.parse(argv)
    if arguments.vm:
        return run_in_vm(arguments.vm)
    here = dataclasses.replace(EXPERIMENT, must_show=must_show_in_vm, charts=None) if arguments.inside_vm else EXPERIMENT
    return here.run(arguments)


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("variant", "load", "mode"), must_show, lambda *cell: [row_of(*cell)],
    {"variant": "variant", "load": "load", "mode": "mode", "n": "n", "lost": "lost", "p50_ms": "p50 ms", "p99_ms": "p99 ms",
     "p999_ms": "p99.9 ms", "max_ms": "max ms", "fire_error_p99_us": "fire p99 us", "extra_load": "extra load", "cpu_us_per_request": "cpu us"},
    Charts("Two replicas, 2 % of requests stalled 400 ms, hedged after 10 ms", looks.MODES, "mode",
           (Tails(panel=("load", "variant"), key=("variant", "load", "mode"), titles=_WORDS),
            Bars("how late a hedge leaves, p99", panel=("load",), titles=_WORDS, y="fire_error_p99_us", unit="us", log=True, group="variant",
                 groups={name: _WORDS[name] for name in VARIANTS})),
           series.client_latency("variant", "load", "mode")),
    measure=measure, options=(
        experiment.some("--variants", VARIANTS), experiment.some("--loads", LOADS), experiment.some("--modes", KNOWN_MODES, NATIVE_MODES),
        ("--vm", {"metavar": "SERIES", "choices": vm_run.SERIES, "help": "in a machine with this stock kernel"}),
        ("--inside-vm", {"action": "store_true", "help": argparse.SUPPRESS})))
