# SPDX-License-Identifier: Apache-2.0
"""What clients see when a leader dies: our store behind the proxy and without it, and etcd, under the same load and the
same faults, in turns. Run by `./dev chaos NAME`; writes results/chaos-NAME/ and exits 1 when something it must show is
missed. README.md says what the figures mean.
"""

import argparse
import dataclasses
import gzip
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench import cpu_time, experiment
from bench.manifest import config_hash, manifest
from bench.outcome import Check, Results, at_least, at_most
from bench.stopping import run
from chaos import scenario as scenarios
from chaos.block import Block, final_of, run_block
from chaos.judgement import CHECKERS, require_checkers
from chaos.scenario import Scenario
from chaos.systems import SYSTEMS, Settings, etcd_version, is_etcd
from chaos.unavailable import percentile
from deploy.lab import CommandFailed, Lab, LabInUse
from deploy.lab.unsynced_disks import DiskSettings

EVENTS_OF_A_BLOCK = 10
MODES, REPLICAS = ("memory", "disk"), (3, 5, 7)
_PROGRAMS = ("hedgerow", "hedgerowd", "hedgerow-node", "hr-kv-chaos", *CHECKERS, "hr-unsynced-fs")
_KILLS = ("kill", "power-cut")
# By mode and fault. A leader that dies in memory mode says so; of one that is cut off, others must find out.
_UNAVAILABLE_MS = {("memory", "kill"): {"p50": 5, "p99": 20}, ("memory", "cut"): {"p50": 35}}
# One of three met one when a power cut met all nodes; this many that all miss are no accident.
_KILLS_TO_MEET_A_WRITE = 20


@dataclasses.dataclass
class Cell:
    """What has been measured of one system in one mode so far."""

    system: str
    settings: Settings
    blocks: list[Block] = dataclasses.field(default_factory=list)

    def row(self, scenario: Scenario) -> dict:
        blocks = self.blocks
        costs = [cost for block in blocks for cost in block.costs]
        events = [event for block in blocks for event in block.events]
        copies = [block.copies_arrived for block in blocks]
        return {"system": self.system, "mode": self.settings.mode, "scenario": scenario.name, "events": len(costs),
                "client_errors": sum(errors_of(block.report) for block in blocks),
                **_percentiles("unavailable", [cost.unavailable_ms for cost in costs]),
                **_percentiles("outage", [cost.outage_ms for cost in costs]),
                **_percentiles("next_answer", [cost.next_answer_ms for cost in costs]),
                **_percentiles("calm", [cost.calm_ms for cost in costs]),
                "stolen_share": sum(block.stolen_share for block in blocks) / len(blocks),
                "duplicates_arrived": None if None in copies else sum(copies),
                "acked_lost": sum(block.verdict["acked_lost"] for block in blocks),
                "double_applied": sum(block.verdict["double_applied"] for block in blocks),
                "linearizable": all(block.verdict["linearizable"] for block in blocks),
                "checkers_disagree": sum(not block.verdict["agreed"] for block in blocks),
                **_check_times(blocks),
                "replicas": self.settings.replicas, "operations": sum(block.report["sent"] for block in blocks),
                "duplicate_answers": sum(block.report["duplicates"] for block in blocks),
                "events_with_loss": sum(lost_bytes(event) > 0 for event in events) if self.settings.disks else None,
                "events_with_log_loss": sum(map(log_was_cut, events)) if self.settings.disks else None,
                "unsynced_lost_bytes": sum(map(lost_bytes, events)) if self.settings.disks else None,
                "leader_resident_bytes": min((event["resident_bytes"] for event in events), default=0)
                if self.settings.ballast_bytes else None,
                "offloads": blocks[0].offloads,
                "hedge_delay": None if is_etcd(self.system) else self.settings.hedge_delay,
                "config_hash": config_hash(blocks[0].config)}


def _percentiles(name: str, values: list[float]) -> dict:
    return {f"{name}_p50_ms": percentile(values, 0.5), f"{name}_p99_ms": percentile(values, 0.99),
            f"{name}_max_ms": max(values)}


