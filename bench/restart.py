# SPDX-License-Identifier: Apache-2.0
"""How long a node takes to come back with a long log behind it, and how much disk it uses: a store of a million keys to which
ten million writes were made, snapshots as a node ships. One node is killed and started again, then all of them; the time is
from the process's start until it is ready and has applied what was committed when it was killed.
"""

import argparse
import contextlib
import dataclasses
import os
import threading
import time
from pathlib import Path

from bench import experiment
from bench.manifest import binary
from bench.outcome import Check, at_least, at_most
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings
from deploy.lab.waiting import until

NAME = "restart"
TAG = "benchrs"
NEVER_CUT = "never-cut"
CLIENTS = 64
RESTART_S = 30.0
MIB = 1 << 20
# Of the log's files (cluster/storage/segments.h): the first and the last one, which are not full, one that is ready, and the
# pool of those that are used again.
LOG_FILES_BYTES = (2 + 1 + 8) * 8 * MIB
_UP_WITHIN_S = 600.0
_CHUNK_S = 20


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """What the nodes are configured with."""

    every_entries: int
    every_bytes: int
    tail_entries: int
    tail_bytes: int

    def log_bytes(self, entry_bytes: float) -> float:
        """The most that the log may hold on the disk: what comes until a snapshot is taken, and the tail before it."""
        return (min(self.every_entries * entry_bytes, self.every_bytes) + min(self.tail_entries * entry_bytes, self.tail_bytes))

    def entries(self) -> int:
        return self.every_entries + self.tail_entries

    def as_config(self) -> tuple[tuple[str, int | str], ...]:
        return tuple((name, str(value) if name.endswith("bytes") else value) for name, value in dataclasses.asdict(self).items())


