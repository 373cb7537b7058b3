# SPDX-License-Identifier: Apache-2.0
"""A block of one system under one scenario, measured and kept, and the row that all of them become in summary.json. Used by run.py."""

import dataclasses
import gzip
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.histogram import quantile
from chaos.block import final_of, run_block
from chaos.judgement import final_kept, judge_kept
from chaos.scenario import OUTAGE, Scenario
from chaos.systems import Settings
from deploy.dev import temporary
from deploy.lab import Lab

EVENTS_OF_A_BLOCK = 10


def row_of(scenario: Scenario, mode: str, system: str, blocks: Sequence[dict]) -> dict:
    """`blocks`: records, as one_block makes them."""
    costs = [cost for block in blocks for cost in block["costs"]]
    events = [event for block in blocks for event in block["events"]]
    copies = [block["copies_arrived"] for block in blocks]
    errors = sum(errors_of(block["report"]) for block in blocks)
    operations, settings = sum(block["report"]["sent"] for block in blocks), blocks[0]["config"]
    cut_disks, ours = settings["disks"] is not None and scenario.kills, blocks[0]["offloads"] is not None

    def verdicts(key: str) -> list:
        return [block["verdict"][key] for block in blocks]

    return {"system": system, "mode": mode, "scenario": scenario.name, "events": len(costs), "events_wanted": blocks[0]["events_wanted"],
            "client_errors": errors, "errors_share": errors / max(1, operations),
            **{f"{name}_{label}_ms": pick([cost[f"{name}_ms"] for cost in costs]) for name in ("unavailable", "outage", "next_answer", "calm")
               for label, pick in (("p50", lambda waits: quantile(waits, 0.5)), ("p99", lambda waits: quantile(waits, 0.99)), ("max", max))},
            "stolen_share": sum(block["stolen_share"] for block in blocks) / len(blocks),
            "duplicates_arrived": None if None in copies else sum(copies),
            "acked_lost": sum(verdicts("acked_lost")), "double_applied": sum(verdicts("double_applied")),
            "linearizable": all(verdicts("linearizable")), "checkers_disagree": sum(not agreed for agreed in verdicts("agreed")),
            # How long each checker took.
            **{f"{name.replace('-', '_')}_s": sum(each[name]["seconds"] for each in verdicts("checkers")) for name in verdicts("checkers")[0]},
            "replicas": settings["replicas"], "operations": operations,
            "duplicate_answers": sum(block["report"]["duplicates"] for block in blocks),
            "bites": {name: bitten(name, blocks) for name in scenario.bites},
            "events_with_loss": sum(lost_bytes(event) > 0 for event in events) if cut_disks else None,
            "events_with_log_loss": sum(map(log_was_cut, events)) if cut_disks else None,
            "unsynced_lost_bytes": sum(map(lost_bytes, events)) if cut_disks else None,
            "ballast_bytes": settings["ballast_bytes"],
            "leader_resident_bytes": min((event["resident_bytes"] for event in events), default=0) if settings["ballast_bytes"] else None,
            "offloads": sorted(set.intersection(*(set(block["offloads"]) for block in blocks))) if ours else None,
            "hedge_delay": settings["hedge_delay"] if ours else None,
            "config_hash": ",".join(dict.fromkeys(block["config_hash"] for block in blocks))}


def bitten(name: str, blocks: Sequence[dict]) -> float:
    """Of the event that shows least of it."""
    if name == OUTAGE:
        return min((cost["outage_ms"] for block in blocks for cost in block["costs"]), default=0.0)
    return min((event["evidence"].get(name, 0) for block in blocks for event in block["events"]), default=0.0)


def lost_bytes(event: dict) -> int:
    """What was not synced when the disks lost their power."""
    return sum(lost["lost_bytes"] for lost in event["lost"].values())


_LOG_FILE = re.compile(r"(^|/)segments/[0-9a-f]{16}$|\.wal$")  # ours (cluster/storage/segments.h), etcd's


def log_was_cut(event: dict) -> bool:
    """Records that had been written to a node's log, ours or etcd's, were not synced yet and are lost."""
    return any(_LOG_FILE.search(file) for lost in event["lost"].values() for file in lost["files"])


def errors_of(report: dict) -> int:
    """Operations that the client was not answered as it asked, and those that its kernel did not take."""
    return report["timed_out"] + sum(report["errors"].values()) + report["send_failed"]


def block_sizes(events: int) -> list[int]:
    full, rest = divmod(events, EVENTS_OF_A_BLOCK)
    return [EVENTS_OF_A_BLOCK] * full + ([rest] if rest else [])


def judged_again(record: dict, raw: Path) -> dict:
    """With the verdict of today's checkers, where the histories were kept."""
    history = raw / f"{record['mode']}-{record['system']}-{record['round']:02d}.csv.gz"
    return {**record, "verdict": judge_kept(history)} if history.exists() and final_kept(history).exists() else record


def one_block(lab: Lab, system: str, scenario: Scenario, settings: Settings, *, raw: Path, name: str, **how) -> dict:
    """Measured; its histories are kept in `raw`, also where something went wrong: then they are wanted most, with the logs."""
    with temporary.folder("chaos") as folder:
        history = Path(folder, "history.csv")
        try:
            return dataclasses.asdict(run_block(lab, system, scenario, settings, history=history, **how))
        except Exception:
            for log in lab.registry.path.glob("*/log"):
                shutil.copyfile(log, raw / f"{name}-{log.parent.name}.log")
            raise
        finally:
            for file, kept in ((history, f"{name}.csv.gz"), (final_of(history), f"{name}-final.csv.gz")):
                if file.exists():
                    with open(file, "rb") as plain, gzip.open(raw / kept, "wb", compresslevel=1) as packed:
                        shutil.copyfileobj(plain, packed)
