# SPDX-License-Identifier: Apache-2.0
"""What clients see when a leader dies: our store behind the proxy and without it, and etcd, under the same load and the
same faults, in turns. Run by `./dev chaos NAME`; writes results/chaos-NAME/ and exits 1 when something it must show is
missed. README.md says what the figures mean.
"""

import argparse
import re
import sys
from pathlib import Path

from bench import cpu_time, experiment, series
from bench.outcome import Results
from chaos import scenario as scenarios
from chaos.cell import Cell, block_sizes, line_of, one_block
from chaos.judgement import require_checkers
from chaos.promises import must_show
from chaos.scenario import Scenario
from chaos.systems import SYSTEMS, Settings, is_etcd
from deploy.lab import CommandFailed, Lab
from deploy.lab.unsynced_disks import DiskSettings
from plots import looks
from plots.charts import Charts, Steps

MODES, REPLICAS = scenarios.MODES, scenarios.REPLICAS
STATED_EVENTS = 100


def settings_of(scenario: Scenario, mode: str, replicas: int, *, hedge_delay: str = "10ms", disks: DiskSettings | None = None,
                ballast_bytes: int = 0) -> Settings:
    """With what the scenario's faults need of the nodes and their disks."""
    if disks is None and "disks" in scenario.needs:
        disks = DiskSettings()
    return Settings(mode, replicas, hedge_delay, disks, ballast_bytes, own_clocks="own_clocks" in scenario.needs,
                    short_logs="short_logs" in scenario.needs)


def results_of(arguments: argparse.Namespace, scenario: Scenario) -> Results:
    """Under the name that was given; otherwise in the scenario's own folder only if it is stated: as many events, and no planted fault."""
    if arguments.name:
        return Results(f"chaos-{arguments.name}")
    return experiment.results(f"chaos-{scenario.name}", argparse.Namespace(
        into=None, plant="ignore-sync" if arguments.ignore_sync else "", rounds=arguments.kills, stated_rounds=STATED_EVENTS))


def measure(lab: Lab, arguments: argparse.Namespace, scenario: Scenario, results: Results) -> list[Cell]:
    cells = [Cell(system, settings_of(scenario, mode, arguments.replicas, hedge_delay=arguments.hedge_delay,
                                      disks=arguments.disks, ballast_bytes=arguments.ballast))
             for mode in arguments.mode for system in arguments.systems]
    sizes = block_sizes(arguments.kills)
    progress = experiment.Progress(len(sizes) * len(cells))
    for number, events in enumerate(sizes, start=1):
        shift = number % len(cells)
        for cell in cells[shift:] + cells[:shift]:
            cpu_time.wait_until_quiet(at_most_s=arguments.quiet_wait)
            block = one_block(lab, cell, scenario, events, arguments.seed + number,
                              f"{cell.settings.mode}-{cell.system}-{number:02d}", results)
            progress.done(line_of(cell, block))
    return cells


def size(text: str) -> int:
    """Bytes, of a number with K, M or G; at most 16G."""
    found = re.fullmatch(r"(\d{1,6})([KMG]?)", text)
    bytes_ = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else -1
    if not 0 <= bytes_ <= 16 << 30:
        raise argparse.ArgumentTypeError(f"'{text}' is no size up to 16G, such as 3G")
    return bytes_


def _series(folder: Path, _summary: dict) -> tuple[dict, dict]:
    costs: dict[str, list[dict]] = {}
    for block in series.raw(folder):
        if "costs" in block:
            costs.setdefault(f"{block['mode']}-{block['system']}", []).extend(block["costs"])
    return ({key: series.spread(cost["unavailable_ms"] for cost in found) for key, found in costs.items()},
            {key: {"unavailable_ms": sorted(series.short(cost["unavailable_ms"]) for cost in found),
                   "outage_ms": sorted(series.short(cost["outage_ms"]) for cost in found if "outage_ms" in cost)}
             for key, found in costs.items()})


