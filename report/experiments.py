# SPDX-License-Identifier: Apache-2.0
"""All experiments that declare their charts, by the name of their folder in results/ and published/; and those that are declared whole, whose
summary can be made again from their raw files: `./dev judge FOLDER`. It judges a single history, too."""

import json
import sys
from pathlib import Path

from bench import (at_once, dns_stall, election, experiment, heartbeat, kv, membership, observe, offload, parking, phases, proxy_cost,
                   raft_hedge, restart, seed_hedge, steer)
from chaos import flood, network, no_false_elections, rotate_keys, scenario, steer_starts, upgrade, worker_churn
from chaos import run as chaos
from chaos.judgement import holds, judge_kept
from demo import dns as demo_dns
from demo import kv as demo_kv

DECLARED = {module.NAME: module.EXPERIMENT for module in (
    at_once, dns_stall, election, heartbeat, kv, membership, observe, offload, parking, phases, proxy_cost, raft_hedge, restart, seed_hedge,
    steer, flood, network, no_false_elections, rotate_keys, steer_starts, upgrade, worker_churn, demo_kv, demo_dns)}
DECLARED |= {each.name: each for each in map(chaos.experiment_of, map(scenario.load, scenario.names()))}
CHARTS = {name: each.charts for name, each in DECLARED.items()}


def main(argv: list[str]) -> int:
    if len(argv) == 1 and (history := Path(argv[0], "history.csv.gz")).exists():
        verdict = judge_kept(history)
        print(json.dumps(verdict, indent=1))
        return 0 if holds(verdict) else 1
    if len(argv) != 1 or not Path(argv[0], "summary.json").exists():
        print("usage: ./dev judge FOLDER, of results/ or published/, or with a history.csv.gz and its history-final.csv.gz", file=sys.stderr)
        return 2
    if (declared := DECLARED.get(json.loads(Path(argv[0], "summary.json").read_text(encoding="ascii"))["name"])) is None:
        print(f"judge: only these can be judged again: {', '.join(DECLARED)}", file=sys.stderr)
        return 2
    return 0 if experiment.judge(declared, Path(argv[0])) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
