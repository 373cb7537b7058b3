# SPDX-License-Identifier: Apache-2.0
"""The client host's network changes under its proxy: addresses, routes, uplinks, MTUs and neighbours, 50 changes at random under 2,000
requests/s to a VIP. An unhedged client sends as many to the backend itself at the same instants. What the proxy's client loses beyond
what that one loses, from one change to the next, must be nothing, and after each change `status` must say how the backends are reached.

`--plant blind` stops the daemon (SIGSTOP) before the changes, so that nothing is followed. The run then succeeds if its checks find that.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench import experiment, product
from bench.dns_rig import DnsRig
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most
from deploy.lab import Host, Lab, names
from deploy.lab.servers.zone import NAMES
from deploy.lab.waiting import until

NAME = "chaos-network"
TAG = "chaosnetw"
WANTED_CHANGES = 50
RATE = 2_000
BLIND = "blind"
_FOLLOWED_S = 1.0  # wanted
_PATIENCE_S = 5.0  # beyond it a change counts as not followed
_REST_S = 0.5  # from a change that is followed to the next
_WARM_UP_S = 2.0
_SENT_SHARE = 0.98  # of what each client was to send
_LOST_DIRECT_SHARE = 0.03  # at most; a direct client that gets no answers would excuse every loss


class Machine:
    """The client host's network as it should be, and the commands that change it. Two uplinks lead to one switch. eth1 has a metric
    that counts less, so that the kernel prefers eth0 while that is up."""

    def __init__(self, lab: Lab, rng: random.Random):
        self.lab, self.host, self.rng = lab, lab.client, rng
        self.addresses = {"eth0": names.CLIENT_IPV4, "eth1": "10.77.0.2"}
        self.up = {"eth0": True, "eth1": True}
        self.routed_by: str | None = None  # the interface of routes to the backends alone
        self.mtu = {"eth0": 1500, "eth1": 1500}
        lab.add_second_uplink(self.addresses["eth1"])
        self.host.sysctl("net.ipv4.conf.all.promote_secondaries", 1)  # as systemd sets it
        for replica in lab.replicas:  # a new MAC is announced, as a failover of routers does
            replica.sysctl("net.ipv4.conf.all.arp_notify", 1)
            replica.sysctl("net.ipv4.conf.eth0.arp_notify", 1)

    def _ip(self, *words: str, host: Host | None = None) -> None:
        (host or self.host).run(["ip", *" ".join(words).split()])

    def uplink(self) -> str:
        """By which the kernel sends to the backends now."""
        if self.routed_by is not None and self.up[self.routed_by]:
            return self.routed_by
        return "eth0" if self.up["eth0"] else "eth1"

    # -- changes -----------------------------------------------------------------------------------------------

    def change(self, kind: str) -> tuple[str, str]:
        """The kind that was performed, and what was done. Without another uplink there is no other route."""
        if kind == "route" and self.routed_by is None and not self.up[self._other()]:
            kind = "uplink_again"
        return kind, getattr(self, kind)()

    def _other(self) -> str:
        return "eth1" if self.uplink() == "eth0" else "eth0"

    def address(self) -> str:
        """The uplink in use gets another address, and loses the one that it had, as by DHCP."""
        link = self.uplink()
        former = self.addresses[link]
        free = [f"10.77.0.{number}" for number in range(100, 200)]
        new = self.rng.choice([each for each in free if each not in self.addresses.values()])
        metric = "metric 500" if link == "eth1" else ""
        self._ip(f"addr add {new}/24 dev {link} {metric}")
        self.addresses[link] = new
        if self.routed_by == link:
            self._route()
        self._ip(f"addr del {former}/24 dev {link}")
        return f"address {former} -> {new} of {link}"

    def route(self) -> str:
        """A better route by the other uplink, as a VPN's, or its end."""
        if self.routed_by is not None:
            self._unroute()
            return "the better route ends"
        self.routed_by = self._other()
        self._route()
        return f"a better route by {self.routed_by}"

    def _route(self) -> None:
        for replica in self.lab.replicas:
            self._ip(f"route replace {replica.ipv4}/32 dev {self.routed_by} src {self.addresses[self.routed_by]}")

    def _unroute(self) -> None:
        for replica in self.lab.replicas:
            self.host.run(["ip", "route", "del", f"{replica.ipv4}/32"], check=False)
        self.routed_by = None

    def uplink_again(self) -> str:
        """The preferred uplink goes down, or comes up; the other one is deleted and made again under its name."""
        if not self.up["eth0"]:
            self._ip("link set eth0 up")
            self.up["eth0"] = True
            return "eth0 comes up"
        if self.rng.random() < 0.5:
            if self.routed_by == "eth0":
                self.routed_by = None  # its routes go with it
            self._ip("link set eth0 down")
            self.up["eth0"] = False
            return "eth0 goes down"
        if self.routed_by == "eth1":
            self.routed_by = None
        self._ip("link del eth1")
        self.mtu["eth1"] = 1500
        self.lab.add_second_uplink(self.addresses["eth1"])
        return "eth1 is deleted and made again"

    def mtu_of_uplink(self) -> str:
        link = self.uplink()
        self.mtu[link] = self.rng.choice([size for size in (1280, 1300, 1400, 1450, 1500) if size != self.mtu[link]])
        self.host.set_mtu(self.mtu[link], link)
        return f"MTU {self.mtu[link]} of {link}"

    def neighbour(self) -> str:
        replica = self.rng.choice(self.lab.replicas)
        mac = "02:" + ":".join(f"{self.rng.randrange(256):02x}" for _ in range(5))
        self._ip(f"link set eth0 address {mac}", host=replica)
        return f"MAC {mac} of {replica.name}"

    KINDS = ("address", "route", "uplink_again", "mtu_of_uplink", "neighbour")

    # -- what status must say ----------------------------------------------------------------------------------

    def wrong(self, status: dict) -> str:
        """What `status` says that is not so, or hr0 has not followed; empty: all is right."""
        service = status["services"][0]
        uplink = self.uplink()
        backends = {backend["uplink"] for backend in service["backends"]}
        if backends != {uplink}:
            return f"uplinks {sorted(backends)} instead of {uplink}"
        if service["source"] != self.addresses[uplink]:
            return f"source {service['source']} instead of {self.addresses[uplink]}"
        # What a change does to the requests under way.
        others = [problem for problem in status["problems"] if problem.split(":")[0] not in ("backend_suspect", "backend_down")]
        if others:
            return f"problems {others}"
        mtu = json.loads(self.host.run(["ip", "-json", "link", "show", "hr0"]).stdout)[0]["mtu"]
        return f"MTU {mtu} of hr0 instead of {self.mtu[uplink]}" if mtu != self.mtu[uplink] else ""

    def kernel_agrees(self) -> bool:
        """The control of `wrong`: the kernel's own choice is what this object believes."""
        for replica in self.lab.replicas:
            said = self.host.run(["ip", "route", "get", replica.ipv4]).stdout
            if f"dev {self.uplink()} src {self.addresses[self.uplink()]} " not in said:
                return False
        return True


