# SPDX-License-Identifier: Apache-2.0
"""What the policy does when replicas change under it. Script `adaptive`: two alike replicas, healthy, then the first 20 times slower, then
healthy, then both slower; with `adaptive` and `prefer: fastest`, and beside it with the shipped fixed delay. Script `standby-choice`: five
replicas with the fastest preferred; one is slow for five seconds and then well, so its share of the requests must come back; one is slow
for long, so p99 must stay as it is; all are asked for more than they can serve, so hedges must not add to it. An open loop, by a client
that does not hedge.

`--scripts standby-choice --phases healthy,overloaded --rounds 1` is a quick look at two phases.
"""

import argparse
import contextlib
import csv
import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import experiment, product, series
from bench.client_run import Destinations, command, run_client
from bench.histogram import quantile
from bench.outcome import Check, at_least, at_most, median
from bench.pinning import hurry
from bench.replicas import BenchServer, packets_received
from deploy.dev import temporary
from deploy.lab import VIP_RAW, CommandFailed, Lab
from plots import looks
from plots.charts import Charts, Times

NAME = "phases"
TAG = "benchphases"
PORT, BUDGET, SLOWER = 4000, 0.05, 20
DELAY, TIMEOUT_S, WINDOW_S = "10ms", 2, 10
BACK_WITHIN_S, SHARE_BACK, TIMES = 10, 0.8, 1.2
_ANSWERED_AFTER = ("--service=1ms", "--tail=500us")
_FASTEST = {"adaptive": {"floor": "1ms", "cap": "200ms"}, "prefer": "fastest"}


@dataclasses.dataclass(frozen=True)
class Script:
    replicas: str
    rate: int
    client: tuple[str, ...]
    server: tuple[str, ...]
    modes: Mapping[str, dict]  # settings of the service
    settle_s: float  # of a phase, before its percentiles count
    phases: Mapping[str, tuple[float, str]]  # seconds, and the replicas that are slow


SCRIPTS = {
    "adaptive": Script("ab", 1000, (), _ANSWERED_AFTER, {"adaptive": _FASTEST, "fixed": {}}, 30.0, {
        "healthy": (60.0, ""), "one-slow": (60.0, "a"), "healthy-again": (60.0, ""), "both-slow": (60.0, "ab")}),
    # 6 workers, 1.5 ms each on average: 20,000/s when all are well; 30 ms each and 1,000/s when all are slow, which is less than the rate.
    "standby-choice": Script("abcde", 1500, ("--arrivals=poisson",), (*_ANSWERED_AFTER, "--workers=6"), {"fastest": _FASTEST}, 5.0, {
        "healthy": (15.0, ""), "slow-5s": (5.0, "a"), "back": (15.0, ""), "one-slow": (20.0, "a"), "well": (10.0, ""),
        "overloaded": (12.0, "abcde")})}
PHASES = list(dict.fromkeys(phase for script in SCRIPTS.values() for phase in script.phases))
_MEDIANS = ("p50_ms", "p95_ms", "p99_ms", "delay_ms", "extra_load", "share")
_SUMS = ("n", "lost", "hedges", "failovers", "suspected")


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the proxy and the replicas' interfaces say, once a second."""

    at_s: float  # since the first measured request
    requests: int
    hedges: int
    failovers: int
    suspected: int
    delay_ms: float
    requests_to: str
    received: dict[str, int]  # packets, by replica


def begins(script: Script, scale: float = 1.0, phases: Sequence[str] = tuple(PHASES)) -> list[tuple[str, float, float]]:
    """(phase, begin, end) in seconds, in the script's order."""
    found, at_s = [], 0.0
    for name, (seconds, _) in script.phases.items():
        if name in phases:
            found.append((name, at_s, at_s + scale * seconds))
            at_s += scale * seconds
    return found


class Conductor(threading.Thread):
    """Changes the replicas by the clock, and asks the proxy once a second. `phases`: when each begins, in seconds, and the replicas
    that are slow in it."""

    def __init__(self, proxy: product.Product, servers: dict[str, BenchServer], phases: Sequence[tuple[float, str]]):
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self.failed: Exception | None = None
        self._proxy, self._servers, self._phases = proxy, servers, phases
        self._end = threading.Event()

    def run(self) -> None:
        started, left = time.monotonic(), list(self._phases)
        try:
            while not self._end.is_set():
                now_s = time.monotonic() - started
                while left and left[0][0] <= now_s:
                    self._set(left.pop(0)[1])
                self.samples.append(self._sample(now_s))
                due_s = min(int(now_s) + 1, left[0][0] if left else math.inf)
                self._end.wait(max(0.0, started + due_s - time.monotonic()))
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


