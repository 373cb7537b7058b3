# SPDX-License-Identifier: Apache-2.0
"""Spoofed frames, 100,000 a second, at each hook of the proxy and of a cluster's node, while honest clients go on asking.

`hr-flood` sends real frames with addresses that no host has. Every hook gets what costs its program most: requests of ever new
clients (splitter), datagrams to a VIP that are for no service (sink), answers in a backend's name (reply), bytes in it (alive), answers in a VIP's name (forged-vip), announcements whose
tag is wrong (announce), frames on the clock's link (clock), peers' datagrams whose tag is wrong (node's XDP). An unprivileged user sends on
each of the proxy's links (user-...), and a service is flooded whose backends are silent, slow or refuse, beside one that lives by its
hedges (beside-...). Beside the quiet
run stands one with the same frames on a link that has none of our programs (`control`): what the sender alone takes away from
the honest clients on this machine. Run by `./dev chaos flood`; writes results/chaos-flood/ and exits 1 when something it must
show is missed.
"""

import argparse
import contextlib
import re
import time
from pathlib import Path

from bench import experiment
from bench.other_proxies import rss_bytes
from bench.outcome import Check, at_least, at_most, median
from bench.pinning import hurry, pin
from chaos.flood_rigs import BESIDE, BESIDE_RATE_PART, FLOOD_CPU, ROWS, SHOWN, BesideRig, ClusterRig, ProxyRig, control_link
from chaos.plants import FLOOD_PLANTS, LATE_ANSWERS, LOST_ANSWERS, NO_HEDGES, planted
from chaos.systems import Settings, running
from deploy.lab import Lab

NAME = "chaos-flood"
TAG = "chaosflood"
RATE = 100_000
PHASES = ("quiet", "control", "flood")
_SETTLED = 0.002


def map_bytes(pids: list[int]) -> int:
    """What the kernel holds for the maps of these processes, each map once (its own accounting, not our arithmetic)."""
    found = {}
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                text = entry.read_text(encoding="ascii")
                ids = re.search(r"^map_id:\s*(\d+)", text, re.M)
                if ids:
                    found[ids.group(1)] = int(re.search(r"^memlock:\s*(\d+)", text, re.M).group(1))
    return sum(found.values())


def measure_phase(rig, hook: str, phase: str, arguments: argparse.Namespace) -> dict:
    """One run of the honest clients, quiet or under frames; what was sent, met and held meanwhile."""
    before = memory(rig)
    if phase == "quiet":
        return {"hook": hook, "phase": phase, **rig.honest(arguments.seconds), **grown(before, memory(rig))}
    flood = rig.flood(hook)
    link = control_link(flood.host) if phase == "control" else contextlib.nullcontext()
    with link as mac:
        met_before, shown_before = flood.met(), flood.shown() if flood.shown else 0
        with flood.sender(rate_of(hook, arguments.rate), mac) as sender:
            pin(sender.pid, FLOOD_CPU)
            hurry(sender.pid)
            time.sleep(arguments.warm_up)
            with planted(arguments.plant if phase == "flood" else None, rig):
                honest = rig.honest(arguments.seconds)
            during = memory(rig)
        return {"hook": hook, "phase": phase, **honest, **grown(before, during), "sent": sender.counters["sent"],
                "failed": sender.counters["failed"], "sent_per_s": sender.counters["sent"] / sender.counters["seconds"],
                "met": flood.met() - met_before, **({"shown": flood.shown() - shown_before} if flood.shown else {})}


def rate_of(hook: str, rate: float) -> float:
    return rate / BESIDE_RATE_PART if hook in BESIDE else rate


def memory(rig) -> dict[str, int]:
    pids = rig.pids()
    return {"rss_bytes": rss_bytes(pids, "Rss"), "map_bytes": map_bytes(pids)}


def grown(before: dict[str, int], after: dict[str, int]) -> dict:
    """In either direction, as a share."""
    return {**after, "rss_grown": abs(after["rss_bytes"] / before["rss_bytes"] - 1),
            "maps_grown": abs(after["map_bytes"] / before["map_bytes"] - 1)}


def settle(rig, seconds: float, runs: int) -> None:
    """What is allocated once, and what honest load makes grow up to a bound of its own (a log and its tables), is there
    before anything is compared. What grows for ever is not hidden: after so many runs the check of the memory decides."""
    for _ in range(runs):
        before = memory(rig)
        rig.honest(seconds)
        if grown(before, memory(rig))["rss_grown"] < _SETTLED:
            return


def row_of(hook: str, rounds: list[dict[str, dict]]) -> dict:
    def all_of(phase: str, key: str) -> list[float]:
        return [one[phase][key] for one in rounds]

    row = {"hook": hook, "runs": len(rounds)}
    for phase in PHASES:
        for key in ("p50_us", "p99_us"):
            row[f"{phase}_{key}"] = median(all_of(phase, key))
        row[f"{phase}_lost"] = sum(all_of(phase, "lost"))
        row[f"{phase}_p99_us_max"] = max(all_of(phase, "p99_us"))
    row["n"] = sum(all_of("flood", "n"))
    row["wrong"] = sum(all_of("flood", "wrong"))
    row["sent_per_s"] = min(all_of("flood", "sent_per_s"))
    row["met_share"] = min(one["flood"]["met"] / max(1, one["flood"]["sent"]) for one in rounds)
    row["p99_factor"] = median([one["flood"]["p99_us"] / one["quiet"]["p99_us"] for one in rounds])
    row["p99_factor_of_control"] = median([one["control"]["p99_us"] / one["quiet"]["p99_us"] for one in rounds])
    # A node's log grows with honest load as well: what the frames take is beyond the quiet run of the same round.
    row["rss_grown"] = max(one["flood"]["rss_grown"] - one["quiet"]["rss_grown"] for one in rounds)
    row["quiet_rss_grown"] = max(all_of("quiet", "rss_grown"))
    row["maps_grown"] = max(all_of("flood", "maps_grown"))
    if hook in BESIDE:
        row["stalls"] = min(all_of("quiet", "stalls") + all_of("flood", "stalls"))
        row["quiet_hedges_of_stalls"] = min(one["quiet"]["hedges"] / max(1, one["quiet"]["stalls"]) for one in rounds)
        row["hedges"] = sum(all_of("flood", "hedges"))
        row["hedges_of_quiet"] = row["hedges"] / max(1, sum(all_of("quiet", "hedges")))
        row["shown_share"] = min(one["flood"]["shown"] / max(1, one["flood"]["sent"]) for one in rounds)
    return row


