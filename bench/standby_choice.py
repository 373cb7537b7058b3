# SPDX-License-Identifier: Apache-2.0
"""Which of several standbys: five alike replicas behind `prefer: fastest` and the adaptive delay. One is slow for five seconds
and then well: its share of the requests must come back. One is 20 times slower for long: p99 must stay as it is. All are asked
for more than they can serve: hedges must not add to it. 1,500 requests/s in an open loop, by a client that does not hedge.

Run by `./dev bench standby-choice`; writes results/standby-choice/ and exits 1 when something it must show is missed.
`--phases healthy,overloaded --rounds 1` is a quick look at two of them.
"""

import argparse
import contextlib
import dataclasses
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import cpu_time, experiment, product
from bench.adaptive import BUDGET, SLOWER, Conductor, Sample, per_second, read_latencies
from bench.client_run import Destinations, command, run_client
from bench.histogram import quantile
from bench.manifest import add_config
from bench.outcome import Check, Results, at_least, at_most, median
from bench.pinning import hurry
from bench.replicas import BenchServer
from bench.stopping import run
from deploy.lab import VIP_RAW, Lab

NAME = "standby-choice"
TAG = "benchchoice"
REPLICAS = "abcde"
PORT, RATE, TIMEOUT_S = 4000, 1500, 2
# 6 workers, 1.5 ms each on average: 20,000/s when all are well; 30 ms each and 1,000/s when all are slow, which is less than RATE.
WORKERS = 6
SETTINGS = {"adaptive": {"floor": "1ms", "cap": "200ms"}, "prefer": "fastest"}
# Phase: (seconds, the replicas that are slow).
PHASES = {"healthy": (15.0, ""), "slow-5s": (5.0, "a"), "back": (15.0, ""), "one-slow": (20.0, "a"), "well": (10.0, ""),
          "overloaded": (12.0, REPLICAS)}
BACK_WITHIN_S, SHARE_BACK, TIMES = 10, 0.8, 1.2
SETTLE_S = 5.0  # of healthy and one-slow, before their percentiles count
_MEDIANS = ("p50_ms", "p99_ms", "extra_load", "share")
_SUMS = ("n", "lost", "hedges", "failovers")


def begins(scale: float, phases: Sequence[str] = tuple(PHASES)) -> list[tuple[str, float, float]]:
    """(phase, begin, end) in seconds, in the order of PHASES."""
    found, at_s = [], 0.0
    for name, (seconds, _) in PHASES.items():
        if name not in phases:
            continue
        found.append((name, at_s, at_s + scale * seconds))
        at_s += scale * seconds
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


def phase_figures(latencies: Sequence[tuple[float, float]], samples: Sequence[Sample], begin_s: float, end_s: float,
                  settle_s: float) -> dict:
    """Percentiles are those from `settle_s` on; the rest is the whole phase's. Extra load is counted at the replicas."""
    settled = sorted(took_ms for at_s, took_ms in latencies if begin_s + settle_s <= at_s < end_s)
    whole = [took_ms for at_s, took_ms in latencies if begin_s <= at_s < end_s]
    during = [sample for sample in samples if begin_s <= sample.at_s < end_s]
    asked = during[-1].requests - during[0].requests if during else 0
    received = sum(during[-1].received.values()) - sum(during[0].received.values()) if during else 0
    return {"n": len(whole), "lost": sum(took_ms >= TIMEOUT_S * 1e3 for took_ms in whole),
            "p50_ms": quantile(settled, 0.5), "p99_ms": quantile(settled, 0.99),
            "extra_load": received / asked - 1 if asked else float("nan"), "share": share_of("a", during) or 0.0,
            **{key: getattr(during[-1], key) - getattr(during[0], key) if during else 0 for key in ("hedges", "failovers")}}


class Rig:
    def __init__(self, lab: Lab, results: Results, scale: float, phases: Sequence[str]):
        self.lab, self.results, self.scale, self.phases = lab, results, scale, phases
        self.configs: dict[str, dict] = {}

    def run(self, round_number: int) -> dict[str, dict]:
        backends = {name: self.lab.replica(name).ipv4 for name in REPLICAS}
        service = product.service("raw", VIP_RAW[0], PORT, "raw", backends, budget=f"{BUDGET:.0%}", **SETTINGS)
        phases = begins(self.scale, self.phases)
        flags = ["--workload=raw", "--loop=open", f"--rate={RATE}", f"--seconds={phases[-1][2]:g}", f"--timeout={TIMEOUT_S}s",
                 "--arrivals=poisson", f"--seed={round_number}", "--linger=500ms", "--warmup=200"]
        argv = command("wheel", Destinations("", "", f"{VIP_RAW[0]}:{PORT}"), flags, "10ms")
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hedgerow-bench-")))
            servers = {name: stack.enter_context(BenchServer(self.lab.replica(name), "hr-tail-server", [
                f"--listen={address}:{PORT}", f"--factor={SLOWER}", f"--workers={WORKERS}", f"--seed={10 * round_number + number}"]))
                for number, (name, address) in enumerate(backends.items())}
            for server in servers.values():
                os.kill(server.pid, signal.SIGUSR2)
                hurry(server.pid)  # in truth it has processors of its own
            proxy = stack.enter_context(product.Product(self.lab.client, "bench-choice", [service]))
            conductor = Conductor(proxy, servers, [(begin_s, PHASES[name][1]) for name, begin_s, _ in phases])
            stack.callback(conductor.end)
            client = run_client(self.lab.client, [*argv, f"--csv={folder / 'requests.csv'}"],
                                [host.netns for host in self.lab.hosts.values()],
                                on_event=lambda event: conductor.start() if event["event"] == "measuring" else None,
                                hurried=True)
            conductor.end()
            latencies = read_latencies(folder / "requests.csv")
            identity_ok = product.service_figures(proxy.status_at_rest(), "raw")["identity_ok"]
        hashed = add_config(self.configs, {"client": argv[1:], "service": service, "phases": phases, "slower": SLOWER,
                                           "workers": WORKERS})
        found = {name: {**phase_figures(latencies, conductor.samples, begin_s, end_s, SETTLE_S * self.scale),
                        "identity_ok": identity_ok, "config_hash": hashed} for name, begin_s, end_s in phases}
        for name, well_s, until_s in phases:
            if name == "back":
                found[name]["back_after_s"] = back_after_s("a", conductor.samples, well_s, until_s,
                                                           SHARE_BACK * found["healthy"]["share"])
        self.results.write_raw(f"{round_number:02d}", {
            "round": round_number, "phases": found, "begins": phases, "client": client.summary, "seconds": per_second(latencies),
            "samples": [dataclasses.asdict(sample) for sample in conductor.samples]})
        return found