def _check_times(blocks: list[Block]) -> dict:
    """How long each checker took, by its name."""
    return {f"{name.replace('-', '_')}_s": sum(block.verdict["checkers"][name]["seconds"] for block in blocks)
            for name in blocks[0].verdict["checkers"]}


def lost_bytes(event: dict) -> int:
    """What was not synced when the disks lost their power."""
    return sum(lost["lost_bytes"] for lost in event["lost"].values())


def log_was_cut(event: dict) -> bool:
    """Records that had been written to a node's log, ours or etcd's, were not synced yet and are lost."""
    return any(file.endswith((".log", ".wal")) for lost in event["lost"].values() for file in lost["files"])


def errors_of(report: dict) -> int:
    """Operations that the client was not answered as it asked, and those that its kernel did not take."""
    return report["timed_out"] + sum(report["errors"].values()) + report["send_failed"]


def must_show(rows: list[dict], kills: int, hedge_delay: str, scenario: Scenario, ballast_bytes: int = 0) -> list[Check]:
    """With disks that lose what was not synced only durability is judged, since every write goes through one more program;
    and so it is while no node lives, for nobody can be answered then."""
    checks = []
    for row in rows:
        if row["system"] != "hedgerow":
            continue
        if row["events_with_loss"] is not None:
            checks += _durable(row, kills) + ([] if scenario.target == "all" else [_no_errors(row)])
            continue
        if scenario.target == "all":
            checks += _sound(row, kills)
            continue
        others = {other["system"]: other for other in rows if other["mode"] == row["mode"]}
        mode = row["mode"]
        checks += [*_sound(row, kills), _no_errors(row)]
        checks += [at_most(f"{mode}: unavailable {name}", row[f"unavailable_{name}_ms"], limit, "ms")
                   for name, limit in _UNAVAILABLE_MS.get((mode, scenario.fault), {"p50": 60}).items()]
        if row["leader_resident_bytes"] is not None:
            checks.append(at_least(f"{mode}: resident memory of the leader, of every event",
                                   row["leader_resident_bytes"] / 2**20, ballast_bytes / 2**20, "MiB"))
        if "etcd-default" in others:
            # The kinder of its two figures: a write that etcd lost with its leader has waited its whole time-out.
            etcd = min(others["etcd-default"][f"{name}_p50_ms"] for name in ("unavailable", "outage"))
            checks.append(at_most(f"{mode}: unavailable p50, a tenth of etcd-default's (its kinder figure)",
                                  row["unavailable_p50_ms"], etcd / 10, "ms"))
        if "noproxy-app" in others:
            checks.append(at_most(f"{mode}: unavailable p50, no worse than the application's (5 % for noise)",
                                  row["unavailable_p50_ms"], 1.05 * others["noproxy-app"]["unavailable_p50_ms"], "ms"))
        if hedge_delay == "0.5ms":
            checks.append(at_least(f"{mode}: duplicates arrived per 100 events",
                                   100 * (row["duplicates_arrived"] or 0) / row["events"], 10_000))
    disagreed = sum(row["checkers_disagree"] for row in rows)
    return [*checks, at_most("histories on which the checkers do not agree, of all systems", disagreed, 0)]


def _sound(row: dict, kills: int) -> list[Check]:
    mode = row["mode"]
    return [at_least(f"{mode}: events", row["events"], kills),
            at_most(f"{mode}: acknowledged writes lost", row["acked_lost"], 0),
            at_most(f"{mode}: increments applied twice", row["double_applied"], 0),
            at_least(f"{mode}: linearizable, as both checkers say", int(row["linearizable"]), 1),
            at_most(f"{mode}: answers that came twice", row["duplicate_answers"], 0)]


def _no_errors(row: dict) -> Check:
    return at_most(f"{row['mode']}: client errors", row["client_errors"], 0)