_STEPS = {"panel": ("mode",), "key": ("mode", "system"), "of": "faults"}
CHARTS = Charts("What a client waits around a fault", looks.STORES, "system",
                (Steps("Longest wait of each fault, mode", y="unavailable_ms", label="longest wait", **_STEPS),
                 Steps("Longest time without any write, mode", y="outage_ms", label="without a write", **_STEPS)), _series)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("scenario", choices=scenarios.names())
    parser.add_argument("--kills", "--events", type=int, default=STATED_EVENTS, metavar="N", help="faults of each system")
    parser.add_argument("--mode", type=experiment.some_of(MODES), help="memory, disk, or both (default: the scenario's; disk with disks that lose what was not synced)")
    parser.add_argument("--drop-unsynced", nargs="?", const="all", choices=("all", "torn"),
                        help="a killed node loses what it has not synced: all of it, or some, drawn from the seed")
    parser.add_argument("--names", choices=("strict", "journal"), default="strict",
                        help="whose names a sync covers there: its own folder's, or all, as with ext4's journal")
    parser.add_argument("--ignore-sync", metavar="PATTERN", default="",
                        help="a planted fault: syncs of files and folders of such names do nothing; the run must fail")
    parser.add_argument("--ballast", type=size, default=0, metavar="SIZE",
                        help="such as 3G: the leader that the fault meets has at least so much resident memory")
    parser.add_argument("--replicas", type=int, choices=REPLICAS, help="default: the scenario's")
    parser.add_argument("--systems", type=experiment.some_of(SYSTEMS),
                        help="default: all that the scenario's faults can meet")
    parser.add_argument("--hedge-delay", default="10ms", help="of the proxy and of the application alike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quiet-wait", type=float, default=30.0,
                        help="seconds to wait at most for an idle machine before each block")
    parser.add_argument("--as", dest="name", metavar="NAME", help="write results/chaos-NAME, not results/chaos-SCENARIO")
    parser.add_argument("--lab", default="chaos", help="tag of the lab and instance of the proxy (default: chaos)")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.kills <= 1000:
        parser.error("--kills must be 1 to 1000")
    scenario = scenarios.load(arguments.scenario)
    cuts_power = "power-cut" in scenario.kinds
    if cuts_power and arguments.drop_unsynced is None:
        arguments.drop_unsynced = "all"
    arguments.disks = None
    if arguments.drop_unsynced is not None:
        arguments.disks = DiskSettings(names=arguments.names, torn=arguments.drop_unsynced == "torn",
                                       ignore_sync=arguments.ignore_sync)
    arguments.mode = arguments.mode or ["disk" if arguments.disks is not None else scenario.run.mode]
    arguments.replicas = arguments.replicas or scenario.run.replicas
    arguments.systems = arguments.systems or systems_for(scenario)
    for system in set(arguments.systems) - set(systems_for(scenario)):
        parser.error(f"{scenario.name} cannot meet {system}")
    if arguments.disks is not None and (not scenario.kills or arguments.mode != ["disk"]):
        parser.error("disks that lose what was not synced are for nodes that are killed, in mode disk alone: memory mode "
                     "promises nothing then")
    if arguments.ballast and any(map(is_etcd, arguments.systems)):
        parser.error("--ballast is for our nodes: name them with --systems")
    if arguments.disks is None and (arguments.ignore_sync or arguments.names != "strict"):
        parser.error("--ignore-sync and --names are about --drop-unsynced")
    return arguments


def systems_for(scenario: Scenario) -> list[str]:
    """Some faults are of our own programs only."""
    if scenario.needs & {"daemons", "own_clocks", "our_commands"}:
        return ["hedgerow"]
    return list(SYSTEMS)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    scenario = scenarios.load(arguments.scenario)
    print(f"{scenario.name}: {scenario.what}\n", flush=True)
    try:
        require_checkers()
    except CommandFailed as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 1
    with Lab(arguments.lab, replicas=arguments.replicas) as lab:
        # Only now: the run that has the lab may be writing there.
        results = results_of(arguments, scenario)
        cells = measure(lab, arguments, scenario, results)
    rows = [cell.row(scenario) for cell in cells]
    configs = {key: config for cell in cells for key, config in cell.configs.items()}
    return experiment.conclude(
        results, results.manifest(configs, events=arguments.kills, seed=arguments.seed,
                          checkers=sorted({f"{name} {found.get('version', '')}".strip() for cell in cells
                                           for block in cell.blocks
                                           for name, found in block.verdict["checkers"].items()}),
                          scenario=scenario.as_json()),
        rows, must_show(rows, arguments.kills, arguments.hedge_delay, scenario, arguments.ballast),
        {"mode": "mode", "system": "system", "events": "events", "client_errors": "errors",
         "unavailable_p50_ms": "unavail. p50", "unavailable_p99_ms": "p99", "unavailable_max_ms": "max ms",
         "outage_p50_ms": "outage p50", "next_answer_p50_ms": "next answer p50", "calm_p50_ms": "calm p50", "duplicates_arrived": "copies", "acked_lost": "lost",
         "double_applied": "twice", "linearizable": "linearizable", "hr_kv_check_s": "hr-kv-check s",
         "porcupine_s": "porcupine s", **({"unsynced_lost_bytes": "unsynced"} if arguments.disks else {})}, CHARTS)