def must_show(rows: list[dict]) -> list[Check]:
    checks = [at_least("hooks", len(rows), len(ROWS)),
              at_least("runs of each hook", min((row["runs"] for row in rows), default=0), 5, needs_full=True)]
    for row in rows:
        hook = row["hook"]
        if hook in BESIDE:
            what, least = SHOWN[hook]
            checks += [at_least(f"{hook}: stalls in each run", row["stalls"], 1),
                       at_least(f"{hook}: honest hedges of each stall, quiet", row["quiet_hedges_of_stalls"], 1),
                       at_least(f"{hook}: honest hedges / quiet", row["hedges_of_quiet"], 0.5, finds=[NO_HEDGES]),
                       at_least(f"{hook}: share of the frames {what}", row["shown_share"], least)]
        checks += [at_least(f"{hook}: frames per second", row["sent_per_s"], 0.98 * rate_of(hook, RATE), needs_full=True),
                   at_least(f"{hook}: share of them that the program met", row["met_share"], 0.95),
                   at_most(f"{hook}: honest clients' p99 / quiet", row["p99_factor"], 2, needs_full=True, finds=[LATE_ANSWERS]),
                   at_most(f"{hook}: honest requests lost", row["flood_lost"], 0, finds=[LOST_ANSWERS]),
                   at_most(f"{hook}: honest requests answered wrongly", row["wrong"], 0),
                   at_most(f"{hook}: resident memory changed by, beyond the quiet run", row["rss_grown"], 0.01, needs_full=True),
                   at_most(f"{hook}: maps' memory changed by", row["maps_grown"], 0.01)]
    return checks


def all_rounds(rig, hooks: list[str], running: experiment.Running, arguments: argparse.Namespace) -> None:
    settle(rig, arguments.seconds, arguments.settle)
    for turn in running.turns(hook=hooks):
        done = {}
        for phase in PHASES:
            done[phase] = measure_phase(rig, turn["hook"], phase, arguments)
            time.sleep(arguments.pause)
        turn.done({"phases": done, "config": rig.config()})


def measure(running_: experiment.Running, arguments: argparse.Namespace) -> None:
    of_the_proxy = [hook for hook in arguments.hooks if hook != "node" and hook not in BESIDE]
    beside = [hook for hook in arguments.hooks if hook in BESIDE]
    if of_the_proxy:
        with Lab(arguments.lab, replicas=2) as lab, ProxyRig(lab, arguments.lab).up() as rig:
            all_rounds(rig, of_the_proxy, running_, arguments)
    if beside:
        with Lab(arguments.lab, replicas=2) as lab, BesideRig(lab, arguments.lab).up() as rig:
            all_rounds(rig, beside, running_, arguments)
    if "node" in arguments.hooks:
        with Lab(arguments.lab, replicas=3) as lab, running("hedgerow", lab, Settings()) as up:
            all_rounds(ClusterRig(lab, up), ["node"], running_, arguments)


def _settle(_parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Mistakes are made in the proxy's rigs, and hedges are counted in one of them."""
    if arguments.plant:
        arguments.hooks = [hook for hook in arguments.hooks if hook in BESIDE or (hook != "node" and arguments.plant != NO_HEDGES)]


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["hook"], must_show,
    lambda hook, records: [{**row_of(hook, [record["phases"] for record in records]), "config_hash": records[0]["config_hash"]}],
    {"hook": "hook", "runs": "runs", "sent_per_s": "frames/s", "met_share": "met", "quiet_p99_us": "quiet p99",
     "control_p99_us": "control p99", "flood_p99_us": "flood p99", "p99_factor": "factor", "flood_lost": "lost", "hedges_of_quiet": "hedges/quiet",
     "rss_grown": "rss grown", "maps_grown": "maps grown"}, plants=dict.fromkeys(FLOOD_PLANTS), tag=TAG,
    measure=measure, rounds=5, settle=_settle,
    quick={"rounds": 1, "seconds": 1.0, "warm_up": 0.3, "pause": 0.2, "quiet_wait": 0.0}, options=(
        experiment.some("--hooks", ROWS), experiment.number("--seconds", 5.0, 0.1, 60, help="of honest load in each run"),
        experiment.number("--warm-up", 1.0, 0.0, 60, help="seconds of flood before the honest load is measured"),
        experiment.number("--settle", 12, 0, 1000, help="honest runs before the first round, at most, until memory stands still"),
        experiment.number("--pause", 3.0, 0.0, 600, help="seconds after each run, in which what it left is forgotten"),
        experiment.number("--rate", RATE, 1.0, RATE, help=f"frames per second; {RATE} are wanted")))