def _durable(row: dict, kills: int) -> list[Check]:
    """Disks that lose nothing, or never a record of a log, would show nothing. The first is sure at every event, since a
    node keeps a few bytes unsynced on purpose; the second needs an event in the midst of a write."""
    checks = [*_sound(row, kills),
              at_least(f"{row['mode']}: events at which unsynced bytes were lost", row["events_with_loss"], kills)]
    if kills >= _KILLS_TO_MEET_A_WRITE:
        checks.append(at_least(f"{row['mode']}: of these, in the midst of a write to a log",
                               row["events_with_log_loss"], 1))
    return checks


def measure(lab: Lab, arguments: argparse.Namespace, scenario: Scenario, results: Results) -> list[Cell]:
    cells = [Cell(system, Settings(mode, arguments.replicas, arguments.hedge_delay, arguments.disks, arguments.ballast))
             for mode in arguments.mode for system in arguments.systems]
    sizes = block_sizes(arguments.kills)
    done, total, started = 0, len(sizes) * len(cells), time.monotonic()
    for number, events in enumerate(sizes, start=1):
        shift = number % len(cells)
        for cell in cells[shift:] + cells[:shift]:
            cpu_time.wait_until_quiet(at_most_s=arguments.quiet_wait)
            block = one_block(lab, cell, scenario, events, arguments.seed + number, number, results)
            cell.blocks.append(block)
            done += 1
            left_s = (time.monotonic() - started) / done * (total - done)
            print(f"[{done}/{total}, {left_s / 60:.0f} min left] {_line(cell, block)}", flush=True)
    return cells


def block_sizes(events: int) -> list[int]:
    full, rest = divmod(events, EVENTS_OF_A_BLOCK)
    return [EVENTS_OF_A_BLOCK] * full + ([rest] if rest else [])


def one_block(lab: Lab, cell: Cell, scenario: Scenario, events: int, seed: int, number: int,
              results: Results) -> Block:
    name = f"{cell.settings.mode}-{cell.system}-{number:02d}"
    with tempfile.TemporaryDirectory(prefix="hedgerow-chaos-") as folder:
        history = Path(folder, "history.csv")
        block = run_block(lab, cell.system, scenario, cell.settings, events=events, seed=seed, history=history)
        for file, kept in ((history, f"{name}.csv.gz"), (final_of(history), f"{name}-final.csv.gz")):
            with open(file, "rb") as plain, gzip.open(results.raw / kept, "wb", compresslevel=1) as packed:
                shutil.copyfileobj(plain, packed)
    results.write_raw(name, {"system": cell.system, "mode": cell.settings.mode, "round": number, "seed": seed,
                             **dataclasses.asdict(block), "config_hash": config_hash(block.config)})
    return block


def _line(cell: Cell, block: Block) -> str:
    waits = [cost.unavailable_ms for cost in block.costs]
    outages = [cost.outage_ms for cost in block.costs]
    verdict = block.verdict
    sound = verdict["linearizable"] and not verdict["acked_lost"] and not verdict["double_applied"]
    return (f"{cell.settings.mode:6} {cell.system:15} unavailable p50 {percentile(waits, 0.5):7.1f} max "
            f"{max(waits):7.1f} ms, outage p50 {percentile(outages, 0.5):7.1f} ms, errors "
            f"{errors_of(block.report):5}, copies {block.copies_arrived if block.copies_arrived is not None else '-'}, "
            f"{'sound' if sound else 'UNSOUND: ' + '; '.join(verdict['violations'])}")


