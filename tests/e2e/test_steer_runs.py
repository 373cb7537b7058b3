# SPDX-License-Identifier: Apache-2.0
"""`./dev bench steer`, `./dev chaos worker-churn` and `./dev chaos steer-starts` in short: every part of them works, steering keeps what it
promises, and their checks find a group without it. How long anything took means nothing here.
"""

import json
import os
from pathlib import Path

import pytest

from bench import steer
from chaos import steer_starts, worker_churn

TAG = f"self{os.getpid()}9"


def rows_of(folder: Path) -> list[dict]:
    summary = json.loads((folder / "summary.json").read_text(encoding="ascii"))
    assert list((folder / "raw").glob("*.json"))
    for row in summary["rows"]:
        assert row["config_hash"] in summary["manifest"]["configs"]
    return summary["rows"]


@pytest.mark.parametrize("transports", [pytest.param("both,tcp", id="short"), pytest.param("udp,tcp,both", id="all", marks=pytest.mark.long)])
def test_bench_steer(tmp_path, transports):
    status = steer.EXPERIMENT.main(["--rounds=1", "--workers=2", f"--transports={transports}", "--loads=idle", "--sources=32", "--seconds=0.3", "--bursts=512",
                         "--climb-rounds=0", "--quiet-wait=0", f"--into={tmp_path}", f"--lab={TAG}"])
    assert status == 1  # one round is never enough
    rows = {(row["system"], row["transport"]): row for row in rows_of(tmp_path)}
    assert set(rows) == {(name, transport) for name, kind in steer.SYSTEMS.items() for transport in transports.split(",")
                         if transport in kind.transports}
    for (system, transport), row in rows.items():
        assert row["n"] == 3000 and row["lost"] == row["unanswered"] == row["failed_connects"] == row["burst_512_failed"] == 0, row
        assert row["p99_us"] >= row["p50_us"] > 0 and row["machine_us"] > row["workers_us"] + row["before_them_us"] > 0 and row["sources_met"] == 32
        assert (row["rss_bytes"] > 0) is (system in ("steer", "haproxy", "nginx")) and (row["map_bytes"] > 0) is (system == "steer")
        assert (row["program_ns"] is not None) is (system == "steer")
        if system == "steer":
            assert row["sources_of_two"] == row["burst_512_of_two"] == 0
        if system == "reuseport" and transport == "both":
            assert row["sources_of_two"] > 0  # the comparison that a reader makes first
    assert (tmp_path / "steer.png").exists()


def churned(folder: Path, *argv: str) -> tuple[int, dict]:
    status = worker_churn.EXPERIMENT.main(["--quick", "--seed=11", f"--into={folder}", f"--lab={TAG}", *argv])
    return status, rows_of(folder)[0]


def test_workers_that_come_back_find_their_queue(tmp_path):
    _, row = churned(tmp_path, "--behind=nothing", "--events=2")
    assert row["events"] == row["happened"] == 2 and row["sources_met"] == 256, row
    assert row["lost_of_others"] == row["lost_of_own"] == row["lost_outside"] == row["of_two_workers"] == row["refused"] == 0, row


@pytest.mark.long
@pytest.mark.parametrize("plant", ["plain", "all-stop"])
def test_a_mistake_on_purpose_is_found(tmp_path, plant):
    assert churned(tmp_path, f"--plant={plant}", "--events=8")[0] == 0


def started(folder: Path, *argv: str) -> tuple[int, list[dict]]:
    status = steer_starts.EXPERIMENT.main(["--quick", "--addresses=24", "--starts=2", f"--into={folder}", f"--lab={TAG}", *argv])
    return status, rows_of(folder)


def test_each_address_meets_one_worker_from_the_first_packet_on(tmp_path):
    _, rows = started(tmp_path)
    for row in rows[:2]:
        assert row["one_worker"] == row["explained_right"] == 24 and row["failed"] == 0, row
    assert rows[2]["starts"] == 2 and rows[2]["of_two"] == 0 and rows[2]["sources_share"] > 0.9, rows[2]


def test_a_group_without_steering_is_found(tmp_path):
    assert started(tmp_path, "--plant=plain")[0] == 0
