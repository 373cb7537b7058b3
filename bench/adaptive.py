# SPDX-License-Identifier: Apache-2.0
"""What the policy does when replicas change under it: two alike replicas, healthy for a minute, then the first 20 times
slower, then healthy, then both slower. 1,000 requests/s in an open loop, by a client that does not hedge, behind the proxy
with `adaptive` and `prefer: fastest`, and beside it with the shipped fixed delay.

Run by `./dev bench adaptive`; writes results/adaptive/ and exits 1 when something it must show is missed.
"""

import argparse
import contextlib
import csv
import dataclasses
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench import cpu_time, experiment, product
from bench.client_run import Destinations, command, run_client
from bench.histogram import quantile
from bench.manifest import add_config
from bench.outcome import Check, Results, at_least, at_most, median
from bench.replicas import BenchServer, packets_received
from bench.stopping import run
from deploy.lab import VIP_RAW, CommandFailed, Lab

NAME = "adaptive"
TAG = "benchadapt"
PORT, RATE, BUDGET, SLOWER = 4000, 1000, 0.05, 20
# The replicas that are slow in each phase.
PHASES = {"healthy": "", "one-slow": "a", "healthy-again": "", "both-slow": "ab"}
MODES = {"adaptive": {"adaptive": {"floor": "1ms", "cap": "200ms"}, "prefer": "fastest"}, "fixed": {}}
DELAY, TIMEOUT_S, WINDOW_S = "10ms", 2, 10
_MEDIANS = ("p50_ms", "p95_ms", "p99_ms", "delay_ms")
_SUMS = ("n", "lost", "hedges", "failovers", "suspected")


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the proxy says, once a second."""

    at_s: float  # since the first measured request
    requests: int
    hedges: int
    failovers: int
    suspected: int
    delay_ms: float
    requests_to: str
    received: dict[str, int] = dataclasses.field(default_factory=dict)  # packets, by replica


class Conductor(threading.Thread):
    """Changes the replicas by the clock, and asks the proxy once a second. `phases`: when each begins, in seconds, and the replicas
    that are slow in it."""

    def __init__(self, proxy: product.Product, servers: dict[str, BenchServer], phases: Sequence[tuple[float, str]]):
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self.changes_s: list[float] = []
        self.failed: Exception | None = None
        self._proxy, self._servers, self._phases = proxy, servers, phases
        self._end = threading.Event()

    def run(self) -> None:
        started, phases = time.monotonic(), self._phases
        try:
            while not self._end.is_set():
                now_s = time.monotonic() - started
                while len(self.changes_s) < len(phases) and phases[len(self.changes_s)][0] <= now_s:
                    self._set(phases[len(self.changes_s)][1])
                    self.changes_s.append(time.monotonic() - started)
                self.samples.append(self._sample(now_s))
                due = len(self.changes_s)
                change_s = phases[due][0] if due < len(phases) else math.inf
                self._end.wait(max(0.0, started + min(int(now_s) + 1, change_s) - time.monotonic()))
        except (CommandFailed, OSError) as failed:
            self.failed = failed

    def end(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()
        if self.failed is not None:
            raise self.failed

    def _set(self, slow: str) -> None:
        for name, server in self._servers.items():
            os.kill(server.pid, signal.SIGUSR1 if name in slow else signal.SIGUSR2)

    def _sample(self, at_s: float) -> Sample:
        (service,) = self._proxy.status()["services"]
        figures = product.service_figures({"services": [service]}, "raw")
        return Sample(at_s, figures["requests"], figures["hedges"], figures["failover_sends"], figures["suspected"],
                      product.number(service["delay_ns"]) / 1e6, service["requests_to"],
                      {name: packets_received(server.host) for name, server in self._servers.items()})


def extra_loads(samples: list[Sample], window_s: float = WINDOW_S) -> list[tuple[float, float]]:
    """(end, extra load) of every window of that length: what was sent beyond one datagram for each request, failovers
    included. With less than a window's samples, none."""
    found, first = [], 0
    for last, sample in enumerate(samples):
        while first + 1 < last and sample.at_s - samples[first + 1].at_s >= window_s:
            first += 1
        asked = sample.requests - samples[first].requests
        if sample.at_s - samples[first].at_s < window_s - 0.5 or asked == 0:
            continue
        extra = sample.hedges + sample.failovers - samples[first].hedges - samples[first].failovers
        found.append((sample.at_s, extra / asked))
    return found


