# SPDX-License-Identifier: Apache-2.0
"""What clients see when a leader dies: our store behind the proxy and without it, and etcd, under the same load and the
same faults, in turns. Run by `./dev chaos NAME`; writes results/chaos-NAME/ and exits 1 when something it must show is
missed. README.md says what the figures mean.
"""

import argparse
import functools
import re
from pathlib import Path

from bench import experiment, series
from bench.outcome import Results
from chaos import scenario as scenarios
from chaos.cell import block_sizes, judged_again, one_block, row_of
from chaos.judgement import require_checkers
from chaos.plants import PLANTS
from chaos.promises import must_show
from chaos.scenario import Scenario
from chaos.systems import ABLATIONS, SYSTEMS, Settings, is_etcd
from deploy.lab import Lab
from deploy.lab.unsynced_disks import DiskSettings
from plots import looks
from plots.charts import Charts, Steps

MODES, REPLICAS = scenarios.MODES, scenarios.REPLICAS
STATED_EVENTS = 100


def settings_of(scenario: Scenario, mode: str, arguments: argparse.Namespace) -> Settings:
    """With what the scenario's faults need of the nodes and their disks."""
    disks = DiskSettings() if arguments.disks is None and "disks" in scenario.needs else arguments.disks
    return Settings(mode, arguments.replicas, arguments.hedge_delay, disks, arguments.ballast, own_clocks="own_clocks" in scenario.needs,
                    short_logs="short_logs" in scenario.needs)


def measure(scenario: Scenario, running: experiment.Running, arguments: argparse.Namespace) -> None:
    print(f"{scenario.name}: {scenario.what}\n", flush=True)
    require_checkers()
    sizes = block_sizes(arguments.kills)
    with Lab(arguments.lab, replicas=arguments.replicas) as lab:
        for turn in running.turns(range(1, len(sizes) + 1), mode=arguments.mode, system=arguments.systems):
            block = one_block(lab, turn["system"], scenario, settings_of(scenario, turn["mode"], arguments), raw=running.results.raw,
                              name=turn.name, events=sizes[turn.round - 1], seed=arguments.seed + turn.round, plant=arguments.plant)
            turn.done({**block, "events_wanted": arguments.kills})


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


def experiment_of(scenario: Scenario) -> experiment.Experiment:
    return experiment.Experiment(
        f"chaos-{scenario.name}", __doc__, ("mode", "system"), functools.partial(must_show, scenario),
        lambda *cell: [row_of(scenario, *cell)],
        {"mode": "mode", "system": "system", "events": "events", "client_errors": "errors",
         "unavailable_p50_ms": "unavail. p50", "unavailable_p99_ms": "p99", "unavailable_max_ms": "max ms", "outage_p50_ms": "outage p50",
         "next_answer_p50_ms": "next answer p50", "calm_p50_ms": "calm p50", "duplicates_arrived": "copies", "acked_lost": "lost",
         "double_applied": "twice", "linearizable": "linearizable", "hr_kv_check_s": "hr-kv-check s",
         "porcupine_s": "porcupine s", "unsynced_lost_bytes": "unsynced"}, CHARTS,
        measure=functools.partial(measure, scenario), again=judged_again, rounds=1, settle=functools.partial(settle, scenario), plants=PLANTS, tag="chaos",
        notes=lambda _: {"scenario": scenario.as_json()}, options=(
            experiment.number("--kills --events", STATED_EVENTS, 1, 1000, help="faults of each system"),
            experiment.some("--mode", MODES, (), help="memory, disk, or both (default: the scenario's; disk with disks that lose what was not synced)"),
            ("--drop-unsynced", {"nargs": "?", "const": "all", "choices": ("all", "torn"),
                                 "help": "a killed node loses what it has not synced: all of it, or some, drawn from the seed"}),
            ("--names", {"choices": ("strict", "journal"), "default": "strict",
                         "help": "whose names a sync covers there: its own folder's, or all, as with ext4's journal"}),
            ("--ignore-sync", {"metavar": "PATTERN", "default": "",
                               "help": "a planted fault: syncs of files and folders of such names do nothing; the run must fail"}),
            ("--ballast", {"type": size, "default": 0, "metavar": "SIZE",
                           "help": "such as 3G: the leader that the fault meets has at least so much resident memory"}),
            ("--replicas", {"type": int, "choices": REPLICAS, "default": scenario.run.replicas}),
            experiment.some("--systems", (*SYSTEMS, *ABLATIONS), systems_for(scenario)),
            ("--hedge-delay", {"default": "10ms", "help": "of the proxy and of the application alike"}),
            ("--seed", {"type": int, "default": 1}),
            ("--as", {"dest": "name", "metavar": "NAME", "help": "write results/chaos-NAME, not results/chaos-SCENARIO"})))


def settle(scenario: Scenario, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    # In the scenario's own folder only what is stated: as many events, and no planted fault.
    arguments.rounds, arguments.stated_rounds = arguments.kills, STATED_EVENTS
    if name := arguments.name or (f"{scenario.name}-plant-ignore-sync" if arguments.ignore_sync else ""):
        arguments.into = arguments.into or Results.folder_named(f"chaos-{name}")
    if "power-cut" in scenario.kinds and arguments.drop_unsynced is None:
        arguments.drop_unsynced = "all"
    arguments.disks = None
    if arguments.drop_unsynced is not None:
        arguments.disks = DiskSettings(names=arguments.names, torn=arguments.drop_unsynced == "torn",
                                       ignore_sync=arguments.ignore_sync)
    arguments.mode = arguments.mode or ["disk" if arguments.disks is not None else scenario.run.mode]
    for system in set(arguments.systems) - {*systems_for(scenario), *ABLATIONS}:
        parser.error(f"{scenario.name} cannot meet {system}")
    if arguments.disks is not None and (not scenario.kills or arguments.mode != ["disk"]):
        parser.error("disks that lose what was not synced are for nodes that are killed, in mode disk alone: memory mode "
                     "promises nothing then")
    if arguments.ballast and any(map(is_etcd, arguments.systems)):
        parser.error("--ballast is for our nodes: name them with --systems")
    if arguments.disks is None and (arguments.ignore_sync or arguments.names != "strict"):
        parser.error("--ignore-sync and --names are about --drop-unsynced")


def systems_for(scenario: Scenario) -> list[str]:
    """Some faults are of our own programs only."""
    if scenario.needs & {"daemons", "own_clocks", "our_commands"}:
        return ["hedgerow"]
    return list(SYSTEMS)


def main(argv: list[str]) -> int:
    return experiment_of(scenarios.load(argv[0])).main(argv[1:])
