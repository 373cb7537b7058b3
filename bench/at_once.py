# SPDX-License-Identifier: Apache-2.0
"""A second copy with the request while there is room: three replicas with a fixed number of workers and a queue, from 10 %
to 95 % of the highest rate they can serve. 2 % of the requests stall for 400 ms (`stall`, the published workload), or the
service times have a heavy tail (`tail`). Beside a fixed and an adaptive delay: clients that know all replicas, and a
coordinator in user space by LAEDGE's rule.

`--quick` is a look in two minutes. `--proxies 8` puts eight client hosts with a proxy each before the same replicas, into
results/at-once-8-proxies/.
"""

import argparse
import concurrent.futures
import contextlib
import copy
import dataclasses
import time
from collections.abc import Sequence

from bench import experiment, product
from bench.client_run import ClientRun, run_client
from bench.histogram import Histogram, merged, percentiles
from bench.manifest import binary
from bench.outcome import Check, Results, at_least, at_most, median, paired_at_most
from bench.pinning import hurry
from bench.replicas import BenchServer
from deploy.lab import VIP_RAW, Host, Lab
from deploy.lab.names import MOST_CLIENTS
from plots import looks
from plots.charts import Charts, Lines

NAME = "at-once"
TAG = "benchonce"
REPLICAS = ("a", "b", "c")
COORDINATOR = "d"  # its host
PORT, DELAY = 9000, "10ms"
REQUEST_BYTES, LOAD_OFFSET = 8, 4  # behind the id, the load that a server reports
IDLE, BUDGET = 0.3, 0.05  # the proxy's default budget
LOADS = (10, 20, 30, 50, 70, 80, 90, 95)  # percent of the highest rate
QUICK_LOADS = (30, 80)
WARM_UP_S = 1.0
AS_GOOD = 1.05  # two p99 that are as good as each other
_MOST_UNDER_WAY = 512
_IDS = 1 << 20  # that the servers tell apart at one time
_VIPS = tuple(VIP_RAW[0].rsplit(".", 1)[0] + f".{number}" for number in range(1, len(REPLICAS) + 1))
_PORTS = tuple(range(PORT, PORT + len(REPLICAS)))
_RAW = {"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4, "load": {"offset": LOAD_OFFSET}}
_ADAPTIVE = {"floor": "1ms", "cap": "200ms"}
_PERCENTILES = ("p50", "p99", "p999")
_SUMS = ("n", "lost")


@dataclasses.dataclass(frozen=True)
class Workload:
    """Each of the three servers' workers sleeps for a request's service time, so that the machine's processors are not what
    is measured. `mean_ms`: of a first copy."""

    flags: tuple[str, ...]
    workers: int
    mean_ms: float
    shared: bool  # what the servers know of each other's requests

    @property
    def highest(self) -> float:
        """Requests/s that all workers serve when none is ever without work: exact, and checked by `highest` below."""
        return len(REPLICAS) * self.workers * 1000 / self.mean_ms


# The tail is bounded Pareto, as service times that differ by orders of magnitude are modelled: of shape 1.5 its variance would be
# infinite without the bound, which is the stall's. p99 is 15 ms, and 1.8 % take longer than the delay, as many as stall. Each
# replica draws anew, so that the better of two is a matter of chance. Fewer workers: 32 of 2 ms would serve more than two
# processors can send and receive.
WORKLOADS = {
    "stall": Workload(("--rule=hash", "--fraction=0.02", "--service=2ms", "--stall=400ms", "--ttl=1s"), 32,
                      0.98 * 2 + 0.02 * 400, True),
    "tail": Workload(("--pareto=1.5", "--mean=2ms", "--longest=400ms"), 6, 2, False),
}


@dataclasses.dataclass(frozen=True)
class System:
    client: tuple[str, ...] = ()  # how hr-load hedges
    service: dict | None = None  # of the proxy
    coordinator: bool = False
    while_idle: bool = False  # and copies at once


# Every client but the coordinator's sends a request's first copy where it has the fewest in flight: to a replica, or to the
# virtual address of a service that this replica leads. So all workers are used, and systems differ in second copies alone.
SYSTEMS = {
    "direct": System(),
    "delay": System(service={}),
    "adaptive": System(service={"adaptive": _ADAPTIVE}),
    "at-once": System(service={"adaptive": _ADAPTIVE}, while_idle=True),
    "c-clone": System(client=("--copies=always",)),
    "coordinator": System(coordinator=True),
    "app": System(client=("--copies=idle", "--hedge", f"--hedge_delay={DELAY}", f"--hedge_budget={BUDGET}"), while_idle=True),
}


class Rig:
    def __init__(self, lab: Lab, seconds: float, idle: float = IDLE):
        self.lab, self.seconds, self.idle = lab, seconds, idle
        self._warm_up_s = min(WARM_UP_S, seconds / 2)

    def run(self, system: str, workload: str, load: int, round_number: int) -> dict:
        """One run: fresh servers, fresh proxies, a client in each client host."""
        made, of = SYSTEMS[system], WORKLOADS[workload]
        rate = of.highest * load / 100
        clients = self.lab.clients
        with contextlib.ExitStack() as stack:
            servers = self._servers(stack, of, round_number)
            if made.coordinator:
                host = self.lab.replica(COORDINATOR)
                servers_at = ",".join(self._addresses())
                middle = stack.enter_context(BenchServer(host, "hr-coordinator", [
                    f"--listen={host.ipv4}:{PORT}", f"--servers={servers_at}", f"--workers={of.workers}"]))
                target = f"{host.ipv4}:{PORT}"
            proxies = []
            if made.service is not None:
                proxies = [stack.enter_context(product.Product(host, f"bench-once{number}", self._services(made)))
                           for number, host in enumerate(clients)]
                target = ",".join(f"{vip}:{port}" for vip, port in zip(_VIPS, _PORTS, strict=True))
            elif not made.coordinator:
                target = ",".join(self._addresses())
            argvs = [self._client(made, of, target, rate / len(clients), round_number, number)
                     for number in range(len(clients))]
            # In truth they have processors of their own, ahead of everything else there.
            for server in [*servers, *([middle] if made.coordinator else [])]:
                hurry(server.pid)
            runs = self._run_clients(clients, argvs)
            statuses = [proxy.status_at_rest() for proxy in proxies]
        # The servers' counters are there once they have ended.
        config = {"system": system, "workload": workload, "load": load, "proxies": len(clients), "seconds": self.seconds,
                  "client": [flag for flag in argvs[0][1:] if not flag.startswith("--seed")],
                  "server": ["hr-echo-server", *of.flags, f"--workers={of.workers}"], "services": self._services(made)}
        return {**figures(runs, [server.counters for server in servers], statuses), "asked_rate": rate, "proxies": len(clients), "config": config,
                "argv": argvs[0], "clients": [each.report for each in runs], "cpu": [each.spent.as_json() for each in runs],
                "servers": [server.counters for server in servers], "status": statuses,
                "coordinator": middle.counters if made.coordinator else None}

    def highest(self, workload: str, seconds: float) -> dict:
        """What the servers answer while several times as many requests as workers are under way. Between the first second and the
        last of the sending, for at the end workers have nothing to do."""
        of, seen = WORKLOADS[workload], []
        under_way = min(_MOST_UNDER_WAY, 8 * len(REPLICAS) * of.workers)
        argv = [str(binary("hr-load")), f"--target={','.join(self._addresses())}", "--mode=highest", "--loop=closed",
                "--pause=0s", f"--in_flight={under_way}", f"--warmup={under_way}", "--timeout=10s", "--linger=0s",
                f"--requests={round(of.highest * seconds)}", *self._payload()]
        with contextlib.ExitStack() as stack:
            servers = self._servers(stack, of, 1)
            client = run_client(self.lab.client, argv, None, on_event=lambda event: seen.append((time.monotonic(), event)))
        served_ns = sum(server.counters["served_ns"] for server in servers)
        config = {"highest": workload, "client": argv[1:], "server": ["hr-echo-server", *of.flags, f"--workers={of.workers}"]}
        return {"wanted_rate": of.highest, "rate": rate_between(seen), "n": client.summary["n"], "lost": client.summary["lost"],
                "mean_ms": served_ns / 1e6 / sum(server.counters["requests"] for server in servers), "config": config,
                "client": client.report, "servers": [server.counters for server in servers]}

    def _addresses(self) -> list[str]:
        return [f"{self.lab.replica(name).ipv4}:{PORT}" for name in REPLICAS]

    def _payload(self) -> list[str]:
        return ["--workload=raw", f"--request_bytes={REQUEST_BYTES}", f"--load_offset={LOAD_OFFSET}"]

    def _servers(self, stack: contextlib.ExitStack, of: Workload, round_number: int) -> list[BenchServer]:
        """Every system of a round meets the same stalls and times; every round others."""
        shared = self.lab.client.scratch("seen") / f"{time.monotonic_ns()}"
        stack.callback(shared.unlink, missing_ok=True)
        found = []
        for number, name in enumerate(REPLICAS):
            host = self.lab.replica(name)
            own = [f"--shared={shared}", f"--seed={round_number}"] if of.shared else [f"--seed={10 * round_number + number}"]
            found.append(stack.enter_context(BenchServer(host, "hr-echo-server", [
                f"--listen={','.join(f'{host.ipv4}:{port}' for port in _PORTS)}", f"--workers={of.workers}", f"--load_offset={LOAD_OFFSET}", *own,
                *of.flags])))
        return found

    def _services(self, system: System) -> list[dict] | None:
        """One led by each replica. A backend belongs to one service, so each has a port of its own at the servers."""
        if system.service is None:
            return None
        own = {**system.service, **({"idle_copies": f"{self.idle:.0%}"} if system.while_idle else {})}
        found = []
        for place, (vip, port) in enumerate(zip(_VIPS, _PORTS, strict=True)):
            order = (*REPLICAS[place:], *REPLICAS[:place])
            backends = {name: self.lab.replica(name).ipv4 for name in order}
            found.append(product.service(f"raw-{order[0]}", vip, port, "raw", backends, delay=DELAY,
                                         **copy.deepcopy({"raw": _RAW, **own})))
        return found

    def _client(self, system: System, of: Workload, target: str, rate: float, round_number: int, number: int) -> list[str]:
        clients = len(self.lab.clients)
        idle = [f"--idle_below={self.idle:g}", f"--workers={of.workers}"] if system.while_idle and system.client else []
        return [str(binary("hr-load")), f"--target={target}", "--mode=at-once", "--loop=open", "--arrivals=poisson",
                f"--rate={rate:.3f}", f"--seconds={self.seconds:g}", f"--warmup={round(rate * self._warm_up_s)}",
                f"--seed={100 * round_number + number}", f"--first_id={number * (_IDS // clients)}", "--timeout=1s",
                "--linger=500ms", *self._payload(), *system.client, *idle]

    def _run_clients(self, hosts: Sequence[Host], argvs: Sequence[list[str]]) -> list[ClientRun]:
        with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
            begun = [pool.submit(run_client, host, argv, self.lab, hurried=True)
                     for host, argv in zip(hosts, argvs, strict=True)]
            return [each.result() for each in begun]


def rate_between(seen: Sequence[tuple[float, dict]]) -> float:
    """Answers in a second, from the first report (when, event) to the last before everything was sent."""
    sending = [(at_s, event["answered"]) for at_s, event in seen if event["event"] == "tick" and event["sent"] < event["total"]]
    if len(sending) < 2:
        return float("nan")
    return (sending[-1][1] - sending[0][1]) / (sending[-1][0] - sending[0][0])


def figures(clients: Sequence[ClientRun], servers: Sequence[dict], statuses: Sequence[dict]) -> dict:
    """Of all clients together. Copies are counted at the servers."""
    together = merged(Histogram.from_json(client.report["histograms"]["latency"]) for client in clients)
    n = sum(client.summary["n"] for client in clients)
    sent = n + sum(client.summary["warmup"] for client in clients)
    seen = [product.service_figures(status, service["name"]) for status in statuses for service in status["services"]]
    return {"n": n, "lost": sum(client.summary["lost"] for client in clients),
            **percentiles([together], of=_PERCENTILES), "latency": together.to_json(),
            "extra_load": sum(server["requests"] for server in servers) / sent - 1,
            # Each client's runner samples the whole lab from the begin to the end of its part.
            "cpu_us_per_request": sum(client.spent.experiment_us for client in clients) / len(clients) / n,
            "identity_ok": all(each["identity_ok"] for each in seen)}


def row_of(workload: str, load: int, system: str, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together, and `p99_ms_rounds` of each; extra load and CPU are medians over the runs, counts
    are sums."""
    if system == "highest":
        shown = {key: runs[-1][key] for key in ("wanted_rate", "rate", "n", "lost", "mean_ms", "config_hash")}
        return {"system": system, "workload": workload, "load": load, "runs": len(runs), **shown}
    return {"system": system, "workload": workload, "load": load, "proxies": runs[0]["proxies"], "runs": len(runs),
            **{key: sum(run[key] for run in runs) for key in _SUMS},
            **percentiles((Histogram.from_json(run["latency"]) for run in runs), of=_PERCENTILES),
            **{key: median(run[key] for run in runs) for key in ("extra_load", "cpu_us_per_request")},
            "p99_ms_rounds": {str(run["round"]): run["p99_ms"] for run in runs},
            "identity_ok": all(run["identity_ok"] for run in runs), "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    found = {(row["workload"], row["load"], row["system"]): row for row in rows}
    cells = [row for row in rows if row["system"] != "highest"]
    checks = [at_least("runs of each row", min((row["runs"] for row in cells), default=0), 3)]
    for workload in dict.fromkeys(row["workload"] for row in rows):
        checks += _of_workload(workload, found)
    return [*checks, at_least("runs behind a proxy in which the accounts add up (share)",
                              sum(row["identity_ok"] for row in cells) / len(cells) if cells else None, 1)]


def _of_workload(workload: str, found: dict[tuple[str, int, str], dict]) -> list[Check]:
    def figure(load: int, system: str, key: str) -> float | None:
        return found.get((workload, load, system), {}).get(key)

    checks = []
    if highest := found.get((workload, 100, "highest")):
        checks.append(at_least(f"{workload}: rate with all workers taken (0.9 of the highest rate)", highest["rate"],
                               0.9 * highest["wanted_rate"], "/s"))
    for load in sorted({load for name, load, system in found if name == workload and system != "highest"}):
        title = f"{workload}, {load} %"
        if load <= 100 * IDLE and workload == "stall":
            checks += [at_least(f"{title}: delay p99", figure(load, "delay", "p99_ms"), 10, "ms"),
                       at_most(f"{title}: at-once p99 (goal 2.6)", figure(load, "at-once", "p99_ms"), 3, "ms")]
        if load == 80:
            checks.append(at_most(f"{title}: at-once extra load", figure(load, "at-once", "extra_load"), 0.06))
            checks.append(paired_at_most(f"{title}: at-once p99 / adaptive's of the same round", _ratios(found, workload, load, ("adaptive",)), AS_GOOD))
        checks.append(paired_at_most(f"{title}: at-once p99 / that of the better of adaptive and c-clone",
                                     _ratios(found, workload, load, ("adaptive", "c-clone")), AS_GOOD))
    return checks


def _ratios(found: dict, workload: str, load: int, systems: Sequence[str]) -> list[float]:
    """Of each round: at-once's p99 and that of the system of these that has the lower one over all; none when one was not measured."""
    rows = [found.get((workload, load, system)) for system in (*systems, "at-once")]
    if None in rows:
        return []
    best, ours = min(rows[:-1], key=lambda row: row["p99_ms"])["p99_ms_rounds"], rows[-1]["p99_ms_rounds"]
    return [ours[number] / best[number] for number in ours if number in best]


_OVER_LOAD = {"panel": ("workload",), "x": "load", "label": "load (% of the highest rate)", "where": lambda row: row["system"] != "highest",
              "titles": {"stall": "2 ms, 2 % stall for 400 ms", "tail": "bounded Pareto"}}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab(arguments.lab, replicas=len(REPLICAS) + 1, clients=arguments.proxies) as lab:
        rig = Rig(lab, arguments.seconds, arguments.idle)
        if arguments.highest_seconds > 0:
            for turn in running.turns([1], workload=arguments.workloads, load=[100], system=["highest"]):
                turn.done(rig.highest(turn["workload"], arguments.highest_seconds))
        for turn in running.turns(workload=arguments.workloads, load=arguments.loads, system=arguments.systems):
            turn.done(rig.run(turn["system"], turn["workload"], turn["load"], turn.round))


def _loads(text: str) -> list[int]:
    try:
        loads = [int(part) for part in text.split(",")]
    except ValueError:
        loads = [0]
    if not all(1 <= load <= 150 for load in loads):
        raise argparse.ArgumentTypeError(f"'{text}': percents of the highest rate, 1 to 150, with commas between them")
    return loads


def _settle(_parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.into is None and arguments.proxies > 1:
        arguments.into = Results.folder_named(f"{NAME}-{arguments.proxies}-proxies")


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("workload", "load", "system"), must_show, lambda *cell: [row_of(*cell)],
    {"workload": "workload", "load": "load %", "system": "system", "n": "n", "lost": "lost", "p50_ms": "p50 ms", "p99_ms": "p99 ms",
     "p999_ms": "p99.9 ms", "extra_load": "extra load", "cpu_us_per_request": "cpu us", "rate": "rate"},
    Charts("Three replicas over their load", looks.AT_ONCE, "system", (
        *(Lines(name, y=key, **_OVER_LOAD) for key, name in (("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p99.9"))),
        Lines("extra load", y="extra_load", scale=100, unit="%", **(_OVER_LOAD | {"log": ""})),
        Lines("CPU of all hosts", y="cpu_us_per_request", unit="us per request", **(_OVER_LOAD | {"log": ""})))),
    measure=measure, rounds=3, tag=TAG, settle=_settle,
    quick={"rounds": 1, "quiet_wait": 0.0, "loads": list(QUICK_LOADS), "seconds": 1.0, "highest_seconds": 3.5}, options=(
        experiment.some("--systems", SYSTEMS), experiment.some("--workloads", WORKLOADS),
        ("--loads", {"type": _loads, "default": list(LOADS), "help": "percents of the highest rate"}),
        experiment.number("--seconds", 10.0, 0.1, 600, help="of each run"),
        experiment.number("--highest-seconds", 10.0, 0.0, 600, help="of the check that the highest rate is reached, about; 0: no check"),
        experiment.number("--idle", IDLE, 0.01, 1, help="share of a replica's load, up to which at-once and app take it for idle"),
        experiment.number("--proxies", 1, 1, MOST_CLIENTS, help="client hosts with a proxy each")))
