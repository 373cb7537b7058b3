# SPDX-License-Identifier: Apache-2.0
"""What it costs that each source meets one worker: 512 sources with an address each send to a collector of 2, 4 and 8 workers, over UDP,
TCP and both, which share one socket, have sockets with SO_REUSEPORT, or stand behind Hedgerow's steering, HAProxy (TCP) or nginx (stream).

Idle workers count messages; working ones spend a stated time on each as well. CPU is that of workers and of what stands before them, and
the kernel's share that is charged to the sources' process or to none: the steering program runs there. Run by `./dev bench steer`; writes
results/steer/ and exits 1 when something it must show is missed.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
from pathlib import Path

from bench import bpf_stats, cpu_time, experiment, highest_rate, steer_rig
from bench.histogram import Histogram, percentiles
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most, median
from bench.pinning import client_and_server
from bench.steer_systems import SYSTEMS, System, Wanted, program_ns
from deploy.lab import Lab
from plots import looks
from plots.charts import Bars, Charts

NAME = "steer"
TAG = "benchsteer"
WANTED_ROUNDS = 10
SOURCES = 512
WORKERS = (2, 4, 8)
TRANSPORTS = ("udp", "tcp", "both")
LOADS = ("working", "idle")
RATE = 10_000
WORK_US = 20       # of a working worker, for each message: about what a collector takes that decodes, looks up and aggregates
ANSWER_EVERY = 8   # of a source's messages, one asks for an answer: collectors are silent, and times are needed
BURSTS = (512, 10_000)
LESS_THAN_HAPROXY = 0.84  # of its total CPU, working: the published system's saving
PART_OF_ADDED = 0.2       # of what a proxy adds to one socket, idle
_CLIMB_FROM = 20_000
_IN_TIME_US = 100_000  # p99 of a rate that a system can keep
TRIAL_S = 1.0
_SHOW = ("user_us", "system_us", "total_us")


@dataclasses.dataclass(frozen=True)
class Cell:
    system: str
    transport: str
    workers: int
    load: str

    @property
    def name(self) -> str:
        return f"{self.load}-{self.transport}-{self.workers}-{self.system}"


def cells(arguments: argparse.Namespace) -> list[Cell]:
    return [Cell(system, transport, workers, load)
            for load, transport, workers, system in itertools.product(arguments.loads, arguments.transports, arguments.workers, arguments.systems)
            if transport in SYSTEMS[system].transports]


# -- processor time ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Used:
    """So far, in microseconds."""

    user: float
    system: float


def used_by(pids: list[int]) -> Used:
    """The running time of the processes, exact to a microsecond, by the shares of user and system that the ticks found; as getrusage(2) does."""
    user = system = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            ticks_user, ticks_system, total = int(fields[11]), int(fields[12]), cpu_time.process_us(pid)
            share = ticks_user / (ticks_user + ticks_system) if ticks_user + ticks_system else 0.5
            user, system = user + total * share, system + total * (1 - share)
    return Used(user, system)


class Meter:
    """What the workers and what stands before them used between two events of the sources."""

    def __init__(self, system: System):
        self._pids = system.pids()
        self._seen: dict[str, dict[str, Used]] = {}

    def __call__(self, event: dict) -> None:
        self._seen[event["event"]] = {role: used_by(pids) for role, pids in self._pids.items()}

    def used(self, role: str) -> Used:
        before, after = self._seen["measuring"][role], self._seen["measured"][role]
        return Used(max(0.0, after.user - before.user), max(0.0, after.system - before.system))


def cpu_of(summary: dict, workers: Used, others: Used, kernel_us: float) -> dict:
    """Microseconds for each message. The sources' own user time is left out; their system time is the same for all systems but
    for the packet's way to the socket, which a veth's sender walks."""
    n = summary["n"]
    user, system = workers.user + others.user, workers.system + others.system + summary["system_us"] + kernel_us
    return {"user_us": user / n, "system_us": system / n, "total_us": (user + system) / n, "workers_us": (workers.user + workers.system) / n,
            "before_them_us": (others.user + others.system) / n, "sources_system_us": summary["system_us"] / n, "kernel_us": kernel_us / n}


# -- one system --------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, lab: Lab, arguments: argparse.Namespace, steps_per_us: float):
        self.lab, self.arguments, self.steps_per_us = lab, arguments, steps_per_us
        self.server = lab.replicas[0]
        steer_rig.route_sources(lab, self.server)

    def wanted(self, cell: Cell) -> Wanted:
        steps = round(WORK_US * self.steps_per_us) if cell.load == "working" else 0
        return Wanted(cell.workers, cell.transport, self.arguments.sources, work_steps=steps)

    def system(self, cell: Cell) -> System:
        return SYSTEMS[cell.system](self.server, self.wanted(cell), "bench")

    def run(self, cell: Cell, climbs: bool) -> dict:
        with self.system(cell) as system:
            row = self.at_rate(system, cell, RATE, self.arguments.seconds, Meter(system))
            row |= system.memory()
            if cell.system == "steer":
                row["program_ns"] = self.program_ns(system, cell)
        row["worker_reports"] = system.reports()
        if cell.load == "idle" and cell.transport != "udp":
            row |= self.bursts(cell)
        if cell.load == "idle" and climbs:
            row["highest_rate"] = self.highest(cell)
        return row

    def load(self, cell: Cell, rate: float, seconds: float) -> list[str]:
        return steer_rig.load_command(steer_rig.target(self.server), self.arguments.sources, cell.transport, rate=f"{rate:g}",
                                      seconds=f"{seconds:g}", answer_every=ANSWER_EVERY)

    def at_rate(self, system: System, cell: Cell, rate: float, seconds: float, meter: Meter | None = None) -> dict:
        client = steer_rig.stream(self.lab, self.load(cell, rate, seconds), meter)
        summary = client.summary
        counted = steer_rig.counted_when_settled(system.counts, summary["sent"])
        by_slot = system.counts()
        met = steer_rig.workers_met(by_slot, self.arguments.sources)
        latency = Histogram()
        for transport in ("udp", "tcp"):
            latency.merge(Histogram.from_json(client.report["histograms"][transport]))
        row = {"latency": latency.to_json(), "rate": rate, "n": summary["n"], "sent": summary["sent"], "lost": max(0, summary["sent"] - counted),
               "achieved_rate": (summary["n"] - summary["unsent"]) / seconds, "unanswered": summary["wanted"] - summary["answered"],
               "p50_us": latency.quantile(0.5) / 1e3, "p99_us": latency.quantile(0.99) / 1e3,
               "sources_of_two": sum(len(slots) > 1 for slots in met), "sources_met": sum(bool(slots) for slots in met),
               "worst_over_mean": steer_rig.worst_over_mean(by_slot), "failed_connects": summary["connect_failures"] + summary["connections_lost"],
               "client": client.report}
        if meter is not None:
            row |= cpu_of(summary, meter.used("workers"), meter.used("others"), client.spent.kernel_us)
            row |= {"machine_us": client.spent.experiment_us / summary["n"], "cpu": client.spent.as_json()}
        return row

    def program_ns(self, system: System, cell: Cell) -> float | None:
        with bpf_stats.enabled():
            before = system.program_totals()
            steer_rig.stream(self.lab, self.load(cell, RATE, 0.5))
            return program_ns(before, system.program_totals())

    def bursts(self, cell: Cell) -> dict:
        """Each on a system that has just started."""
        row = {}
        for size in self.arguments.bursts:
            with self.system(cell) as system:
                argv = steer_rig.load_command(steer_rig.target(self.server), self.arguments.sources, "tcp", visits=size, timeout="10s")
                done = steer_rig.visit(self.lab, argv, self.server.scratch("visits"))
                met = steer_rig.workers_met(system.counts(), self.arguments.sources)
            row[f"burst_{size}_failed"] = done["failed"]
            row[f"burst_{size}_ms"] = done["took_ms"]
            row[f"burst_{size}_of_two"] = sum(len(slots) > 1 for slots in met)
        return row

    def highest(self, cell: Cell) -> int | None:
        best = highest_rate.highest(lambda rate: self._trial(cell, rate), ("lost", "unanswered"), _IN_TIME_US, _CLIMB_FROM,
                                    self.arguments.climb_to)
        return best and best["rate"]

    def _trial(self, cell: Cell, rate: int) -> dict:
        """A fresh system each time: what a failed trial left in queues is not the next one's."""
        with self.system(cell) as system:
            return self.at_rate(system, cell, rate, self.arguments.trial)


