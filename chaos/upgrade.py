# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed, restarted, upgraded and reloaded under load costs no client an answer: an open loop of 5,000
requests/s through the proxy to two echo servers, first undisturbed, then with 20 successions of daemons and reloads in
between. An upgrade is another build of the kernel programs (`hedgerowd-next`) that takes the place of the one at work,
and back. A reload adds a service, adds and removes a backend, moves the leader and changes delay and budget.
"""

import argparse
import concurrent.futures
import contextlib
import copy
import itertools
import json
import random
import signal
import time

import yaml

from bench import experiment, product
from bench.client_run import ClientRun, run_client
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most
from bench.replicas import BenchServer
from bench.stopping import beside
from chaos.daemons import Daemons
from deploy.lab import VIP_RAW, Host, Lab

NAME = "chaos-upgrade"
TAG = "chaosupg"
PORT = 9000
RATE = 5_000
WANTED_EVENTS = 20
RELOAD, KILL_IN_A_RELOAD = "reload", "kill in a reload"
# What ends the daemon (None: nothing), and whether the next one is of the other build. A killed daemon cannot prepare
# for its end; one that is killed in the midst of a reload has done some of it.
CYCLE = (("kill", signal.SIGKILL, False), (RELOAD, None, False), ("upgrade", signal.SIGTERM, True),
         (KILL_IN_A_RELOAD, signal.SIGKILL, False), ("kill and upgrade", signal.SIGKILL, True), (RELOAD, None, False),
         ("restart", signal.SIGTERM, False))
VIP_OTHER = "10.99.0.78"
_COMMAND_ASKS_AFTER_S = 0.02
_RELOAD_TAKES_S = 0.03  # about as long: a kill within it meets most of its steps
_GAP_S = 1.0  # of quiet after each succession
_EVENT_S = 4.0  # what one takes at most, for the length of the load


def variants(config: dict) -> list[dict]:
    """What reloads go through, from the one to the next and round again."""
    other, alone, moved = copy.deepcopy(config), copy.deepcopy(config), copy.deepcopy(config)
    service = other["services"][0]
    other["services"].append({**copy.deepcopy(service), "name": "other", "vip": VIP_OTHER, "port": PORT + 1,
                              "backends": [{**backend, "port": PORT + 1} for backend in service["backends"]]})
    service.update(delay="3ms", budget="20%")
    alone["services"][0]["backends"] = alone["services"][0]["backends"][:1]
    moved["services"][0]["primary"] = moved["services"][0]["backends"][-1]["name"]
    return [other, alone, moved, config]


class Reloads:
    """Of one instance, one after the other."""

    def __init__(self, proxy: product.Product, host: Host):
        self.proxy, self.host = proxy, host
        self._variants = itertools.cycle(variants(proxy.config))

    def reload(self, check: bool = True) -> dict:
        """The next configuration, and what the command says of it."""
        begun = time.monotonic()
        self._write(next(self._variants))
        done = self.host.run([binary("hedgerow"), "reload", "--json", "--socket", self.proxy.socket], check=check)
        said = json.loads(done.stdout) if done.returncode == 0 else {"changes": [], "applied": False}
        return {"event": RELOAD, "how": "applied" if said["applied"] else "not applied",
                "changes": len(said["changes"]), "took_s": round(time.monotonic() - begun, 3), "without_daemon_s": 0.0}

    @contextlib.contextmanager
    def under_way(self):
        """A reload that has begun, and that its daemon may not live to end."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reload = pool.submit(self.reload, check=False)
            time.sleep(_COMMAND_ASKS_AFTER_S + random.random() * _RELOAD_TAKES_S)
            yield
            reload.result()

    def settle(self) -> None:
        """Back to the configuration of the beginning."""
        self._write(self.proxy.config)
        self.host.run([binary("hedgerow"), "reload", "--socket", self.proxy.socket])

    def _write(self, config: dict) -> None:
        self.proxy.file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="ascii")


def load(lab: Lab, seconds: float) -> ClientRun:
    argv = [str(binary("hr-load")), f"--target={VIP_RAW[0]}:{PORT}", "--workload=raw", "--loop=open", f"--rate={RATE}",
            f"--seconds={seconds}", "--warmup=200", "--timeout=1s", "--linger=500ms", "--sockets=8"]
    return run_client(lab.client, argv, lab)


def plan(successions: int) -> list[tuple]:
    """The cycle's events until so many daemons have been succeeded."""
    planned = []
    for event in itertools.cycle(CYCLE):
        if sum(how is not None for _, how, _ in planned) == successions:
            return planned
        planned.append(event)


def happen(event: tuple, daemons: Daemons, reloads: Reloads) -> dict:
    if event[0] == RELOAD:
        return reloads.reload()
    amid = reloads.under_way() if event[0] == KILL_IN_A_RELOAD else contextlib.nullcontext()
    return daemons.succeed(*event, amid=amid)