def extra_load(first: Sample, last: Sample) -> float | None:
    """What the replicas received beyond a packet for each request, by any sender."""
    asked = last.requests - first.requests
    return (sum(last.received.values()) - sum(first.received.values())) / asked - 1 if asked else None


def extra_loads(samples: Sequence[Sample], window_s: float = WINDOW_S) -> list[tuple[float, float]]:
    """(end, extra load) of every window of that length. With less than a window's samples, none."""
    found, first = [], 0
    for last, sample in enumerate(samples):
        while first + 1 < last and sample.at_s - samples[first + 1].at_s >= window_s:
            first += 1
        if sample.at_s - samples[first].at_s >= window_s - 0.5 and (extra := extra_load(samples[first], sample)) is not None:
            found.append((sample.at_s, extra))
    return found


def share_of(replica: str, samples: Sequence[Sample]) -> float | None:
    """Of what all replicas received between the first and the last sample."""
    if len(samples) < 2:
        return None
    received = {name: samples[-1].received[name] - samples[0].received[name] for name in samples[0].received}
    total = sum(received.values())
    return received[replica] / total if total else None


def back_after_s(replica: str, samples: Sequence[Sample], well_s: float, until_s: float, wanted: float) -> float | None:
    """Seconds from when it is well to the end of the first second in which its share is as wanted; None if it never is."""
    for one, next_one in zip(samples, samples[1:], strict=False):
        if well_s <= one.at_s and next_one.at_s <= until_s and (share_of(replica, [one, next_one]) or 0) >= wanted:
            return next_one.at_s - well_s
    return None


def read_latencies(path: Path) -> list[tuple[float, float]]:
    """(when it was to be sent, in seconds; how long it took, in ms): a request without an answer took the time-out."""
    with path.open(encoding="ascii", newline="") as lines:
        return [(float(line["intended_us"]) / 1e6, float(line["latency_us"] or TIMEOUT_S * 1e6) / 1e3)
                for line in csv.DictReader(lines)]


def per_second(latencies: Sequence[tuple[float, float]]) -> list[dict]:
    seconds: dict[int, list[float]] = {}
    for at_s, took_ms in latencies:
        seconds.setdefault(int(at_s), []).append(took_ms)
    return [{"at_s": second, "p50_ms": quantile(found, 0.5), "p99_ms": quantile(found, 0.99)} for second, found in sorted(seconds.items())]


def phase_figures(latencies: Sequence[tuple[float, float]], samples: Sequence[Sample], begin_s: float, end_s: float,
                  settle_s: float) -> dict:
    """Percentiles and the delay are those of the settled part; counts and the extra load are the whole phase's."""
    settled = [took_ms for at_s, took_ms in latencies if begin_s + settle_s <= at_s < end_s]
    whole = [took_ms for at_s, took_ms in latencies if begin_s <= at_s < end_s]
    during = [sample for sample in samples if begin_s <= sample.at_s < end_s]
    late = [sample.delay_ms for sample in during if sample.at_s >= begin_s + settle_s]
    return {"n": len(whole), "lost": sum(took_ms >= TIMEOUT_S * 1e3 for took_ms in whole),
            **{f"p{percent}_ms": quantile(settled, percent / 100) for percent in (50, 95, 99)},
            "delay_ms": median(late) if late else None,
            **{key: getattr(during[-1], key) - getattr(during[0], key) if during else 0
               for key in ("hedges", "failovers", "suspected")},
            "extra_load": extra_load(during[0], during[-1]) if during else None, "share": share_of("a", during),
            "extra_load_max": max((extra for at_s, extra in extra_loads(samples) if begin_s <= at_s < end_s), default=None)}