def steps_per_us() -> float:
    done = subprocess.run([binary("hr-steer-collector"), "--calibrate"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["steps_per_us"]


# -- judgement ---------------------------------------------------------------------------------------------------


def added_us(rounds: list[dict[Cell, dict]], cell: Cell) -> list[float]:
    """Of each round, what all processes and the kernel took beyond what they took with one shared socket. The sources' own time is the
    same in both, so nothing here depends on how ticks divide it into user and system."""
    one = dataclasses.replace(cell, system="one")
    return [done[cell]["machine_us"] - done[one]["machine_us"] for done in rounds if cell in done and one in done]


def row_of(rounds: list[dict[Cell, dict]], cell: Cell) -> dict:
    runs = [done[cell] for done in rounds if cell in done]
    row = {**dataclasses.asdict(cell), "variant": f"{cell.load}, {cell.transport}, {cell.workers} workers", "runs": len(runs)}
    for key in ("n", "lost", "unanswered", "failed_connects"):
        row[key] = sum(one[key] for one in runs)
    row["sources_of_two"] = max(one["sources_of_two"] for one in runs)
    row["sources_met"] = min(one["sources_met"] for one in runs)
    for key in ("p50_us", "p99_us", *_SHOW, "machine_us", "workers_us", "before_them_us", "sources_system_us", "kernel_us", "worst_over_mean", "rss_bytes",
                "workers_rss_bytes", "map_bytes", "program_ns", "highest_rate", *(f"burst_{size}_ms" for size in BURSTS)):
        found = [one[key] for one in runs if one.get(key) is not None]
        row[key] = median(found) if found else None
        row[f"{key}_min"], row[f"{key}_max"] = (min(found), max(found)) if found else (None, None)
    for size in BURSTS:
        failed = [one[f"burst_{size}_failed"] for one in runs if f"burst_{size}_failed" in one]
        row[f"burst_{size}_failed"] = sum(failed) if failed else None
        of_two = [one[f"burst_{size}_of_two"] for one in runs if f"burst_{size}_of_two" in one]
        row[f"burst_{size}_of_two"] = max(of_two) if of_two else None
    row |= percentiles((Histogram.from_json(one["latency"]) for one in runs), "us", ("p50", "p99"))
    added = added_us(rounds, cell)
    row["added_us"] = median(added) if added else None
    row["config_hash"] = runs[0]["config_hash"]
    return row


def must_show(rows: list[dict]) -> list[Check]:
    found = {Cell(row["system"], row["transport"], row["workers"], row["load"]): row for row in rows}
    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), WANTED_ROUNDS)]
    places = sorted({(cell.load, cell.transport, cell.workers) for cell in found})
    if not any(cell.system == "steer" for cell in found):
        return [*checks, at_least("rows of steer", 0, 1)]

    def figure(system: str, place: tuple, key: str) -> float | None:
        load, transport, workers = place
        return found.get(Cell(system, transport, workers, load), {}).get(key)

    for place in places:
        where = f"{place[0]}, {place[1]}, {place[2]} workers"
        ours = figure("steer", place, "total_us")
        if place[0] == "working" and place[1] == "tcp":
            other = figure("haproxy", place, "total_us")
            checks.append(at_most(f"{where}: total CPU / HAProxy's", ours / other if ours is not None and other else None, LESS_THAN_HAPROXY))
        if place[0] == "idle":
            for proxy in ("haproxy", "nginx"):
                if place[1] in SYSTEMS[proxy].transports:
                    theirs = figure(proxy, place, "added_us")
                    checks.append(at_most(f"{where}: CPU added to one socket (a fifth of {proxy}'s)", figure("steer", place, "added_us"),
                                          theirs * PART_OF_ADDED if theirs is not None else float("nan"), "us per message"))
        checks.append(at_most(f"{where}: sources that met a second worker", figure("steer", place, "sources_of_two"), 0))
        checks.append(at_most(f"{where}: messages lost or not answered",
                              _sum(figure("steer", place, "lost"), figure("steer", place, "unanswered")), 0))
        if place[1] != "udp":
            checks.append(at_most(f"{where}: failed or lost connections", figure("steer", place, "failed_connects"), 0))
        if place[0] == "idle" and place[1] != "udp":
            for size in BURSTS:
                checks.append(at_most(f"{where}: failed connects of {size} at once", figure("steer", place, f"burst_{size}_failed"), 0))
                checks.append(at_most(f"{where}: of them, sources that met a second worker",
                                      figure("steer", place, f"burst_{size}_of_two"), 0))
    return checks


