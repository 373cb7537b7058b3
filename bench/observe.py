# SPDX-License-Identifier: Apache-2.0
"""What looking costs: the throughput of one service, all requests parked, without an observer (`alone`), while the
metrics are scraped and the live page asks for its data every second (`watched`), while a trace runs with a filter that
matches nothing (`traced`), and under `hedgerow top`, which has the kernel time its programs (`top`).

A closed loop with a fixed number of requests in flight; client and servers have a processor each. Every round runs all
of them in slices that take turns, so that the machine's moods meet all alike; a round's figure is its loss against
`alone` of the same round. Run by `./dev bench observe`; writes results/observe/ and exits 1 when something it must show
is missed.
"""

import argparse
import contextlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from bench import experiment, product
from bench.client_run import Destinations, command, run_client
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most, median
from bench.pinning import CLIENT_CPU, SERVER_CPU, client_and_server, on_cpu, pin
from bench.replicas import BenchServer
from deploy.lab import VIP_RAW, Host, Lab
from plots import looks
from plots.charts import Bars, Charts

NAME = "observe"
PORT = 9000
MODES = ("alone", "watched", "traced", "top")
METRICS = "127.0.0.1:9464"
# Once a second, as Prometheus and an open page do it; each line says how often each was served so far.
_WATCHER = """
import sys, time, urllib.request
served = {path: 0 for path in sys.argv[2:]}
due = time.monotonic()
try:
    while True:
        for path in served:
            try:
                with urllib.request.urlopen(f"http://{sys.argv[1]}{path}", timeout=5) as answer:
                    served[path] += len(answer.read()) > 0
            except OSError:
                pass
        print(*served.values(), flush=True)
        due += 1
        time.sleep(max(0.0, due - time.monotonic()))
except KeyboardInterrupt:
    pass
"""
_PATHS = {"metrics": "/metrics", "page": "/api/v1/page?after=0"}


class Rig:
    def __init__(self, lab: Lab):
        self.lab = lab
        a, b = lab.replica("a"), lab.replica("b")
        self.to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_RAW[0]}:{PORT}")
        # A long delay: nothing is hedged because the machine was busy for a moment.
        self.service = product.service("raw", VIP_RAW[0], PORT, "raw", {"a": a.ipv4, "b": b.ipv4}, delay="200ms")

    def servers(self, stack: contextlib.ExitStack) -> None:
        for host in self.lab.replicas:
            server = stack.enter_context(BenchServer(host, "hr-echo-server", [f"--listen={host.ipv4}:{PORT}"]))
            pin(server.pid, SERVER_CPU)

    def slice(self, in_flight: int, requests: int) -> dict:
        """One run of the client: requests answered per second, and what all of it took of the processors."""
        argv = command("wheel", self.to, ["--workload=raw", "--loop=closed", "--pause=0", f"--in_flight={in_flight}",
                                          f"--requests={requests}", f"--warmup={max(200, requests // 20)}",
                                          "--timeout=1s", "--linger=0"], "200ms")
        client = run_client(self.lab.client, on_cpu(argv, CLIENT_CPU), self.lab)
        summary = client.summary
        return {"rate": summary["rate_per_second"], "p50_ms": summary["p50_ms"], "p99_ms": summary["p99_ms"],
                "n": summary["n"], "lost": summary["lost"],
                "cpu_us_per_request": client.spent.experiment_us / summary["n"], "wall_s": summary["wall_s"]}


@contextlib.contextmanager
def looking(host: Host, proxy: product.Product, mode: str, seen: dict) -> Iterator[None]:
    """Observes as `mode` says while the block runs; `seen` counts events."""
    if mode == "alone":
        yield
        return
    if mode == "watched":
        argv = [sys.executable, "-c", _WATCHER, METRICS, *_PATHS.values()]
    elif mode == "traced":
        argv = [binary("hedgerow"), "trace", "--client", "192.0.2.1", "--socket", proxy.socket]
    else:
        argv = [binary("hedgerow"), "top", "--json", "--socket", proxy.socket]
    child = host.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    # Until it looks: an interpreter that starts cold takes longer than our own programs.
    first = child.stdout.readline().splitlines() if mode == "watched" else []
    time.sleep(0.3)
    try:
        yield
    finally:
        status = host.stop(child, signal.SIGINT)
        lines = first + child.stdout.read().splitlines()
        child.stdout.close()
    if mode == "watched":
        if not lines:
            raise RuntimeError(f"who watches has ended with {status} and seen nothing")
        for name, count in zip(_PATHS, lines[-1].split(), strict=True):
            seen[name] = seen.get(name, 0) + int(count)
    elif status != 0:
        raise RuntimeError(f"{argv[1]} ended with {status}")
    elif mode == "traced" and lines:
        raise RuntimeError(f"a filter that matches nothing matched: {lines[0]}")
    else:
        seen[mode] = seen.get(mode, 0) + 1