def run_once(lab: Lab, script: Script, mode: str, phases: list[tuple[str, float, float]], settle_s: float, seed: int) -> dict:
    backends = {name: lab.replica(name).ipv4 for name in script.replicas}
    service = product.service("raw", VIP_RAW[0], PORT, "raw", backends, delay=DELAY, budget=f"{BUDGET:.0%}", **script.modes[mode])
    argv = command("wheel", Destinations("", "", f"{VIP_RAW[0]}:{PORT}"), [
        "--workload=raw", "--loop=open", f"--rate={script.rate}", f"--seconds={phases[-1][2]:g}", f"--timeout={TIMEOUT_S}s", *script.client,
        f"--seed={seed}", "--linger=500ms", "--warmup=200"], DELAY)
    with contextlib.ExitStack() as stack:
        requests = Path(stack.enter_context(temporary.folder("bench")), "requests.csv")
        # Different seeds: they are slow for different requests. Every mode of a round meets the same times.
        servers = {name: stack.enter_context(BenchServer(lab.replica(name), "hr-echo-server", [
            f"--listen={address}:{PORT}", f"--factor={SLOWER}", *script.server, f"--seed={10 * seed + number}"]))
            for number, (name, address) in enumerate(backends.items())}
        for server in servers.values():
            os.kill(server.pid, signal.SIGUSR2)
            hurry(server.pid)  # in truth it has processors of its own
        proxy = stack.enter_context(product.Product(lab.client, TAG, [service]))
        conductor = Conductor(proxy, servers, [(begin_s, script.phases[name][1]) for name, begin_s, _ in phases])
        stack.callback(conductor.end)
        client = run_client(lab.client, [*argv, f"--csv={requests}"], lab,
                            on_event=lambda event: conductor.start() if event["event"] == "measuring" else None, hurried=True)
        conductor.end()
        latencies = read_latencies(requests)
        identity_ok = product.service_figures(proxy.status_at_rest(), "raw")["identity_ok"]
    found = {name: phase_figures(latencies, conductor.samples, begin_s, end_s, settle_s) for name, begin_s, end_s in phases}
    for name, well_s, until_s in phases:
        if name == "back":
            found[name]["back_after_s"] = back_after_s("a", conductor.samples, well_s, until_s,
                                                       SHARE_BACK * (found["healthy"]["share"] or math.inf))
    return {"phases": found, "begins": phases, "identity_ok": identity_ok, "client": client.summary, "seconds": per_second(latencies),
            "samples": [dataclasses.asdict(sample) for sample in conductor.samples], "extra_loads": extra_loads(conductor.samples),
            "config": {"mode": mode, "client": [flag for flag in argv[1:] if not flag.startswith("--seed")], "service": service,
                       "phases": phases, "settle_s": settle_s, "slower": SLOWER, "server": script.server}}


def row_of(script: str, mode: str, phase: str, records: list[dict]) -> dict:
    """Percentiles, delays, extra load and the first replica's share are medians over the runs, counts are sums; the rest is the worst
    run's. `back_after_s` is none when one run had none."""
    runs = [record["phases"][phase] for record in records]

    def over(pick, key: str) -> float | None:
        found = [run.get(key) for run in runs]
        return pick(found) if found and None not in found else None

    return {"script": script, "mode": mode, "phase": phase, "runs": len(runs), **{key: sum(run[key] for run in runs) for key in _SUMS},
            **{key: over(median, key) for key in _MEDIANS}, "p99_worst_ms": over(max, "p99_ms"),
            **{key: over(max, key) for key in ("extra_load_max", "back_after_s")},
            "identity_ok": all(record["identity_ok"] for record in records), "config_hash": records[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    """Of the phases that were run. With both replicas slower none can be as fast as before: there the limit is as much slower."""
    found = {(row["script"], row["phase"]): row for row in rows if row["mode"] != "fixed"}

    def figure(script: str, phase: str, key: str) -> float:
        value = found[script, phase].get(key)
        return math.nan if value is None else value

    def there(script: str, *phases: str) -> bool:
        return all((script, phase) in found for phase in phases)

    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 3)]
    adaptive, choice = SCRIPTS
    for phase, times in (("one-slow", 1), ("healthy-again", 1), ("both-slow", SLOWER)):
        if there(adaptive, "healthy", phase):
            checks.append(at_most(f"{phase}: settled p99 (2 x {times} x the healthy p95)", figure(adaptive, phase, "p99_ms"),
                                  2 * times * figure(adaptive, "healthy", "p95_ms"), "ms"))
    for script, phase in found:
        if script == adaptive:
            checks.append(at_most(f"{phase}: extra load in any 10 s (budget + 1 point)", figure(script, phase, "extra_load_max"),
                                  BUDGET + 0.01))
    if there(adaptive, "healthy"):
        checks.append(at_least("healthy: hedges", figure(adaptive, "healthy", "hedges"), 1))
    if there(adaptive, "healthy", "healthy-again", "both-slow"):
        delay_ms = figure(adaptive, "healthy", "delay_ms")
        checks += [at_most("healthy-again: delay (twice the healthy one)", figure(adaptive, "healthy-again", "delay_ms"), 2 * delay_ms, "ms"),
                   at_least("both-slow: delay (5 x the healthy one)", figure(adaptive, "both-slow", "delay_ms"), 5 * delay_ms, "ms")]
    if there(choice, "healthy", "slow-5s", "back"):
        checks.append(at_most(f"slow for 5 s: until its share is {SHARE_BACK} of what it was", figure(choice, "back", "back_after_s"),
                              BACK_WITHIN_S, "s"))
    if there(choice, "healthy", "one-slow"):
        checks.append(at_most(f"one of five {SLOWER} times slower: p99 ({TIMES} x the healthy one)", figure(choice, "one-slow", "p99_ms"),
                              TIMES * figure(choice, "healthy", "p99_ms"), "ms"))
    if there(choice, "overloaded"):
        checks += [at_most("all overloaded: extra load at the replicas (budget + 1 point)", figure(choice, "overloaded", "extra_load"),
                           BUDGET + 0.01),
                   at_least("all overloaded: requests without an answer in time", figure(choice, "overloaded", "lost"), 1)]
    well = [row["lost"] for (_, phase), row in found.items() if phase != "overloaded"]
    return [*checks, at_most("requests without an answer in the other phases", sum(well) if well else None, 0),
            at_least("runs in which the accounts add up (share)", sum(row["identity_ok"] for row in rows) / len(rows) if rows else None, 1)]