def read_latencies(path: Path) -> list[tuple[float, float]]:
    """(when it was to be sent, in seconds; how long it took, in ms): a request without an answer took the time-out."""
    with path.open(encoding="ascii", newline="") as lines:
        return [(float(line["intended_us"]) / 1e6, float(line["latency_us"] or TIMEOUT_S * 1e6) / 1e3)
                for line in csv.DictReader(lines)]


def per_second(latencies: list[tuple[float, float]]) -> list[dict]:
    seconds: dict[int, list[float]] = {}
    for at_s, took_ms in latencies:
        seconds.setdefault(int(at_s), []).append(took_ms)
    return [{"at_s": second, "n": len(found), "p50_ms": quantile(found, 0.5), "p95_ms": quantile(found, 0.95),
             "p99_ms": quantile(found, 0.99)}
            for second, found in sorted((second, sorted(found)) for second, found in seconds.items())]


def phase_figures(latencies: list[tuple[float, float]], samples: list[Sample], begin_s: float, end_s: float,
                  settle_s: float) -> dict:
    """Percentiles and the delay are those of the settled part; counts and the extra load are the whole phase's."""
    settled = sorted(took_ms for at_s, took_ms in latencies if begin_s + settle_s <= at_s < end_s)
    during = [sample for sample in samples if begin_s <= sample.at_s < end_s]
    late = [sample.delay_ms for sample in during if sample.at_s >= begin_s + settle_s]
    windows = [extra for at_s, extra in extra_loads(samples) if begin_s <= at_s < end_s]
    whole = [took_ms for at_s, took_ms in latencies if begin_s <= at_s < end_s]
    return {"n": len(whole), "lost": sum(took_ms >= TIMEOUT_S * 1e3 for took_ms in whole),
            **{f"p{percent}_ms": quantile(settled, percent / 100) for percent in (50, 95, 99)},
            "delay_ms": median(late) if late else float("nan"),
            **{key: getattr(during[-1], key) - getattr(during[0], key) if during else 0
               for key in ("hedges", "failovers", "suspected")},
            "extra_load_max": max(windows, default=0.0)}


class Rig:
    def __init__(self, lab: Lab, results: Results, phase_s: float, settle_s: float):
        self.lab, self.results, self.phase_s, self.settle_s = lab, results, phase_s, settle_s
        self.configs: dict[str, dict] = {}

    def run(self, mode: str, round_number: int) -> dict[str, dict]:
        a, b = self.lab.replica("a"), self.lab.replica("b")
        service = product.service("raw", VIP_RAW[0], PORT, "raw", {"a": a.ipv4, "b": b.ipv4}, delay=DELAY,
                                  budget=f"{BUDGET:.0%}", **MODES[mode])
        flags = ["--workload=raw", "--loop=open", f"--rate={RATE}", f"--seconds={self.phase_s * len(PHASES):g}",
                 f"--timeout={TIMEOUT_S}s", "--linger=500ms", "--warmup=200"]
        to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_RAW[0]}:{PORT}")
        argv = command("wheel", to, flags, DELAY)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hedgerow-bench-")))
            # Different seeds: they are slow for different requests. Every mode of a round meets the same times.
            servers = {host.name: stack.enter_context(BenchServer(host, "hr-tail-server", [
                f"--listen={host.ipv4}:{PORT}", f"--factor={SLOWER}", f"--seed={2 * round_number + number}"]))
                for number, host in enumerate((a, b))}
            proxy = stack.enter_context(product.Product(self.lab.client, "bench-adapt", [service]))
            conductor = Conductor(proxy, servers, [(place * self.phase_s, slow) for place, slow in enumerate(PHASES.values())])
            stack.callback(conductor.end)
            client = run_client(self.lab.client, [*argv, f"--csv={folder / 'requests.csv'}"],
                                [host.netns for host in self.lab.hosts.values()],
                                on_event=lambda event: conductor.start() if event["event"] == "measuring" else None)
            conductor.end()
            latencies = read_latencies(folder / "requests.csv")
            identity_ok = product.service_figures(proxy.status_at_rest(), "raw")["identity_ok"]
        config = {"mode": mode, "client": argv[1:], "service": service, "phase_s": self.phase_s,
                  "settle_s": self.settle_s, "slower": SLOWER}
        hashed = add_config(self.configs, config)
        ends_s = [*conductor.changes_s[1:], self.phase_s * len(PHASES)]
        phases = {phase: {**phase_figures(latencies, conductor.samples, begin_s, end_s, self.settle_s),
                          "config_hash": hashed}
                  for phase, begin_s, end_s in zip(PHASES, conductor.changes_s, ends_s, strict=True)}
        self.results.write_raw(f"{mode}-{round_number:02d}", {
            "mode": mode, "round": round_number, "phases": phases, "changes_s": conductor.changes_s,
            "identity_ok": identity_ok, "client": client.summary, "seconds": per_second(latencies),
            "samples": [dataclasses.asdict(sample) for sample in conductor.samples],
            "extra_load": extra_loads(conductor.samples)})
        return phases


