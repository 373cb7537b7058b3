# SPDX-License-Identifier: Apache-2.0
"""Workers of a steered group (`hedgerow steer run`) come and go 100 times at random under load, by UDP and TCP: killed, killed with a full
queue, stopped, restarted, upgraded; and their supervisor is killed and followed by another. Sources of other workers must lose nothing and
wait no longer. Sources of a restarted worker must lose nothing. No source may meet a second worker.

The same for a group that is a backend behind a Hedgerow VIP (`--behind vip`): the proxy must not make the backend suspect.

`--plant plain` does it to workers with SO_REUSEPORT sockets of their own, without steering; `--plant all-stop` stops all workers of the
backend at once. The run then succeeds if its checks find that.
"""

import argparse
import bisect
import dataclasses
import json
import math
import os
import random
import signal
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import experiment, product, steer_rig
from bench.outcome import Check, at_least, at_most
from bench.histogram import quantile
from bench.steer_records import Record, read, slots_met
from bench.steer_systems import Reuseport, Wanted
from chaos.churn_groups import POLL_S, Group, PlainGroup, SteeredGroup
from deploy.lab import VIP_RAW, Lab
from deploy.lab.waiting import until

NAME = "chaos-worker-churn"
TAG = "chaoschurn"
PLAIN = "plain"
ALL_STOP = "all-stop"
BEHIND = ("nothing", "vip")
SCENARIO = Path(__file__).with_name("worker_churn.toml")
_VIP_PORT = 7055  # no well-known one-way port, where the profile would expect no answers
_SETTLE_S = 0.5
_AT_LEAST_S = 0.7  # an event's window
_LINGER_S = 15
# A worker that ends repeatedly is started after a pause of up to 5 s. Its packets must wait meanwhile, so the slot must not become empty.
_PATIENT = ("--empty-after", "20s")