def wait_until_right(machine: Machine, status: Callable[[], dict], patience_s: float) -> tuple[float, str]:
    """How long it took, and what was still wrong when the patience ended."""
    began, wrong = time.monotonic(), "no status"
    while True:
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            if not (wrong := machine.wrong(status())):
                return time.monotonic() - began, ""
        if time.monotonic() - began > patience_s:
            return time.monotonic() - began, wrong
        time.sleep(0.02)


def lost_at(csv_file: Path, began: float) -> tuple[int, list[float]]:
    """How many requests, and when those that got no answer were to be sent, by the clock of `began`, when the first one was."""
    with open(csv_file, newline="", encoding="ascii") as lines:
        rows = list(csv.DictReader(lines))
    first = float(rows[0]["intended_us"])
    return len(rows), [began + (float(row["intended_us"]) - first) / 1e6 for row in rows if row["latency_us"] == ""]


def lost_beyond(proxied: list[float], direct: list[float], changes_s: list[float]) -> list[int]:
    """From each change to the next: how many more the proxy's client lost than the direct one. A window begins _REST_S / 2 before its
    change, when nothing happens: when a client began is known to some milliseconds only."""
    edges = [at - _REST_S / 2 for at in changes_s] + [float("inf")]

    def within(lost: list[float], k: int) -> int:
        return sum(edges[k] <= at < edges[k + 1] for at in lost)

    early = max(0, sum(at < edges[0] for at in proxied) - sum(at < edges[0] for at in direct))
    return [early, *(max(0, within(proxied, k) - within(direct, k)) for k in range(len(changes_s)))]