def _sum(*figures: float | None) -> float | None:
    return None if any(each is None for each in figures) else sum(figures)


# -- the run -----------------------------------------------------------------------------------------------------


def rows_of(records: list[dict]) -> list[dict]:
    rounds: dict[int, dict[Cell, dict]] = {}
    for record in records:
        cell = Cell(record["system"], record["transport"], record["workers"], record["load"])
        rounds.setdefault(record["round"], {})[cell] = record
    return [row_of(list(rounds.values()), cell) for cell in dict.fromkeys(cell for done in rounds.values() for cell in done)]


_BY = {"group": "transport", "groups": {name: name for name in TRANSPORTS}, "panel": ("workers",), "titles": {n: f"{n} workers" for n in WORKERS}}
_IDLE = {"where": lambda row: row["load"] == "idle", **_BY}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    todo = cells(arguments)
    running.expect(arguments.rounds * len(todo))
    with Lab(arguments.lab, replicas=1) as lab:
        arguments.steps_per_us = steps_per_us()
        bench = Bench(lab, arguments, arguments.steps_per_us)
        for number in range(1, arguments.rounds + 1):
            for _, systems in itertools.groupby(todo, key=lambda cell: (cell.load, cell.transport, cell.workers)):
                for cell in experiment.rotated(list(systems), number):
                    if turn := running.turn(number, **dataclasses.asdict(cell)):
                        turn.done({**bench.run(cell, climbs=number <= arguments.climb_rounds), "config": {
                            **dataclasses.asdict(cell), "settings": bench.system(cell).config(), "rate": RATE, "sources": arguments.sources,
                            "bytes": steer_rig.MESSAGE_BYTES, "answer_every": ANSWER_EVERY,
                            "work_us": WORK_US if cell.load == "working" else 0}})


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _settle(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if any(not 1 <= workers <= 64 for workers in arguments.workers):
        parser.error("--workers are 1 to 64")


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, (), must_show, rows_of,
    {"variant": "workers", "system": "system", "runs": "runs", "total_us": "cpu us", "user_us": "user us", "system_us": "system us",
     "added_us": "added us", "p50_us": "p50 us", "p99_us": "p99 us", "highest_rate": "highest/s", "lost": "lost",
     "sources_of_two": "of two workers", "worst_over_mean": "worst/mean", "burst_512_failed": "512 failed",
     "burst_10000_failed": "10k failed", "rss_bytes": "rss", "map_bytes": "maps", "program_ns": "program ns"},
    Charts("Sources to workers", looks.STEERING, "system", (
        Bars("CPU, working", y="total_us", unit="us per message", where=lambda row: row["load"] == "working", **_BY),
        Bars("CPU, idle", y="total_us", unit="us per message", **_IDLE), Bars("p99, idle", y="p99_us", unit="us", log=True, **_IDLE),
        Bars("highest rate without loss", y="highest_rate", unit="thousand messages/s", scale=1e-3, **_IDLE),
        Bars("10,000 connects until answered", y="burst_10000_ms", **_IDLE))),
    measure=measure, tag=TAG, notes=lambda _: {"pinned": client_and_server(), "cpus_used": os.cpu_count(), "work_us": WORK_US},
    quick={"rounds": 1, "workers": [4], "seconds": 1.0, "climb_rounds": 0, "quiet_wait": 2.0}, options=(
        experiment.some("--systems", SYSTEMS), experiment.some("--transports", TRANSPORTS), experiment.some("--loads", LOADS, help="of the workers"),
        ("--workers", {"type": _numbers, "default": list(WORKERS), "metavar": "N,N", "help": "how many, each 1 to 64"}),
        experiment.number("--sources", SOURCES, 1, 60_000), experiment.number("--seconds", 3.0, 0.1, 600, help="length of the runs at the fixed rate"),
        ("--bursts", {"type": _numbers, "default": list(BURSTS), "metavar": "N,N", "help": "connects at once"}),
        experiment.number("--climb-rounds", 3, 0, 1000, help="rounds that look for the highest rate, too"),
        experiment.number("--trial", TRIAL_S, 0.1, 60, help="length of a trial of the climb, in seconds"),
        experiment.number("--climb-to", highest_rate.CLIMB_TO, 1.0, 1e7, help="messages per second at which the climb ends")), settle=_settle)