@dataclasses.dataclass(frozen=True)
class Scenario:
    workers: int
    sources: int
    rate: int
    kinds: dict[str, int]
    stopped_s: tuple[float, float]
    rest_s: tuple[float, float]
    holds: dict[str, float]
    quick: int
    full: int

    @classmethod
    def load(cls, file: Path = SCENARIO) -> "Scenario":
        with open(file, "rb") as opened:
            raw = tomllib.load(opened)
        return cls(raw["workers"], raw["sources"], raw["rate"], raw["kinds"], tuple(raw["times"]["stopped_s"]),
                   tuple(raw["times"]["rest_s"]), raw["holds"], raw["run"]["quick"], raw["run"]["full"])

    def drawn(self, events: int, rng: random.Random) -> list[tuple[str, int]]:
        """Kinds in their shares, at random, and each one's slot."""
        deck = [kind for kind, share in self.kinds.items() for _ in range(share)]
        kinds = [deck[number * len(deck) // events % len(deck)] if events < len(deck) else deck[number % len(deck)] for number in range(events)]
        rng.shuffle(kinds)
        return [(kind, rng.randrange(self.workers)) for kind in kinds]


@dataclasses.dataclass(frozen=True)
class Event:
    kind: str
    slot: int
    begin_ns: int
    end_ns: int
    happened: bool  # the worker is another one, or the same where it must be
    suspected: int = 0  # times that the proxy took a backend for suspect meanwhile

    def meets(self, slot: int) -> bool:
        return self.kind == ALL_STOP or self.kind != "supervisor" and slot == self.slot


@dataclasses.dataclass(frozen=True)
class Churned:
    records: list[Record]
    events: list[Event]
    first_ns: int  # when the first undisturbed time begins
    summary: dict  # the load's
    seconds: float


class Disturber:
    def __init__(self, group: Group, scenario: Scenario, rng: random.Random, suspected: Callable[[], int]):
        self.group, self.scenario, self.rng, self.suspected = group, scenario, rng, suspected

    def event(self, kind: str, slot: int) -> Event:
        former, suspected = self.group.pid_of(slot), self.suspected()
        begin_ns = time.monotonic_ns()
        happened = getattr(self, kind.replace("-", "_"))(slot, former)
        time.sleep(max(0.0, _AT_LEAST_S - (time.monotonic_ns() - begin_ns) / 1e9))
        return Event(kind, slot, begin_ns, time.monotonic_ns(), happened, self.suspected() - suspected)

    def rest(self, seconds: float) -> None:
        """Without an event. The runner polls the group as it does during events, so that its own load is in both."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.group.pid_of(0)
            time.sleep(min(POLL_S, left))

    def _stopped(self) -> None:
        time.sleep(self.rng.uniform(*self.scenario.stopped_s))

    def kill(self, slot: int, former: int) -> bool:
        os.kill(former, signal.SIGKILL)
        return self.group.wait_for_another(slot, former) != former

    def kill_with_queue(self, slot: int, former: int) -> bool:
        os.kill(former, signal.SIGSTOP)
        self._stopped()
        return self.kill(slot, former)

    def stop(self, slot: int, former: int) -> bool:
        os.kill(former, signal.SIGSTOP)
        self._stopped()
        os.kill(former, signal.SIGCONT)
        return self.group.pid_of(slot) == former

    def all_stop(self, _slot: int, _former: int) -> bool:
        pids = [self.group.pid_of(slot) for slot in range(self.scenario.workers)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._stopped()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return True

    def restart(self, slot: int, former: int) -> bool:
        self.group.restart(slot)
        return self.group.wait_for_another(slot, former) != former

    def upgrade(self, slot: int, former: int) -> bool:
        self.group.upgrade(slot)
        pid = self.group.wait_for_another(slot, former)
        return pid != former and self.group.program.is_run_by(pid)

    def supervisor(self, _slot: int, _former: int) -> bool:
        return self.group.kill_supervisor()


# -- judgement ---------------------------------------------------------------------------------------------------


def windows_between(events: Sequence[Event], first_ns: int) -> list[tuple[int, int]]:
    """The undisturbed times: from a moment after an event's end to the next one's beginning."""
    settle_ns = int(_SETTLE_S * 1e9)
    begins = [first_ns, *(event.end_ns + settle_ns for event in events)]
    return [(begin, event.begin_ns) for begin, event in zip(begins, events, strict=False) if begin < event.begin_ns]


def homes_of(records: Sequence[Record]) -> dict[int, int]:
    """Of each source, the slot that answered most."""
    votes: dict[int, dict[int, int]] = {}
    for record in records:
        if record.latency_us is not None:
            slots = votes.setdefault(record.source, {})
            slots[record.slot] = slots.get(record.slot, 0) + 1
    return {source: max(slots, key=slots.get) for source, slots in votes.items()}


def figures(records: Sequence[Record], events: Sequence[Event], first_ns: int) -> dict:
    homes, met = homes_of(records), slots_met(records)
    quiet = windows_between(events, first_ns)
    quiet_begins, event_begins = [begin for begin, _ in quiet], [event.begin_ns for event in events]
    lost = {"others": 0, "own": 0, "outside": 0}
    others_us, own_us, quiet_us = [], [], []
    by_kind: dict[str, list[float]] = {event.kind: [] for event in events}
    by_transport: dict[str, tuple[list[float], list[float]]] = {"udp": ([], []), "tcp": ([], [])}  # in events, and undisturbed
    for record in records:
        at = bisect.bisect_right(event_begins, record.intended_ns) - 1
        event = events[at] if at >= 0 and record.intended_ns < events[at].end_ns else None
        whose = "outside" if event is None else "own" if event.meets(homes.get(record.source, -1)) else "others"
        if record.latency_us is None:
            lost[whose] += 1
        elif event is not None:
            (own_us if whose == "own" else others_us).append(record.latency_us)
            if whose == "others":
                by_kind[event.kind].append(record.latency_us)
                by_transport["tcp" if record.tcp else "udp"][0].append(record.latency_us)
        else:
            at = bisect.bisect_right(quiet_begins, record.intended_ns) - 1
            if at >= 0 and record.intended_ns < quiet[at][1]:
                quiet_us.append(record.latency_us)
                by_transport["tcp" if record.tcp else "udp"][1].append(record.latency_us)
    p99, quiet_p99 = quantile(others_us, 0.99), quantile(quiet_us, 0.99)
    return {"lost_of_others": lost["others"], "lost_of_own": lost["own"], "lost_outside": lost["outside"],
            "of_two_workers": sum(len(slots) > 1 for slots in met.values()), "sources_met": len(met),
            "p50_us": quantile(others_us, 0.5), "quiet_p50_us": quantile(quiet_us, 0.5), "p99_us": p99, "quiet_p99_us": quiet_p99,
            "p99_factor": _ratio(p99, quiet_p99), "p99_factor_by_kind": {kind: _ratio(quantile(each, 0.99), quiet_p99) for kind, each in by_kind.items()},
            "p99_factor_by_transport": {name: _ratio(quantile(busy, 0.99), quantile(quiet, 0.99)) for name, (busy, quiet) in by_transport.items()},
            "others_n": len(others_us), "quiet_n": len(quiet_us),
            "own_n": len(own_us), "own_max_ms": max(own_us, default=0) / 1e3, "sent_again": sum(record.sent_again > 0 for record in records)}


def _ratio(of: float | None, by: float | None) -> float | None:
    return of / by if of is not None and by else None


def row_of(behind: str, scenario: Scenario, done: Churned, seed: int) -> dict:
    events, summary = done.events, done.summary
    return {"behind": behind, "events": len(events), "seed": seed, "kinds": len({event.kind for event in events}),
            "happened": sum(event.happened for event in events), "sent": summary["sent"],
            "sent_share": summary["sent"] / (scenario.rate * done.seconds),
            "refused": summary["connect_failures"] + summary["udp_refused"], "connections_lost": summary["connections_lost"],
            "overflowed": summary["overflowed"], "unsent": summary["unsent"], "duplicates": summary["duplicates"],
            **figures(done.records, events, done.first_ns)}


def suspicions(done: Churned, total: int) -> dict:
    """On a busy machine a backend becomes suspect now and then without any event. The events account for the suspicions beyond the
    undisturbed rate."""
    in_events, events_s = sum(event.suspected for event in done.events), sum(event.end_ns - event.begin_ns for event in done.events) / 1e9
    others = total - in_events
    return {"suspected_in_events": in_events, "suspected_undisturbed": others,
            "suspected_beyond": max(0, in_events - math.ceil(others * events_s / max(done.seconds - events_s, 1e-3)))}


def must_show(rows: Sequence[dict]) -> list[Check]:
    return [check for row in rows for check in _must_show(row, Scenario.load())]


def _must_show(row: dict, scenario: Scenario) -> list[Check]:
    where, holds = f"behind {row['behind']}", scenario.holds
    checks = [at_least(f"{where}: events", row["events"], scenario.full, needs_full=True),
              at_least(f"{where}: of them, that did what they should", row["happened"], row["events"]),
              at_least(f"{where}: kinds of event", row["kinds"], len(scenario.kinds)),
              at_least(f"{where}: sources", row["sources_met"], scenario.sources),
              at_least(f"{where}: messages in events, of workers' own sources", row["own_n"], 1),
              at_most(f"{where}: messages lost, sources of other workers", row["lost_of_others"], holds["lost_of_others"], finds=[PLAIN]),
              at_most(f"{where}: messages lost, the worker's own sources", row["lost_of_own"], holds["lost_of_own"], finds=[PLAIN]),
              at_most(f"{where}: messages lost between events, or not sent", row["lost_outside"] + row["overflowed"] + row["unsent"], 0, finds=[PLAIN])]
    if row["behind"] == "nothing":
        checks += [at_most(f"{where}: sources that met a second worker", row["of_two_workers"], holds["of_two_workers"], finds=[PLAIN]),
                   at_most(f"{where}: connections and datagrams refused", row["refused"], holds["refused"]),
                   at_least(f"{where}: connections that ended with their worker", row["connections_lost"], 1),
                   # A quick run takes what the machine does beside it.
                   at_most(f"{where}: p99 of other workers' sources / undisturbed", row["p99_factor"], holds["p99_factor"], needs_full=True)]
    else:
        checks += [at_most(f"{where}: times that a backend became suspect in events, beyond the undisturbed times", row["suspected_beyond"], 0,
                           needs_full=True, finds=[ALL_STOP]),
                   at_least(f"{where}: hedges, which the events cause", row["hedges"], 1),
                   at_most(f"{where}: sources that met a second worker of the group", row["of_two_workers"], holds["of_two_workers"])]
    return checks


# -- the run -----------------------------------------------------------------------------------------------------


def churn(lab: Lab, group: Group, to: str, scenario: Scenario, arguments: argparse.Namespace, suspected: Callable[[], int] = lambda: 0,
          **load) -> Churned:
    """The load, and the events within it."""
    rng = random.Random(arguments.seed)
    drawn = scenario.drawn(arguments.events, rng)
    folder = lab.client.scratch("load")
    records_file, report_file, log = folder / "records", folder / "report.json", folder / "log"
    for old in (records_file, report_file, log):
        old.unlink(missing_ok=True)
    # Longer than it can take: the load is told to stop when the last event is over.
    most_s = 30 + arguments.events * (scenario.rest_s[1] + scenario.stopped_s[1] + 12)
    argv = steer_rig.load_command(to, scenario.sources, load.pop("transport", "both"), rate=scenario.rate, seconds=f"{most_s:g}", warm_up=1,
                                  linger=f"{_LINGER_S}s", out=report_file, records=records_file, **load)
    child = lab.client.popen([*argv, "--progress"], log=log)
    until(lambda: '"measuring"' in log.read_text(encoding="utf-8") or child.poll() is not None, 30, lambda: "the load does not begin")
    began = time.monotonic()
    disturber, events = Disturber(group, scenario, rng, suspected), []
    time.sleep(1.0)
    first_ns = time.monotonic_ns()
    for number, (kind, slot) in enumerate(drawn, 1):
        disturber.rest(_SETTLE_S + rng.uniform(*scenario.rest_s))
        if child.poll() is not None:
            raise RuntimeError(f"the load ended with {child.returncode} before event {number}: {log.read_text(encoding='utf-8')}")
        events.append(disturber.event(kind, slot))
        if arguments.verbose or not events[-1].happened:
            print(f"  {number}/{len(drawn)} {kind} of slot {slot}: {'done' if events[-1].happened else 'DID NOTHING'} in "
                  f"{(events[-1].end_ns - events[-1].begin_ns) / 1e9:.2f} s", flush=True)
    time.sleep(1.0)
    os.kill(child.pid, signal.SIGTERM)
    seconds = time.monotonic() - began + 1
    child.wait(_LINGER_S + 60)
    if lab.client.stop(child) != 0 or not report_file.exists():
        raise RuntimeError(f"the load failed: {log.read_text(encoding='utf-8')}")
    return Churned(read(records_file), events, first_ns, json.loads(report_file.read_text(encoding="ascii"))["summary"], seconds)


def direct(lab: Lab, scenario: Scenario, arguments: argparse.Namespace) -> dict:
    server = lab.replicas[0]
    steer_rig.route_sources(lab, server)
    kind = PlainGroup if arguments.plant == PLAIN else SteeredGroup
    more = () if arguments.plant == PLAIN else _PATIENT
    with kind(server, Wanted(scenario.workers, "both", scenario.sources, peek=True), more) as group:
        done = churn(lab, group, steer_rig.target(server), scenario, arguments)
        settings = {"behind": "nothing", **dataclasses.asdict(scenario), "settings": group.system.config(), "seconds": done.seconds}
        row = row_of("nothing", scenario, done, arguments.seed)
        # By the workers' own counts, over both transports and all restarts.
        met = steer_rig.workers_met(group.system.counts(), scenario.sources)
        row["of_two_workers"] = max(row["of_two_workers"], sum(len(slots) > 1 for slots in met))
        return {"row": row, "each": [dataclasses.asdict(event) for event in done.events], "load": done.summary, "config": settings,
                "show": group.steer.show() if isinstance(group, SteeredGroup) else {}}


def behind_vip(lab: Lab, scenario: Scenario, arguments: argparse.Namespace) -> dict:
    """Host a has the group and leads; b has one worker of its own. All sources are sockets of the client host, so the messages' second
    word says which source it is."""
    server, standby = lab.replicas[0], lab.replicas[1]
    devices = server.scratch("devices") / "devices"
    devices.write_text(f"{lab.client.ipv4}/32 1 gateway\n", encoding="ascii")
    wanted = Wanted(scenario.workers, "udp", scenario.sources, peek=True, port=_VIP_PORT)
    service = product.service("steer", VIP_RAW[0], _VIP_PORT, "raw", {host.name: host.ipv4 for host in (server, standby)})
    other = Reuseport(standby, Wanted(1, "udp", scenario.sources, port=_VIP_PORT), "standby")
    other.first_slot = 63
    group = SteeredGroup(server, wanted, (*_PATIENT, "--devices", str(devices), "--gateway-field", "4:4"))
    with other, group, product.Product(lab.client, lab.tag, [service]) as proxy:
        before = product.service_figures(proxy.status(), "steer")
        done = churn(lab, group, f"{VIP_RAW[0]}:{_VIP_PORT}", scenario, arguments,
                     lambda: product.service_figures(proxy.status(), "steer")["suspected"], transport="udp", one_address="true",
                     first_source=lab.client.ipv4)
        after = product.service_figures(proxy.status(), "steer")
        settings = {"behind": "vip", **dataclasses.asdict(scenario), "settings": group.system.config(), "service": service,
                    "seconds": done.seconds}
        of_group = [record for record in done.records if record.slot != other.first_slot]
        row = row_of("vip", scenario, dataclasses.replace(done, records=of_group), arguments.seed)
        row |= {key: after[key] - before[key] for key in ("suspected", "hedges", "failover_sends")}
        row |= suspicions(done, row["suspected"])
        row["answered_by_standby"] = len(done.records) - len(of_group)
        return {"row": row, "each": [dataclasses.asdict(event) for event in done.events], "load": done.summary,
                "show": group.steer.show(), "status": proxy.status(), "config": settings}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    scenario = Scenario.load()
    if arguments.plant == ALL_STOP:
        scenario = dataclasses.replace(scenario, kinds={ALL_STOP: 1})
    print(f"seed {arguments.seed}", flush=True)
    with Lab(arguments.lab, replicas=2) as lab:
        for turn in running.turns(behind=arguments.behind):
            turn.done((direct if turn["behind"] == "nothing" else behind_vip)(lab, scenario, arguments))


def _settle(_parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.plant:
        arguments.behind = ["nothing" if arguments.plant == PLAIN else "vip"]


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["behind"], must_show, experiment.own_rows,
    {"behind": "behind", "events": "events", "seed": "seed", "sent": "messages", "lost_of_others": "lost, others", "lost_of_own": "lost, own",
     "of_two_workers": "of two workers", "refused": "refused", "connections_lost": "connections ended", "p99_us": "p99 us of others",
     "quiet_p99_us": "undisturbed", "p99_factor": "factor", "own_max_ms": "own wait, ms"},
    # Without steering, sources meet second workers and lose their queue; a backend without workers is silent.
    plants={PLAIN: 2, ALL_STOP: 1}, tag=TAG,
    measure=measure, rounds=1, settle=_settle, quick={"events": Scenario.load().quick, "quiet_wait": 0.0}, options=(
        experiment.number("--events", Scenario.load().full, 1, 1000),
        experiment.some("--behind", BEHIND, help="the group alone, behind a VIP, or both"), ("--seed", {"type": int, "default": random.SystemRandom().randrange(1_000_000), "help": "of the events; drawn and printed when not given"}),
        ("--verbose", {"action": "store_true", "help": "a line for each event"})))
