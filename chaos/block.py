# SPDX-License-Identifier: Apache-2.0
"""One block of an experiment: a fresh store, its load, a number of faults one after the other, the final read, the
verdicts. Called by run.py for each system in turn. Everything in it is bounded.
"""

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import time
from pathlib import Path

from bench import cpu_time
from chaos import plants, unavailable
from chaos.arrivals import counted
from chaos.daemons import Daemons
from chaos.faults import World, make
from chaos.judgement import judge_twice
from chaos.load_process import sending
from chaos.scenario import PAUSE_S, Scenario
from chaos.systems import CLIENT_TIMEOUT_S, Running, Settings, is_etcd, running
from deploy.lab import CommandFailed, Lab
from deploy.lab.cluster import READY_WITHIN_S, Cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.store_node import StoreNode
from deploy.lab.unsynced_disks import UnsyncedDisks
from deploy.lab.network_faults import NetworkFaults

_WARM_UP_S = 1.0
_AFTER_ASKING_S = 0.1
FINAL_READ_WITHIN_S = 180.0  # an outage leaves hundreds of keys behind, and every node is asked for each


@dataclasses.dataclass
class Block:
    # number, node (the leader), instants, what shows the faults, by node what its disk lost, the leader's memory with ballast
    events: list[dict]
    costs: list[unavailable.Cost]
    report: dict  # the load's counters
    verdict: dict  # of both checkers
    copies_arrived: int | None  # requests that reached nodes beyond one for each operation
    proxy: dict | None  # status of the proxy
    stolen_share: float  # of all processors' time, what the machine below us took while the faults were done
    offloads: list[str] | None  # what every node's kernel did when the faults were over; None: not our store
    config: dict
    argv: list[str]
    nodes: list[dict | None]  # status of each node when the faults were over, as far as it has one