def _series(folder: Path, _summary: dict) -> tuple[dict, dict]:
    """Of the first round."""
    found = {}
    for record in series.raw(folder):
        samples = [Sample(**each) for each in record["samples"]]
        found.setdefault(f"{record['script']}-{record['mode']}", {
            **{key: [[each["at_s"], series.short(each[key])] for each in record["seconds"]] for key in ("p50_ms", "p99_ms")},
            "delay_ms": [[each.at_s, each.delay_ms] for each in samples],
            "extra_load": [[at_s, 100 * extra] for at_s, extra in record["extra_loads"]],
            "share": [[after.at_s, 100 * (share_of("a", [before, after]) or 0)] for before, after in zip(samples, samples[1:], strict=False)],
            "phases": [[begin_s, end_s, name] for name, begin_s, end_s in record["begins"]]})
    return {}, found


_OVER_TIME = {"panel": ("script",), "key": ("script", "mode"), "where": lambda row: row["phase"] == "healthy"}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    for name in arguments.scripts:
        script = SCRIPTS[name]
        phases = begins(script, arguments.scale, arguments.phases)
        with Lab(arguments.lab, replicas=len(script.replicas)) as lab:
            for turn in running.turns(script=[name], mode=list(script.modes)):
                turn.done(run_once(lab, script, turn["mode"], phases, script.settle_s * arguments.scale, turn.round))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("script", "mode"), must_show,
    lambda script, mode, records: [row_of(script, mode, phase, records) for phase in records[0]["phases"]],
    {"script": "script", "mode": "mode", "phase": "phase", "runs": "runs", "n": "n", "lost": "lost", "p50_ms": "p50 ms", "p95_ms": "p95 ms",
     "p99_ms": "p99 ms", "delay_ms": "delay ms", "share": "share of a", "back_after_s": "back after s", "hedges": "hedges",
     "failovers": "failovers", "extra_load": "extra load", "extra_load_max": "in 10 s", "suspected": "suspected"},
    Charts("Alike replicas that change, the first round", looks.DELAYS, "mode",
           (Times("p99 of each second", y="p99_ms", **_OVER_TIME), Times("hedge delay", y="delay_ms", **_OVER_TIME),
            Times("extra load in 10 s", y="extra_load", unit="%", log=False, **_OVER_TIME),
            Times("share of replica a", y="share", unit="%", log=False, **_OVER_TIME)), _series),
    measure=measure, rounds=3, tag=TAG, options=(
        experiment.some("--scripts", SCRIPTS), experiment.some("--phases", PHASES, help="with commas between them, run in their usual order"),
        experiment.number("--scale", 1.0, 0.01, 10, help="of all phases' lengths; below 1 it is a look")))