def disk_bytes(folder: Path) -> int:
    """What the file system has set aside for it; files come and go meanwhile."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


class Peaks(threading.Thread):
    """Looks every so often at how much disk each node uses."""

    def __init__(self, nodes: list[HedgerowNode]):
        super().__init__(daemon=True)
        self._nodes, self._done = nodes, threading.Event()
        self.peak_bytes = {node.number: 0 for node in nodes}

    def run(self) -> None:
        while not self._done.wait(0.2):
            for node in self._nodes:
                self.peak_bytes[node.number] = max(self.peak_bytes[node.number], disk_bytes(node.data_dir))

    def __exit__(self, *_exc) -> None:
        self._done.set()
        self.join()

    def __enter__(self) -> "Peaks":
        self.start()
        return self


def bound_bytes(live_bytes: float, entry_bytes: float, thresholds: Thresholds) -> float:
    return 2 * live_bytes + thresholds.log_bytes(entry_bytes) + LOG_FILES_BYTES


def must_show(rows: list[dict]) -> list[Check]:
    disk_rows = [row for row in rows if row["what"] == "disk"]
    restarts = [row for row in rows if row["what"].startswith("restart")]
    return [at_least("entries in the log's life", min((row["entries"] for row in disk_rows), default=None),
                     max((row["entries_wanted"] for row in disk_rows), default=0)),
            at_least("restarts", len(restarts), 4),
            at_most("the longest restart", max((row["seconds"] for row in restarts), default=None), RESTART_S, "s"),
            at_most("entries that a restart reads, of those the configuration allows",
                    max((row["log_entries"] / row["log_entries_bound"] for row in restarts), default=None), 1.5, finds=[NEVER_CUT]),
            at_most("the most disk that was used, of 2 x live data + configured log + files that are not full",
                    max((row["peak_bytes"] / row["bound_bytes"] for row in disk_rows), default=None), 1),
            at_most("the most disk at rest, of the same", max((row["rest_bytes"] / row["bound_bytes"] for row in disk_rows),
                                                              default=None), 1)]


def fill(lab: Lab, cluster: Cluster, arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    while True:
        leader = cluster.wait_ready()
        done = int(leader.status()["last_index"])
        if done >= arguments.entries:
            return
        passed_s = time.monotonic() - started
        print(f"{done:,} of {arguments.entries:,} entries after {passed_s:.0f} s", flush=True)
        lab.client.run([binary("hr-kv-load"), f"--server={leader.endpoint}", f"--clients={CLIENTS}",
                        f"--keys={max(1, arguments.keys // CLIENTS)}", f"--value_bytes={arguments.value_bytes}", "--warm_up=0s",
                        f"--measured={min(_CHUNK_S, arguments.chunk)}s"], timeout=_CHUNK_S + 60)


def disk_row(node: HedgerowNode, peak_bytes: int, thresholds: Thresholds, entries: int) -> dict:
    status = node.status()
    counters = status["counters"]
    entry_bytes = int(counters["storage_bytes"]) / max(1, int(counters["storage_entries"]))
    # As a snapshot holds it: keys, values, sessions and answers, with what is around them.
    live_bytes = int(status["snapshots"]["size_bytes"])
    return {"what": "disk", "node": node.number, "entries": int(status["last_index"]), "entries_wanted": entries, "live_bytes": live_bytes,
            "entry_bytes": entry_bytes, "peak_bytes": peak_bytes, "rest_bytes": disk_bytes(node.data_dir),
            "log_bytes_allowed": thresholds.log_bytes(entry_bytes), "log_files_bytes_allowed": LOG_FILES_BYTES,
            "bound_bytes": bound_bytes(live_bytes, entry_bytes, thresholds),
            "snapshot_took_s": int(status["snapshots"].get("took_ns", 0)) / 1e9,
            "longest_slice_us": int(status["snapshots"].get("longest_slice_ns", 0)) / 1e3}


def wait_caught_up(node: HedgerowNode, committed: int) -> None:
    until(lambda: (status := node.status()) is not None and status["ready"] and int(status["applied"]) >= committed, _UP_WITHIN_S,
          lambda: f"node {node.number} does not come back: {node.status()}\n{node.log_tail()}", 0.05, hopeless=lambda: not node.running)


def restart(nodes: list[HedgerowNode], what: str, thresholds: Thresholds) -> list[dict]:
    """Kills them all, starts them all, and waits for each."""
    before = {node.number: node.status() for node in nodes}
    for node in nodes:
        node.kill_at_once()
    started = time.monotonic()
    for node in nodes:
        node.start()
    rows = []
    for node in nodes:
        said = before[node.number]
        wait_caught_up(node, int(said["commit"]))
        seconds = time.monotonic() - started
        rows.append({"what": what, "node": node.number, "entries": int(said["last_index"]), "seconds": seconds,
                     "log_entries": int(said["last_index"]) - int(said["snapshots"].get("log_start", 0)),
                     "log_entries_bound": thresholds.entries(), "resident_bytes": node.resident_bytes()})
        print(f"{what:14} node {node.number}: {seconds:.2f} s, {rows[-1]['log_entries']:,} entries read", flush=True)
    return rows


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    thresholds = Thresholds(arguments.every_entries, arguments.every_bytes, arguments.tail_entries, arguments.tail_bytes)
    # The planted fault: nodes that never cut their logs, judged as if they did.
    configured = dataclasses.replace(thresholds, every_entries=1_000_000_000, every_bytes=64 << 30) if arguments.plant else thresholds
    settings = NodeSettings(durability=arguments.mode, snapshots=configured.as_config(), election=("100ms", "4s"))
    config = {"settings": dataclasses.asdict(settings), "mode": arguments.mode, "entries": arguments.entries, "keys": arguments.keys,
              "value_bytes": arguments.value_bytes}
    running.expect(1 + arguments.rounds)
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, arguments.mode) as data,
          hedgerow_cluster(lab, data.path, settings) as cluster):
        disk = running.turn(1, part="disk")
        with Peaks(cluster.nodes) as peaks:
            fill(lab, cluster, arguments)
        time.sleep(2)  # a snapshot that was begun, and what it makes superfluous
        cluster.wait_ready()
        if disk:
            disk.done({"rows": [disk_row(node, peaks.peak_bytes[node.number], thresholds, arguments.entries) for node in cluster.nodes],
                       "config": config})
        for number in range(1, arguments.rounds + 1):
            if not (turn := running.turn(number, part="restarts")):
                continue
            follower = next(node for node in cluster.nodes if node is not cluster.wait_ready())
            rows = restart([follower], "restart of one", thresholds)
            cluster.wait_ready()
            rows += restart(cluster.nodes, "restart of all", thresholds)
            turn.done({"rows": rows, "status": [node.status() for node in cluster.nodes], "config": config})


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["part"], must_show, lambda _part, records: [{**row, "mode": record["config"]["mode"], "config_hash": record["config_hash"]}
                                                               for record in records for row in record["rows"]],
    {"what": "what", "node": "node", "mode": "mode", "entries": "entries", "seconds": "seconds", "log_entries": "log entries",
     "live_bytes": "live", "peak_bytes": "peak disk", "rest_bytes": "disk at rest", "bound_bytes": "bound",
     "snapshot_took_s": "snapshot s", "longest_slice_us": "slice us", "resident_bytes": "resident"}, plants={NEVER_CUT: None},
    measure=measure, rounds=3, options=(
        experiment.number("--entries", 10_000_000, 1, 1 << 40), experiment.number("--keys", 1_000_000, CLIENTS, 1 << 40),
        experiment.number("--value-bytes", 100, 0, 1024), ("--mode", {"choices": ("disk", "memory"), "default": "disk"}),
        *(experiment.number(flag, default, 1, 1 << 40) for flag, default in (
            ("--every-entries", 1_000_000), ("--every-bytes", 256 * MIB), ("--tail-entries", 100_000), ("--tail-bytes", 32 * MIB))),
        experiment.number("--chunk", _CHUNK_S, 0.1, 600, help="seconds between looks at how far it is")))