@dataclasses.dataclass
class Site:
    """What a block's faults have to do with."""

    lab: Lab
    up: Running
    disks: UnsyncedDisks | None
    network_faults: NetworkFaults | None
    scenario: Scenario
    settings: Settings
    rng: random.Random

    def __post_init__(self) -> None:
        # The daemons follow each other: the holder of the last one starts the next.
        self.daemons = Daemons(self.up.proxy, self.lab.client) if self.up.proxy else None

    def world(self, leader: StoreNode) -> World:
        nodes = self.up.cluster.nodes
        met = {"leader": lambda: [leader], "all": lambda: list(nodes),
               "follower": lambda: [self.rng.choice([node for node in nodes if node is not leader])],
               "majority": lambda: [leader, *self.rng.sample([node for node in nodes if node is not leader], len(nodes) // 2)]}
        return World(self.lab, self.up.cluster, leader, met[self.scenario.target](), random.Random(self.rng.getrandbits(64)),
                     self.disks, self.disks is not None, self.network_faults, self.daemons)


def run_block(lab: Lab, system: str, scenario: Scenario, settings: Settings, *, events: int, seed: int,
              history: Path, plant: str | None = None) -> Block:
    """`history` is written, every operation of the block, and beside it the final reads. `plant` is a mistake that the judgement
    must find (plants.py)."""
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(DataDirs(lab.tag, settings.mode)).path
        disks = None
        if settings.disks is not None:
            disks = stack.enter_context(UnsyncedDisks(lab, data, settings.disks))
            data = disks.path
        network_faults = stack.enter_context(NetworkFaults(lab)) if "network_faults" in scenario.needs else None
        up = stack.enter_context(running(system, lab, settings, data))
        site = Site(lab, up, disks, network_faults, scenario, settings, random.Random(seed))
        folder = lab.client.scratch("load")
        report_file, final = folder / "report.json", final_of(history)
        argv = [*up.load, f"--seed={seed}", f"--seconds={_bound_s(scenario, events):g}", f"--history={history}",
                f"--report={report_file}"]
        # Not for etcd, whose requests do not come as datagrams.
        arrivals = None if is_etcd(system) else stack.enter_context(counted(lab.replicas, up.cluster.nodes[0].port))
        with sending(lab, argv, folder / "load.log") as load:
            time.sleep(_WARM_UP_S)
            stolen_us, begin_s = cpu_time.stolen_us(), time.monotonic()
            happened = _faults(site, events, load, plant)
            stolen_share = (cpu_time.stolen_us() - stolen_us) / 1e6 / (time.monotonic() - begin_s) / os.cpu_count()
        arrived = None if arrivals is None else arrivals()
        offloads = None if is_etcd(system) else _offloads_on(up.cluster)
        nodes = [] if is_etcd(system) else [node.status() for node in up.cluster.nodes]
        proxy = up.proxy.status_at_rest() if up.proxy else None
        lab.client.run([*up.final, f"--of={history}", f"--history={final}"], timeout=FINAL_READ_WITHIN_S)
        plants.damage(plant, history, final)
        report = json.loads(report_file.read_text(encoding="ascii"))
        costs = unavailable.costs(unavailable.read_history(history),
                                  [unavailable.Event(event["begin_ns"], event["end_ns"]) for event in happened],
                                  int(CLIENT_TIMEOUT_S * 1e9))
        copies = None if arrived is None else max(0, arrived - report["opens"] - report["sent"])
        return Block(happened, costs, report, judge_twice(history, final), copies, proxy, stolen_share, offloads,
                     up.config, argv, nodes)


def _offloads_on(cluster: Cluster) -> list[str]:
    """Of all nodes: one that went without would make another experiment of it."""
    return sorted(set.intersection(*({each["name"] for each in node.offloads() if each.get("on")}
                                     for node in cluster.nodes)))


def final_of(history: Path) -> Path:
    return history.with_name(f"{history.stem}-final.csv")


def _bound_s(scenario: Scenario, events: int) -> float:
    """No load outlives what its faults can take at most."""
    return 10 + events * (scenario.lasts_s + PAUSE_S[1] + 2 * READY_WITHIN_S)


def _leader_after_the_pause(site: Site) -> StoreNode:
    """The node that leads when the pause ends; with ballast the first node, which alone has it. A busy machine may let
    another node take the lead meanwhile: then it is handed over again, and the pause begins anew."""
    cluster, deadline = site.up.cluster, time.monotonic() + READY_WITHIN_S
    wanted = cluster.nodes[0] if site.settings.ballast_bytes else None
    leader = cluster.wait_ready()
    while True:
        if wanted in (None, leader):
            time.sleep(site.rng.uniform(*PAUSE_S))
            leader = cluster.leader() or cluster.wait_ready()
            if wanted in (None, leader):
                return leader
        if time.monotonic() > deadline:
            raise CommandFailed(f"node {wanted.number} does not lead, or not for long enough: {cluster.states()}")
        leader.transfer(wanted.number)
        leader = cluster.wait_ready()


def _faults(site: Site, count: int, load: subprocess.Popen, plant: str | None) -> list[dict]:
    happened = []
    for number in range(1, count + 1):
        happened.append({"number": number, **_event(site, plant)})
        if load.poll() is not None:
            raise CommandFailed(f"the load ended with {load.returncode} during event {number}")
        # Asking how the nodes are costs processor time, which what is measured may not have to share.
        time.sleep(unavailable.AFTER_NS / 1e9)
    site.up.cluster.wait_ready()
    return happened


def _event(site: Site, plant: str | None) -> dict:
    scenario = site.scenario
    leader = _leader_after_the_pause(site)
    resident = leader.resident_bytes() if site.settings.ballast_bytes else None
    time.sleep(_AFTER_ASKING_S)
    several = make([] if plant == plants.NO_FAULT else scenario.faults, site.world(leader))
    try:
        begin_ns = several.begin()
        several.hold(scenario.lasts_s)
    finally:
        end_ns = several.end()
    return {"node": leader.number, "begin_ns": begin_ns, "end_ns": end_ns, "lost": several.lost,
            "evidence": several.evidence(), "resident_bytes": resident}