def row_of(phase: str, runs: list[dict]) -> dict:
    """Percentiles, extra load and the first replica's share are medians over the runs, counts are sums; `back_after_s` is the longest,
    none when one run had none."""
    row = {"phase": phase, "runs": len(runs), **{key: sum(run[key] for run in runs) for key in _SUMS},
           **{key: median(run[key] for run in runs) for key in _MEDIANS},
           "identity_ok": all(run["identity_ok"] for run in runs), "config_hash": runs[0]["config_hash"]}
    if phase == "back":
        waits = [run["back_after_s"] for run in runs]
        row["back_after_s"] = None if None in waits else max(waits)
    return row


# What each check needs measured.
_NEEDS = {"back": ("healthy", "slow-5s", "back"), "one-slow": ("healthy", "one-slow"), "overloaded": ("overloaded",)}


def must_show(rows: list[dict]) -> list[Check]:
    """Of the phases that were run."""
    found = {row["phase"]: row for row in rows}

    def figure(phase: str, key: str) -> float | None:
        return found.get(phase, {}).get(key)

    healthy_ms = figure("healthy", "p99_ms") or float("nan")
    well = [row["lost"] for phase, row in found.items() if phase != "overloaded"]
    checks = {
        "back": [at_most(f"slow for 5 s: until its share is {SHARE_BACK} of what it was", figure("back", "back_after_s"), BACK_WITHIN_S,
                         "s")],
        "one-slow": [at_most(f"one {SLOWER} times slower: p99 ({TIMES} x the healthy one)", figure("one-slow", "p99_ms"),
                             TIMES * healthy_ms, "ms")],
        "overloaded": [at_most("all overloaded: extra load at the replicas (budget + 1 point)", figure("overloaded", "extra_load"),
                               BUDGET + 0.01),
                       at_least("all overloaded: requests without an answer in time", figure("overloaded", "lost"), 1)]}
    return [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 3),
            *(check for phase, needs in _NEEDS.items() if not rows or found.keys() >= set(needs) for check in checks[phase]),
            at_most("requests without an answer in the other phases", sum(well) if well else None, 0),
            at_least("runs in which the accounts add up (share)",
                     sum(row["identity_ok"] for row in rows) / len(rows) if rows else None, 1)]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = experiment.parser(NAME, __doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument("--phases", type=experiment.some_of(PHASES), default=list(PHASES),
                        help="with commas between them, run in their usual order")
    parser.add_argument("--scale", type=float, default=1.0, help="of all phases' lengths; below 1 it is a look")
    parser.add_argument("--lab", default=TAG, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    results = Results(NAME, arguments.into)
    runs: dict[str, list[dict]] = {phase: [] for phase in PHASES if phase in arguments.phases}
    with Lab(arguments.lab, replicas=len(REPLICAS)) as lab:
        rig = Rig(lab, results, arguments.scale, arguments.phases)
        for round_number in range(1, arguments.rounds + 1):
            cpu_time.wait_until_quiet(at_most_s=arguments.quiet_wait)
            for phase, record in rig.run(round_number).items():
                runs[phase].append(record)
                print(f"round {round_number} {phase:10} p50 {record['p50_ms']:7.2f}  p99 {record['p99_ms']:7.2f} ms  share of a "
                      f"{record['share']:.3f}  extra load {record['extra_load']:.4f}  lost {record['lost']}", flush=True)
    rows = [row_of(phase, found) for phase, found in runs.items()]
    return experiment.conclude(
        results, results.manifest(rig.configs, rounds=arguments.rounds), rows, must_show(rows),
        {"phase": "phase", "runs": "runs", "n": "n", "lost": "lost", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "share": "share of a",
         "back_after_s": "back after s", "hedges": "hedges", "failovers": "failovers", "extra_load": "extra load"},
        "standby_choice")


if __name__ == "__main__":
    run(main)
