# SPDX-License-Identifier: Apache-2.0
"""What a proxy costs: one real DNS server asked directly, behind Hedgerow, behind nginx (stream, udp) and behind dnsdist, all
from Debian, at two fixed rates and at the highest rate without loss.

Added CPU is all of the machine's (client, server, proxy, and the kernel's work that no process pays, so that Hedgerow's
programs, which run in the sender's system call and in the receiver's interrupt, are counted), less what the same round's
direct run took. Run by `./dev bench proxy-cost`; writes results/proxy-cost/ and exits 1 when something it must show is
missed.
"""

import argparse
import contextlib
import statistics

from bench import experiment, highest_rate, product
from bench.client_run import ClientRun, run_client
from bench.histogram import of_client, percentiles
from bench.manifest import binary
from bench.other_proxies import DNSDIST_PORT, NGINX_PORT, Dnsdist, Nginx, OtherProxy, rss_bytes
from bench.outcome import Check, Results, at_least, at_most, median
from bench.pinning import CLIENT_CPU, SERVER_CPU, client_and_server, on_cpu, pin
from deploy.lab import VIP_DNS, Lab
from deploy.lab.servers import DNS_SERVERS, DnsServer
from deploy.lab.servers.zone import NAMES
from plots import looks
from plots.charts import Bars, Charts

NAME = "proxy-cost"
SYSTEMS = ("direct", "hedgerow", "nginx", "dnsdist")
RATES = {"2000": 2_000, "10000": 10_000}
HIGHEST = "highest"
PORT = 53
# As many client ports: reuseport spreads by port, and a resolver that asks uses many.
_SOCKETS = 16
_CLIMB_FROM = 10_000
_IN_TIME_US = 10_000  # p99 of a rate that a system can keep: the delay of Hedgerow's service
TRIAL_S = 1.5


class Rig:
    """Two replicas of the server under test, and what stands before them."""

    def __init__(self, lab: Lab, server: str):
        self.lab, self.server = lab, server
        self.replicas: list[DnsServer] = [DNS_SERVERS[server](host, PORT) for host in lab.replicas]
        self.servers = [f"{host.ipv4}:{PORT}" for host in lab.replicas]
        backends = {host.name: host.ipv4 for host in lab.replicas}
        self.service = product.service("dns", VIP_DNS[0], PORT, "dns", backends)

    def serve(self, stack: contextlib.ExitStack) -> None:
        for replica in self.replicas:
            stack.enter_context(replica)
            for pid in replica.host.pids():  # a proxy may use all processors, as it could on any host
                pin(pid, SERVER_CPU)

    def target(self, system: str) -> str:
        address = self.lab.client.ipv4
        return {"direct": self.servers[0], "hedgerow": f"{VIP_DNS[0]}:{PORT}", "nginx": f"{address}:{NGINX_PORT}",
                "dnsdist": f"{address}:{DNSDIST_PORT}"}[system]

    def other(self, system: str) -> OtherProxy:
        kind, port = {"nginx": (Nginx, NGINX_PORT), "dnsdist": (Dnsdist, DNSDIST_PORT)}[system]
        return kind(self.lab.client, port, self.servers)

    def settings(self, system: str) -> dict | str | None:
        """What defines the row beside its rate."""
        if system == "hedgerow":
            return self.service
        return self.other(system).config() if system in ("nginx", "dnsdist") else None

    def client(self, system: str, rate: float, seconds: float) -> ClientRun:
        argv = [str(binary("hr-load")), f"--target={self.target(system)}", f"--mode={system}", "--workload=dns",
                f"--names={NAMES}", "--loop=open", f"--rate={rate}", f"--seconds={seconds}", f"--sockets={_SOCKETS}",
                "--warmup=200", "--timeout=1s", "--linger=200ms"]
        return run_client(self.lab.client, on_cpu(argv, CLIENT_CPU), self.lab)