def row_of(sent: tuple[int, int], proxied: list[float], direct: list[float], each: list[dict], seed: int, settings: dict) -> dict:
    """`sent` is of the proxy's client and of the direct one."""
    beyond = lost_beyond(proxied, direct, [change["at_s"] for change in each])
    return {"changes": len(each), "kinds": len({change["kind"] for change in each}), "seed": seed, "sent": sent[0],
            "sent_direct": sent[1], "sent_share": min(sent) / (RATE * settings["seconds"]), "lost": len(proxied), "lost_direct": len(direct),
            "lost_direct_share": len(direct) / sent[1], "lost_beyond": sum(beyond),
            "wrong": sum(change["wrong"] != "" for change in each), "disagreed": sum(not change["agreed"] for change in each),
            "late": sum(change["took_s"] > _FOLLOWED_S for change in each),
            "followed_s": max(change["took_s"] for change in each)}


def must_show(rows: list[dict]) -> list[Check]:
    """How late is judged on an idle machine only: a command that asks for `status` takes a part of a second on a busy one."""
    (row,) = rows
    return [at_least("changes", row["changes"], WANTED_CHANGES, needs_full=True), at_least("kinds of change", row["kinds"], len(Machine.KINDS)),
            at_least("requests of each client, of those that it was to send", row["sent_share"], _SENT_SHARE),
            at_most("share of the direct client's requests that were lost", row["lost_direct_share"], _LOST_DIRECT_SHARE),
            at_most("requests lost beyond those of the direct client", row["lost_beyond"], 0, finds=[BLIND]),
            at_most("changes after which status was wrong", row["wrong"], 0, finds=[BLIND]),
            at_most("changes that the kernel understood in another way", row["disagreed"], 0),
            at_most("changes that were followed after a second or later", row["late"], 0, needs_full=True)]


def _load(host: Host, target: str, seconds: float, folder: Path, name: str) -> tuple[subprocess.Popen, float]:
    """The client, and when it sent its first request."""
    argv = [binary("hr-load"), f"--target={target}", f"--mode={name}", "--workload=dns", f"--names={NAMES}", "--loop=open",
            f"--rate={RATE}", f"--seconds={seconds:g}", "--warmup=0", "--sockets=8", "--timeout=2s", "--linger=1s",
            f"--csv={folder / f'{name}.csv'}", f"--out={folder / f'{name}.json'}", "--progress"]
    log = folder / f"{name}.log"
    child = host.popen(argv, log=log)
    until(lambda: '"measuring"' in log.read_text(encoding="ascii"), 30, lambda: f"the load {name} does not begin: {log.read_text(encoding='ascii')}",
          0.002, hopeless=lambda: child.poll() is not None)
    return child, time.monotonic()