def disturbed(lab: Lab, daemons: Daemons, reloads: Reloads, events: int) -> tuple[ClientRun, list[dict]]:
    """The load, and meanwhile the events; it goes on until the last one is over."""
    seen = []
    planned = plan(events)
    with beside(lab, 1) as pool:
        client = pool.submit(load, lab, len(planned) * (_EVENT_S + _GAP_S))
        time.sleep(_GAP_S)
        for number, event in enumerate(planned, 1):
            seen.append(happen(event, daemons, reloads))
            print(f"  {number}/{len(planned)} {seen[-1]['event']:16} {seen[-1]['how']:11} "
                  f"{seen[-1]['without_daemon_s']:.2f} s without a daemon", flush=True)
            time.sleep(_GAP_S)
            if client.done():
                raise RuntimeError("the load ended before the events did")
        return client.result(), seen


def row_of(phase: str, client: ClientRun, before: dict, after: dict, events: list[dict]) -> dict:
    summary = client.summary
    counted = product.service_figures(after, "raw")["requests"] - product.service_figures(before, "raw")["requests"]
    reasons = after["services"][0].get("reasons", {})
    reloads = [event for event in events if event["event"] == RELOAD]
    events = [event for event in events if event["event"] != RELOAD]
    return {"phase": phase, "rate": RATE, "n": summary["n"], "lost": summary["lost"],
            "wrong": summary["wrong"] + summary["duplicates"], "p50_ms": summary["p50_ms"], "p99_ms": summary["p99_ms"],
            "p999_ms": summary["p999_ms"], "max_ms": summary["max_ms"], "send_lag_p99_us": summary["send_lag_p99_us"],
            "events": len(events), "reloads": len(reloads),
            "applied": sum(event["how"] == "applied" for event in reloads),
            "upgrades": sum(event["how"] == "upgraded" for event in events),
            "adopted": sum(event["how"] in ("adopted", "upgraded") for event in events),
            "without_daemon_s": max((event["without_daemon_s"] for event in events), default=0.0),
            "not_counted": summary["n"] + summary["warmup"] - counted, "no_daemon": int(reasons.get("no_daemon", 0)),
            "identity_ok": product.service_figures(after, "raw")["identity_ok"]}


def must_show(rows: list[dict]) -> list[Check]:
    found = {row["phase"]: row for row in rows}
    calm, rough = found["undisturbed"], found["disturbed"]
    return [at_least("successions of daemons", rough["events"], WANTED_EVENTS, needs_full=True),
            at_least("of them, that took over what was at work", rough["adopted"], rough["events"]),
            at_least("of them, that exchanged the programs", rough["upgrades"], rough["events"] // 3),
            at_least("reloads", rough["reloads"], rough["events"] // 3),
            at_least("of them, that came into force", rough["applied"], rough["reloads"]),
            at_most("undisturbed: requests lost", calm["lost"], 0),
            at_most("disturbed: requests lost", rough["lost"], 0),
            at_most("disturbed: wrong answers and second ones", rough["wrong"], 0),
            at_most("disturbed: requests that no counter knows", abs(rough["not_counted"]), 0),
            at_most("disturbed: requests not hedged for want of a daemon", rough["no_daemon"], 0),
            at_least("disturbed: the books balance", int(rough["identity_ok"]), 1),
            at_most("p99.9, disturbed / undisturbed", rough["p999_ms"] / calm["p999_ms"], 2.0, needs_full=True)]


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab(arguments.lab) as lab:
        both_phases(lab, running, arguments)


def both_phases(lab: Lab, running: experiment.Running, arguments: argparse.Namespace) -> None:
    backends = {host.name: host.ipv4 for host in lab.replicas}
    service = product.service("raw", VIP_RAW[0], PORT, "raw", backends)
    with contextlib.ExitStack() as stack:
        for host in lab.replicas:
            stack.enter_context(BenchServer(host, "hr-echo-server", [f"--listen={host.ipv4}:{PORT}"]))
        proxy = stack.enter_context(product.Product(lab.client, lab.tag, [service], metrics={"listen": ""}))
        daemons, reloads = Daemons(proxy, lab.client), Reloads(proxy, lab.client)
        for turn in running.turns(phase=["undisturbed", "disturbed"]):
            phase = turn["phase"]
            print(f"{phase}:", flush=True)
            before = proxy.status_at_rest()
            if phase == "undisturbed":
                client, events = load(lab, arguments.events * (_EVENT_S + _GAP_S)), []
            else:
                client, events = disturbed(lab, daemons, reloads, arguments.events)
                reloads.settle()
            after = proxy.status_at_rest()
            turn.done({"row": row_of(phase, client, before, after, events), "succession": events, "client": client.report, "status": after,
                       "config": {"service": service, "rate": RATE}})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["phase"], must_show, experiment.own_rows,
    {"phase": "phase", "events": "successions", "reloads": "reloads", "n": "requests", "lost": "lost",
     "wrong": "wrong", "p50_ms": "p50 ms", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "max",
     "upgrades": "upgrades", "without_daemon_s": "no daemon for s"}, tag=TAG,
    measure=measure, rounds=1, options=(
        experiment.number("--events", WANTED_EVENTS, 1, 100, help=f"successions; {WANTED_EVENTS} are wanted"),))