class Standing:
    """A system that is up; knows the memory it takes."""

    def __init__(self, rig: Rig, system: str):
        self.rig, self.system = rig, system
        self._stack = contextlib.ExitStack()
        self._product: product.Product | None = None
        self._other: OtherProxy | None = None

    def __enter__(self) -> "Standing":
        if self.system == "hedgerow":
            self._product = self._stack.enter_context(
                product.Product(self.rig.lab.client, "bench-cost", [self.rig.service]))
        elif self.system != "direct":
            self._other = self._stack.enter_context(self.rig.other(self.system))
        return self

    def __exit__(self, *exc) -> None:
        self._stack.__exit__(*exc)

    def memory(self) -> dict:
        if self._product is not None:
            status = self._product.status()
            return {"rss_bytes": rss_bytes([int(status["pid"])]),
                    "map_bytes": sum(product.number(each.get("bytes")) for each in status.get("maps", {}).values())}
        return {"rss_bytes": rss_bytes(self._other.pids()) if self._other is not None else 0, "map_bytes": 0}

    def passed_through(self) -> int:
        """Requests that Hedgerow has forwarded and not tracked so far; the others know no such thing."""
        if self._product is None:
            return 0
        seen = product.service_figures(self._product.status_at_rest(), "dns")
        if not seen["identity_ok"]:
            raise RuntimeError("the proxy's books do not balance")
        return seen["passed_through"]


def measure_at(standing: Standing, rate: float, seconds: float) -> dict:
    before = standing.passed_through()
    client = standing.rig.client(standing.system, rate, seconds)
    summary = client.summary
    return {"rate": rate, "n": summary["n"], "lost": summary["lost"], "wrong": summary["wrong"],
            "passed_through": standing.passed_through() - before,
            "achieved_rate": summary["rate_per_second"], "p50_us": summary["p50_ms"] * 1e3,
            "p99_us": summary["p99_ms"] * 1e3, "cpu_us_per_request": client.spent.experiment_us / summary["n"],
            "kernel_us_per_request": client.spent.kernel_us / summary["n"], "cpu": client.spent.as_json(),
            "client": client.report}


def highest_without_loss(standing: Standing, trial_s: float = TRIAL_S, climb_to: float = highest_rate.CLIMB_TO) -> dict | None:
    return highest_rate.highest(lambda rate: measure_at(standing, rate, trial_s), ("lost", "wrong", "passed_through"), _IN_TIME_US,
                                _CLIMB_FROM, climb_to)


def one_round(rig: Rig, system: str, arguments: argparse.Namespace) -> dict[str, dict]:
    runs = {}
    with contextlib.ExitStack() as stack:
        rig.serve(stack)
        standing = stack.enter_context(Standing(rig, system))
        for variant, rate in RATES.items():
            runs[variant] = {**measure_at(standing, rate, arguments.seconds), **standing.memory()}
        best = highest_without_loss(standing, arguments.trial, arguments.climb_to)
        if best is not None:
            runs[HIGHEST] = {**best, **standing.memory()}
    return runs


def choose_server(lab: Lab, results: Results) -> str:
    """The server that takes the highest rate when it is asked directly: the one that hides a proxy's cost least."""
    rates = {}
    for name in DNS_SERVERS:
        rig = Rig(lab, name)
        with contextlib.ExitStack() as stack:
            rig.serve(stack)
            best = highest_without_loss(stack.enter_context(Standing(rig, "direct")))
        if best is None:
            print(f"{name:8} asked directly: keeps no rate", flush=True)
            continue
        results.write_raw(f"server-{name}", {"server": name, "variant": "server", "system": "direct", **best})
        rates[name] = best["rate"]
        print(f"{name:8} asked directly: {best['rate']:7.0f}/s without loss", flush=True)
    return max(rates, key=rates.__getitem__)


def added_us(rounds: list[dict[str, dict[str, dict]]], system: str, variant: str) -> list[float]:
    """Of each round, what the system's run took beyond the direct run of the same round, per request."""
    return [done[system][variant]["cpu_us_per_request"] - done["direct"][variant]["cpu_us_per_request"]
            for done in rounds if variant in done.get(system, {}) and variant in done.get("direct", {})]


def row_of(rounds: list[dict], system: str, variant: str, server: str) -> dict:
    runs = [done[system][variant] for done in rounds if variant in done.get(system, {})]
    row = {"system": system, "variant": variant, "server": server, "runs": len(runs),
           "n": sum(one["n"] for one in runs), "lost": sum(one["lost"] for one in runs),
           "passed_through": sum(one["passed_through"] for one in runs)}
    row |= percentiles(map(of_client, runs), "us", ("p50", "p99"))
    for key in ("rate", "cpu_us_per_request", "kernel_us_per_request", "rss_bytes", "map_bytes"):
        found = [one[key] for one in runs]
        row[key], row[f"{key}_min"], row[f"{key}_max"] = median(found), min(found), max(found)
    added = added_us(rounds, system, variant)
    row["added_us"] = median(added) if added else None
    row["added_us_stdev"] = statistics.stdev(added) if len(added) > 1 else None
    row["config_hash"] = runs[0]["config_hash"]
    return row