def row_of(mode: str, phase: str, runs: list[dict]) -> dict:
    """Percentiles and delays are medians over the runs, counts are sums, extra_load_max is the worst window's."""
    return {"mode": mode, "phase": phase, "runs": len(runs), **{key: sum(run[key] for run in runs) for key in _SUMS},
            **{key: median(run[key] for run in runs) for key in _MEDIANS},
            "p99_worst_ms": max(run["p99_ms"] for run in runs),
            "extra_load_max": max(run["extra_load_max"] for run in runs), "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    """With both replicas slower nobody can be as fast as before: there the limit is as much slower as they are."""
    found = {row["phase"]: row for row in rows if row["mode"] == "adaptive"}

    def figure(phase: str, key: str) -> float | None:
        return found.get(phase, {}).get(key)

    healthy_ms = figure("healthy", "p95_ms") or float("nan")
    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 3)]
    for phase, times in (("one-slow", 1), ("healthy-again", 1), ("both-slow", SLOWER)):
        checks.append(at_most(f"{phase}: p99 from 30 s after the change on (2 x {times} x the healthy p95)",
                              figure(phase, "p99_ms"), 2 * times * healthy_ms, "ms"))
    for phase in PHASES:
        checks.append(at_most(f"{phase}: extra load in any 10 s (budget + 1 point)", figure(phase, "extra_load_max"),
                              BUDGET + 0.01))
    healthy_delay_ms = figure("healthy", "delay_ms") or float("nan")
    return [*checks, at_least("healthy: hedges", figure("healthy", "hedges"), 1),
            at_most("healthy-again: delay (twice the healthy one)", figure("healthy-again", "delay_ms"),
                    2 * healthy_delay_ms, "ms"),
            at_least("both-slow: delay (5 x the healthy one)", figure("both-slow", "delay_ms"), 5 * healthy_delay_ms,
                     "ms"),
            at_most("requests without an answer", sum(row["lost"] for row in found.values()) if found else None, 0)]


def measure(rig: Rig, arguments: argparse.Namespace) -> list[dict]:
    cells: dict[tuple[str, str], list[dict]] = {(mode, phase): [] for mode in arguments.modes for phase in PHASES}
    for round_number in range(1, arguments.rounds + 1):
        shift = round_number % len(arguments.modes)
        for mode in arguments.modes[shift:] + arguments.modes[:shift]:
            cpu_time.wait_until_quiet(at_most_s=arguments.quiet_wait)
            for phase, figures in rig.run(mode, round_number).items():
                cells[mode, phase].append(figures)
                print(f"round {round_number} {mode:8} {phase:13} p50 {figures['p50_ms']:7.2f}  p99 "
                      f"{figures['p99_ms']:7.2f} ms  delay {figures['delay_ms']:6.2f} ms  extra load at most "
                      f"{figures['extra_load_max']:.4f}", flush=True)
    return [row_of(mode, phase, runs) for (mode, phase), runs in cells.items()]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = experiment.parser(NAME, __doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument("--modes", type=experiment.some_of(MODES), default=list(MODES))
    parser.add_argument("--phase-seconds", type=float, default=60)
    parser.add_argument("--settle-seconds", type=float, default=30, help="of a phase, before its percentiles count")
    parser.add_argument("--lab", default=TAG, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    results = Results(NAME, arguments.into)
    with Lab(arguments.lab, replicas=2) as lab:
        rig = Rig(lab, results, arguments.phase_seconds, arguments.settle_seconds)
        rows = measure(rig, arguments)
    return experiment.conclude(
        results, results.manifest(rig.configs, rounds=arguments.rounds),
        rows, must_show(rows),
        {"mode": "mode", "phase": "phase", "runs": "runs", "n": "n", "lost": "lost", "p50_ms": "p50 ms",
         "p95_ms": "p95 ms", "p99_ms": "p99 ms", "delay_ms": "delay ms", "hedges": "hedges",
         "extra_load_max": "extra load", "suspected": "suspected"}, "adaptive")


if __name__ == "__main__":
    run(main)