def _changes(machine: Machine, arguments: argparse.Namespace, status: Callable[[], dict], loads: dict[str, subprocess.Popen]) -> list[dict]:
    kinds = list(Machine.KINDS) * (arguments.changes // len(Machine.KINDS) + 1)
    kinds = kinds[:arguments.changes]
    machine.rng.shuffle(kinds)
    each = []
    for number, kind in enumerate(kinds, 1):
        at = time.monotonic()
        kind, what = machine.change(kind)
        took_s, wrong = wait_until_right(machine, status, 0.5 if arguments.plant else _PATIENCE_S)
        each.append({"kind": kind, "what": what, "at_s": at, "took_s": round(took_s, 3), "wrong": wrong,
                     "agreed": machine.kernel_agrees()})
        print(f"  {number}/{len(kinds)} {what}: {wrong or f'followed after {took_s * 1000:.0f} ms'}", flush=True)
        time.sleep(_REST_S)
        for name, load in loads.items():
            if load.poll() is not None:
                raise RuntimeError(f"the load {name} ended with {load.returncode} before change {number} was over")
    return each


def one_run(lab: Lab, arguments: argparse.Namespace) -> dict:
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    folder = lab.client.scratch("load")
    with DnsRig(lab, lab.tag) as rig:
        machine = Machine(lab, rng)
        proxy = product.Product(lab.client, lab.tag, [rig.service])
        with proxy:
            if machine.wrong(proxy.status()):
                raise RuntimeError(f"before the first change: {machine.wrong(proxy.status())}")
            pid = int(proxy.status()["pid"])
            seconds = _WARM_UP_S + arguments.changes * (_REST_S + (1.0 if arguments.plant else 0.7)) + 5
            loads = {name: _load(lab.client, target, seconds, folder, name)
                     for name, target in (("proxy", rig.to.vip), ("direct", rig.to.primary))}
            time.sleep(_WARM_UP_S)
            known = proxy.status()
            if arguments.plant == BLIND:
                os.kill(pid, signal.SIGSTOP)
            try:
                each = _changes(machine, arguments, (lambda: known) if arguments.plant == BLIND else proxy.status,
                                {name: load for name, (load, _) in loads.items()})
            finally:
                if arguments.plant == BLIND:
                    os.kill(pid, signal.SIGCONT)
            for name, (load, _) in loads.items():
                if load.wait(seconds + 30) != 0:
                    raise RuntimeError(f"the load {name} ended with {load.returncode}: {(folder / f'{name}.log').read_text()[-500:]}")
            last = proxy.status()
    sent, proxied = lost_at(folder / "proxy.csv", loads["proxy"][1])
    sent_direct, direct = lost_at(folder / "direct.csv", loads["direct"][1])
    settings = {"service": rig.service, "rate": RATE, "changes": arguments.changes, "seconds": seconds}
    row = row_of((sent, sent_direct), proxied, direct, each, arguments.seed, settings)
    row["moves"] = int(last["network"]["moves"])
    return {"row": row, "each": each, "lost_at_s": proxied, "lost_direct_at_s": direct, "status": last, "config": settings,
            "reports": {name: json.loads((folder / f"{name}.json").read_text(encoding="ascii"))["summary"] for name in ("proxy", "direct")}}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab(arguments.lab, replicas=2) as lab:
        for turn in running.turns(what=["network"]):
            turn.done(one_run(lab, arguments))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["what"], must_show, experiment.own_rows,
    {"changes": "changes", "seed": "seed", "sent": "requests", "lost": "lost", "lost_direct": "lost directly",
     "lost_beyond": "lost beyond", "wrong": "status wrong", "followed_s": "longest s"}, plants={BLIND: None}, tag=TAG,
    measure=measure, rounds=1, quick={"quiet_wait": 0.0}, options=(
        experiment.number("--changes", WANTED_CHANGES, 1, 1000, help=f"at random; {WANTED_CHANGES} are wanted"), ("--seed", {"type": int, "default": random.SystemRandom().randrange(1_000_000), "help": "of the changes; drawn and printed when not given"})))