def must_show(rows: list[dict]) -> list[Check]:
    found = {(row["system"], row["variant"]): row for row in rows}

    def figure(system: str, variant: str, key: str) -> float | None:
        return found.get((system, variant), {}).get(key)

    def share(a: float | None, b: float | None) -> float | None:
        return a / b if a is not None and b else None

    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10)]
    for variant in RATES:
        p50 = share(figure("hedgerow", variant, "p50_us"), figure("direct", variant, "p50_us"))
        checks.append(at_most(f"{variant}/s: hedgerow's p50 / direct", p50, 1.15))
        nginx = figure("nginx", variant, "added_us")
        checks.append(at_most(f"{variant}/s: CPU that hedgerow adds (a fifth of nginx's)",
                              figure("hedgerow", variant, "added_us"), nginx / 5 if nginx is not None else float("nan"),
                              "us per request"))
        checks.append(at_most(f"{variant}/s: requests lost behind hedgerow", figure("hedgerow", variant, "lost"), 0))
        checks.append(at_most(f"{variant}/s: requests that hedgerow did not track", figure("hedgerow", variant, "passed_through"), 0))
    ours = figure("hedgerow", HIGHEST, "rate")
    checks.append(at_least("highest rate: hedgerow / nginx", share(ours, figure("nginx", HIGHEST, "rate")), 2))
    checks.append(at_least("highest rate: hedgerow / direct", share(ours, figure("direct", HIGHEST, "rate")), 0.9))
    return checks


def rows_of(records: list[dict]) -> list[dict]:
    """`added_us` is of the same round's direct run."""
    rounds: dict[int, dict[str, dict]] = {}
    for record in records:
        rounds.setdefault(record["round"], {})[record["system"]] = {
            variant: {**run, "config_hash": record["config_hash"]} for variant, run in record["runs"].items()}
    done = list(rounds.values())
    return [row_of(done, system, variant, records[0]["server"]) for variant in (*RATES, HIGHEST)
            for system in dict.fromkeys(record["system"] for record in records)
            if any(variant in each.get(system, {}) for each in done)]


_BY_RATE = {"group": "variant", "groups": {name: f"{int(name):,}/s" for name in RATES}}
_ALONE = {"where": lambda row: row["variant"] == HIGHEST, "group": "variant", "groups": {HIGHEST: ""}}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab("benchcost", replicas=2) as lab:
        server = arguments.server or choose_server(lab, running.results)
        rig = Rig(lab, server)
        for turn in running.turns(system=arguments.systems):
            system = turn["system"]
            turn.done({"server": server, "runs": one_round(rig, system, arguments),
                       "config": {"system": system, "server": server, "settings": rig.settings(system), "rates": RATES, "sockets": _SOCKETS}})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, (), must_show, rows_of,
    {"variant": "rate", "system": "system", "runs": "runs", "rate": "requests/s", "lost": "lost", "p50_us": "p50 us",
     "p99_us": "p99 us", "cpu_us_per_request": "cpu us", "added_us": "added us", "rss_bytes": "rss", "map_bytes": "maps"},
    Charts("What stands before a DNS server", looks.PROXIES, "system", (
        Bars("half of the answers within", y="p50_us", unit="us", **_BY_RATE), Bars("99 % of the answers within", y="p99_us", unit="us", **_BY_RATE),
        Bars("CPU added to the direct run's", y="added_us", unit="us per request", **_BY_RATE),
        Bars("highest rate without loss", y="rate", unit="requests per second", **_ALONE),
        Bars("memory of the processes", y="rss_bytes", unit="MB", scale=1e-6, **_ALONE),
        Bars("memory of the maps", y="map_bytes", unit="MB", scale=1e-6, **_ALONE))),
    measure=measure, notes=lambda _: {"pinned": client_and_server()}, options=(
        experiment.some("--systems", SYSTEMS), experiment.number("--seconds", 6.0, 0.1, 600, help="length of the runs at a fixed rate"),
        experiment.number("--trial", TRIAL_S, 0.1, 60, help="length of a trial of the climb, in seconds"),
        experiment.number("--climb-to", highest_rate.CLIMB_TO, 1.0, 1e7, help="requests per second at which the climb ends"),
        ("--server", {"choices": sorted(DNS_SERVERS), "help": "behind the proxies; without it the one that takes the highest rate"})))