def size(text: str) -> int:
    """Bytes, of a number with K, M or G; at most 16G."""
    found = re.fullmatch(r"(\d{1,6})([KMG]?)", text)
    bytes_ = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else -1
    if not 0 <= bytes_ <= 16 << 30:
        raise argparse.ArgumentTypeError(f"'{text}' is no size up to 16G, such as 3G")
    return bytes_


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("scenario", choices=scenarios.names())
    parser.add_argument("--kills", "--events", type=int, default=100, metavar="N", help="faults of each system")
    parser.add_argument("--mode", type=experiment.some_of(MODES), help="memory, disk, or both (default: memory; disk with disks that lose what was not synced)")
    parser.add_argument("--drop-unsynced", nargs="?", const="all", choices=("all", "torn"),
                        help="whoever is killed loses what it has not synced: all of it, or some, drawn from the seed")
    parser.add_argument("--names", choices=("strict", "journal"), default="strict",
                        help="whose names a sync covers there: its own folder's, or all, as with ext4's journal")
    parser.add_argument("--ignore-sync", metavar="PATTERN", default="",
                        help="a planted fault: syncs of files and folders of such names do nothing; the run must fail")
    parser.add_argument("--ballast", type=size, default=0, metavar="SIZE",
                        help="such as 3G: the leader that the fault meets has at least so much resident memory")
    parser.add_argument("--replicas", type=int, choices=REPLICAS, default=3)
    parser.add_argument("--systems", type=experiment.some_of(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--hedge-delay", default="10ms", help="of the proxy and of the application alike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quiet-wait", type=float, default=30.0,
                        help="seconds to wait at most for an idle machine before each block")
    parser.add_argument("--as", dest="name", metavar="NAME", help="write results/chaos-NAME, not results/chaos-SCENARIO")
    parser.add_argument("--lab", default="chaos", help="tag of the lab and instance of the proxy (default: chaos)")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.kills <= 1000:
        parser.error("--kills must be 1 to 1000")
    fault = scenarios.load(arguments.scenario).fault
    if fault == "power-cut" and arguments.drop_unsynced is None:
        arguments.drop_unsynced = "all"
    arguments.disks = None
    if arguments.drop_unsynced is not None:
        arguments.disks = DiskSettings(names=arguments.names, torn=arguments.drop_unsynced == "torn",
                                       ignore_sync=arguments.ignore_sync)
    arguments.mode = arguments.mode or (["memory"] if arguments.disks is None else ["disk"])
    if arguments.disks is not None and (fault not in _KILLS or arguments.mode != ["disk"]):
        parser.error("disks that lose what was not synced are for nodes that are killed, in mode disk alone: memory mode "
                     "promises nothing then")
    if arguments.ballast and any(map(is_etcd, arguments.systems)):
        parser.error("--ballast is for our nodes: name them with --systems")
    if arguments.disks is None and (arguments.ignore_sync or arguments.names != "strict"):
        parser.error("--ignore-sync and --names are about --drop-unsynced")
    return arguments


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    scenario = scenarios.load(arguments.scenario)
    print(f"{scenario.name}: {scenario.what}\n", flush=True)
    try:
        require_checkers()
    except CommandFailed as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 1
    try:
        with Lab(arguments.lab, replicas=arguments.replicas) as lab:
            # Only now: whoever has the lab may be writing there.
            results = Results(f"chaos-{arguments.name or scenario.name}")
            cells = measure(lab, arguments, scenario, results)
    except LabInUse:
        print("chaos: another run is under way", file=sys.stderr)
        return 1
    rows = [cell.row(scenario) for cell in cells]
    configs = {row["config_hash"]: cell.blocks[0].config for row, cell in zip(rows, cells, strict=True)}
    return experiment.conclude(
        results, manifest(configs, _PROGRAMS, events=arguments.kills, seed=arguments.seed, etcd=etcd_version(),
                          checkers=sorted({f"{name} {found.get('version', '')}".strip() for cell in cells
                                           for block in cell.blocks
                                           for name, found in block.verdict["checkers"].items()}),
                          scenario=dataclasses.asdict(scenario), load_average=os.getloadavg()),
        rows, must_show(rows, arguments.kills, arguments.hedge_delay, scenario, arguments.ballast),
        {"mode": "mode", "system": "system", "events": "events", "client_errors": "errors",
         "unavailable_p50_ms": "unavail. p50", "unavailable_p99_ms": "p99", "unavailable_max_ms": "max ms",
         "outage_p50_ms": "outage p50", "next_answer_p50_ms": "next answer p50", "calm_p50_ms": "calm p50", "duplicates_arrived": "copies", "acked_lost": "lost",
         "double_applied": "twice", "linearizable": "linearizable", "hr_kv_check_s": "hr-kv-check s",
         "porcupine_s": "porcupine s", **({"unsynced_lost_bytes": "unsynced"} if arguments.disks else {})}, "chaos")


if __name__ == "__main__":
    run(main)
