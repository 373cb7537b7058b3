# SPDX-License-Identifier: Apache-2.0
"""What has been measured of one system under one scenario, block by block, and the row that it becomes in summary.json. Used by run.py
and all.py.
"""

import dataclasses
import gzip
import re
import shutil
import tempfile
from pathlib import Path

from bench.histogram import quantile
from bench.manifest import config_hash
from bench.outcome import Results
from chaos.block import Block, final_of, run_block
from chaos.scenario import OUTAGE, Scenario
from chaos.systems import Settings, is_etcd
from deploy.lab import Lab

EVENTS_OF_A_BLOCK = 10


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
        errors = sum(errors_of(block.report) for block in blocks)
        operations = sum(block.report["sent"] for block in blocks)
        cut_disks = self.settings.disks is not None and scenario.kills
        return {"system": self.system, "mode": self.settings.mode, "scenario": scenario.name, "events": len(costs),
                "client_errors": errors, "errors_share": errors / max(1, operations),
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
                "replicas": self.settings.replicas, "operations": operations,
                "duplicate_answers": sum(block.report["duplicates"] for block in blocks),
                "bites": {name: bitten(name, blocks) for name in scenario.bites},
                "events_with_loss": sum(lost_bytes(event) > 0 for event in events) if cut_disks else None,
                "events_with_log_loss": sum(map(log_was_cut, events)) if cut_disks else None,
                "unsynced_lost_bytes": sum(map(lost_bytes, events)) if cut_disks else None,
                "leader_resident_bytes": min((event["resident_bytes"] for event in events), default=0)
                if self.settings.ballast_bytes else None,
                "offloads": None if is_etcd(self.system) else sorted(set.intersection(*(set(block.offloads) for block in blocks))),
                "hedge_delay": None if is_etcd(self.system) else self.settings.hedge_delay,
                "config_hash": ",".join(self.configs)}

    @property
    def configs(self) -> dict[str, dict]:
        """Of its blocks, by hash: one, unless they differ."""
        return {config_hash(block.config): block.config for block in self.blocks}


def bitten(name: str, blocks: list[Block]) -> float:
    """Of the event that shows least of it."""
    if name == OUTAGE:
        return min((cost.outage_ms for block in blocks for cost in block.costs), default=0.0)
    return min((event["evidence"].get(name, 0) for block in blocks for event in block.events), default=0.0)


def _percentiles(name: str, values: list[float]) -> dict:
    return {f"{name}_p50_ms": quantile(values, 0.5), f"{name}_p99_ms": quantile(values, 0.99),
            f"{name}_max_ms": max(values)}


def _check_times(blocks: list[Block]) -> dict:
    """How long each checker took, by its name."""
    return {f"{name.replace('-', '_')}_s": sum(block.verdict["checkers"][name]["seconds"] for block in blocks)
            for name in blocks[0].verdict["checkers"]}


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


def one_block(lab: Lab, cell: Cell, scenario: Scenario, events: int, seed: int, name: str, results: Results,
              plant: str | None = None) -> Block:
    """Measured, kept under `raw`, and added to the cell."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-chaos-") as folder:
        history = Path(folder, "history.csv")
        try:
            block = run_block(lab, cell.system, scenario, cell.settings, events=events, seed=seed, history=history,
                              plant=plant)
        except Exception:
            for log in lab.registry.path.glob("*/log"):
                shutil.copyfile(log, results.raw / f"{name}-{log.parent.name}.log")
            raise
        finally:
            # Also where something went wrong: then it is wanted most.
            for file, kept in ((history, f"{name}.csv.gz"), (final_of(history), f"{name}-final.csv.gz")):
                if file.exists():
                    with open(file, "rb") as plain, gzip.open(results.raw / kept, "wb", compresslevel=1) as packed:
                        shutil.copyfileobj(plain, packed)
    results.write_raw(name, {"system": cell.system, "mode": cell.settings.mode, "scenario": scenario.name, "seed": seed,
                             **dataclasses.asdict(block), "config_hash": config_hash(block.config)})
    cell.blocks.append(block)
    return block


def line_of(cell: Cell, block: Block) -> str:
    waits = [cost.unavailable_ms for cost in block.costs]
    outages = [cost.outage_ms for cost in block.costs]
    verdict = block.verdict
    sound = verdict["linearizable"] and not verdict["acked_lost"] and not verdict["double_applied"]
    return (f"{cell.settings.mode:6} {cell.system:15} unavailable p50 {quantile(waits, 0.5):7.1f} max "
            f"{max(waits):7.1f} ms, outage p50 {quantile(outages, 0.5):7.1f} ms, errors "
            f"{errors_of(block.report):5}, copies {block.copies_arrived if block.copies_arrived is not None else '-'}, "
            f"{'sound' if sound else 'UNSOUND: ' + '; '.join(verdict['violations'])}")