def one_round(rig: Rig, arguments: argparse.Namespace, number: int) -> dict:
    slices: dict[str, list[dict]] = {mode: [] for mode in arguments.modes}
    seen: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        rig.servers(stack)
        proxy = stack.enter_context(product.Product(rig.lab.client, "bench-observe", [rig.service],
                                                    metrics={"listen": METRICS}))
        calm = rig.slice(arguments.in_flight, 20_000)
        requests = max(1_000, int(calm["rate"] * arguments.seconds))
        for turn in range(arguments.slices):
            shift = (number + turn) % len(arguments.modes)
            for mode in arguments.modes[shift:] + arguments.modes[:shift]:
                with looking(rig.lab.client, proxy, mode, seen):
                    slices[mode].append(rig.slice(arguments.in_flight, requests))
        status = proxy.status_at_rest()
        figures = product.service_figures(status, "raw")
        if not figures["identity_ok"]:
            raise RuntimeError("the books do not balance")
    return {"slices": slices, "seen": seen}


def round_rate(slices: list[dict]) -> float:
    """Requests per second over all slices of a round: their sum over the sum of their times."""
    return sum(each["n"] for each in slices) / sum(each["wall_s"] for each in slices)


def row_of(mode: str, rounds: list[dict[str, list[dict]]], seen: list[dict], config: str) -> dict:
    rates = [round_rate(each[mode]) for each in rounds]
    losses = [1 - rate / round_rate(each["alone"]) for rate, each in zip(rates, rounds, strict=True)]
    flat = [each for one in rounds for each in one[mode]]
    quartiles = statistics.quantiles(losses, n=4) if len(losses) > 1 else [losses[0]] * 3
    return {"mode": mode, "runs": len(rounds), "rate": median(rates), "rate_min": min(rates), "rate_max": max(rates),
            "loss": median(losses), "loss_q1": quartiles[0], "loss_q3": quartiles[2], "loss_min": min(losses),
            "loss_max": max(losses), "n": sum(each["n"] for each in flat), "lost": sum(each["lost"] for each in flat),
            "cpu_us_per_request": median([each["cpu_us_per_request"] for each in flat]),
            "p50_ms": median([each["p50_ms"] for each in flat]), "p99_ms": median([each["p99_ms"] for each in flat]),
            "seen": {name: sum(each.get(name, 0) for each in seen) for name in _PATHS}, "config_hash": config}


def must_show(rows: list[dict]) -> list[Check]:
    found = {row["mode"]: row for row in rows}
    seen = rows[0]["seen"] if rows else {}
    watched, traced = (found.get(mode, {}).get("loss") for mode in ("watched", "traced"))
    return [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10),
            at_most("lost requests", sum(row["lost"] for row in rows), 0),
            at_least("scrapes that were served", seen.get("metrics", 0), 10),
            at_least("answers for the page that were served", seen.get("page", 0), 10),
            at_most("metrics and page each second: share of throughput lost", watched, 0.01),
            at_most("traced, nothing matches: share of throughput lost", traced, 0.03)]


def rows_of(records: list[dict]) -> list[dict]:
    return [row_of(mode, [record["slices"] for record in records], [record["seen"] for record in records], records[0]["config_hash"])
            for mode in records[0]["slices"]]


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    arguments.modes = list(dict.fromkeys(["alone", *arguments.modes]))  # with which everything is compared
    with Lab("benchobserve", replicas=2) as lab:
        rig = Rig(lab)
        for turn in running.turns(modes=["all"]):
            turn.done({**one_round(rig, arguments, turn.round), "config": {"service": rig.service, "in_flight": arguments.in_flight}})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, (), must_show, rows_of,
    {"mode": "mode", "runs": "runs", "rate": "requests/s", "loss": "loss", "loss_q1": "q1", "loss_q3": "q3",
     "loss_min": "min", "loss_max": "max", "cpu_us_per_request": "cpu us", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "lost": "lost"},
    Charts("What looking costs", looks.LOOKING, "mode", (
        Bars("throughput lost, median of the rounds", y="loss", unit="% of the throughput", scale=100, where=lambda row: row["mode"] != "alone"),
        Bars("requests answered", y="rate", unit="requests/s"))),
    measure=measure, notes=lambda _: {"pinned": client_and_server()}, options=(
        experiment.some("--modes", MODES), experiment.number("--slices", 4, 1, 1000, help="turns that each mode has in a round"),
        experiment.number("--seconds", 2.0, 0.1, 600, help="length of a slice"),
        experiment.number("--in-flight", 32, 1, 512, help="requests that wait for an answer at one time")))
