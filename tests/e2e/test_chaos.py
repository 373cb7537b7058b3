# SPDX-License-Identifier: Apache-2.0
"""The chaos runner: one fault of each kind, judged; and nothing of it stays when it is interrupted. How long clients
waited is measured by `./dev chaos`, on a quiet machine; here it only counts that nothing was lost or done twice.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from chaos import all as everything
from chaos import network, rotate_keys, scenario
from chaos.block import run_block
from chaos.systems import Settings
from deploy.lab import Lab, names, netns, node_pins
from deploy.lab.data_dirs import MODES, DataDirs
from report.experiments import main as judge
from tests import needs

PROJECT = Path(__file__).resolve().parents[2]
TAG = f"self{os.getpid()}5"


pytestmark = needs.JUDGES


def sound(verdict: dict) -> bool:
    return verdict["linearizable"] and verdict["agreed"] and verdict["acked_lost"] == verdict["double_applied"] == 0


# The leader that is killed is a large one: below.
@pytest.mark.parametrize("name", ["leader-pause", pytest.param("leader-kill", marks=pytest.mark.long),
                                  pytest.param("leader-partition-out", marks=pytest.mark.long)])
def test_a_client_without_retry_lives_through_a_dying_leader_behind_the_proxy(name, tmp_path):
    with Lab(TAG, replicas=3) as lab:
        block = run_block(lab, "hedgerow", scenario.load(name), Settings(), events=1, seed=1,
                          history=tmp_path / "history.csv")
    assert sound(block.verdict), block.verdict
    assert block.report["duplicates"] == 0
    assert block.report["sent"] > 1000 and block.verdict["operations"] == block.report["sent"]
    assert block.proxy["services"][0]["identity_ok"]


def test_a_large_leader_is_killed_each_time(tmp_path):
    with Lab(TAG, replicas=3) as lab:
        block = run_block(lab, "hedgerow", scenario.load("leader-kill"), Settings(ballast_bytes=200 << 20), events=2, seed=1,
                          history=tmp_path / "history.csv")
    assert sound(block.verdict), block.verdict
    assert [event["node"] for event in block.events] == [1, 1]
    assert all(event["resident_bytes"] >= 200 << 20 for event in block.events)


@pytest.mark.parametrize("system", ["noproxy-app", pytest.param("etcd-tuned", marks=pytest.mark.long)])
def test_the_systems_beside_it_are_judged_by_the_same_rules(system, tmp_path):
    with Lab(TAG, replicas=3) as lab:
        block = run_block(lab, system, scenario.load("leader-kill"), Settings(), events=1, seed=1,
                          history=tmp_path / "history.csv")
    assert sound(block.verdict), block.verdict
    assert block.verdict["keys"] >= 24 and block.report["ok"] > 1000


def all_of(folder: Path, *argv: str) -> tuple[int, dict[str, dict]]:
    """`./dev chaos all` in short: its exit status, and its rows by their scenarios."""
    status = everything.main(["--quick", "--events=1", f"--into={folder}", f"--lab={TAG}", *argv])
    rows = json.loads((folder / "summary.json").read_text(encoding="ascii"))["rows"]
    return status, {row["scenario"]: row for row in rows}


def test_scenarios_hold_and_their_faults_bite(tmp_path):
    status, rows = all_of(tmp_path, "--only=duplication-requests,daemon-kill")
    assert status == 0, rows
    assert rows["duplication-requests"]["bites"]["duplicated_packets"] > 500
    assert rows["daemon-kill"]["bites"] == {"adopted": 1}
    for name, row in rows.items():
        assert row["acked_lost"] == row["double_applied"] == row["client_errors"] == 0 and row["linearizable"], row
        assert list((tmp_path / "raw" / name / "raw").glob("memory-hedgerow-01*.csv.gz"))
    # A verdict is made again of the raw files alone: of the history, not of an earlier verdict, and of the fault's traces.
    folder = tmp_path / "raw" / "duplication-requests"
    assert judge([str(folder)]) == 0
    file = folder / "raw" / "memory-hedgerow-01.json"
    block = json.loads(file.read_text(encoding="ascii"))
    file.write_text(json.dumps({**block, "verdict": {**block["verdict"], "acked_lost": 1}}), encoding="ascii")
    assert judge([str(folder)]) == 0
    for event in block["events"]:
        event["evidence"]["duplicated_packets"] = 0
    file.write_text(json.dumps(block), encoding="ascii")
    assert judge([str(folder)]) == 1


def test_a_fault_that_does_nothing_is_missed(tmp_path):
    status, rows = all_of(tmp_path, "--only=one-way-link", "--plant=no-fault")
    assert status == 0 and rows["one-way-link"]["bites"] == {"lost_packets": 0}


def rotated(folder: Path, *argv: str) -> tuple[int, dict]:
    """`./dev chaos rotate-keys` in short: its exit status, and its row."""
    status = rotate_keys.EXPERIMENT.main(["--changes=1", "--quiet-wait=0", f"--into={folder}", f"--lab={TAG}", *argv])
    return status, json.loads((folder / "summary.json").read_text(encoding="ascii"))["rows"][0]


def test_all_keys_are_changed_under_load_and_no_client_notices(tmp_path):
    _, row = rotated(tmp_path, "--election-floor=400ms")
    assert row["errors"] == row["elections"] == row["unbelieved"] == 0 and row["changes"] == row["different_keys"] == 1, row
    assert row["sent"] > 1000


def test_a_leader_that_is_cut_off_by_its_key_is_found(tmp_path):
    status, row = rotated(tmp_path, "--plant=cut-off")
    assert status == 0 and row["elections"] > 0, row


def changed_network(folder: Path, *argv: str) -> tuple[int, dict]:
    """`./dev chaos network` in short: its exit status, and its row."""
    status = network.EXPERIMENT.main(["--quick", "--seed=7", f"--into={folder}", f"--lab={TAG}", *argv])
    return status, json.loads((folder / "summary.json").read_text(encoding="ascii"))["rows"][0]


def test_a_network_that_changes_costs_no_request_beyond_those_of_a_direct_client(tmp_path):
    _, row = changed_network(tmp_path, "--changes=5")
    assert row["changes"] == row["kinds"] == 5 and row["lost_beyond"] == row["wrong"] == row["disagreed"] == 0, row


def test_a_daemon_that_follows_nothing_is_found(tmp_path):
    status, row = changed_network(tmp_path, "--changes=5", "--plant=blind", "--seed=1")  # with which the uplink in use goes down
    assert status == 0 and row["lost_beyond"] > 0 and row["wrong"] > 0, row


def left_behind() -> list[Path]:
    pins = Path("/sys/fs/bpf/hedgerow")
    data = [path for mode in MODES for path in DataDirs(TAG, mode).parent.glob(f"hedgerow-lab-{TAG}-*")]
    nodes = [path for folder in data for host in folder.glob("*") for path in pins.glob(node_pins.of(host, "*").name)]
    return [path for path in (*map(netns.path_of, netns.of_lab(TAG)), names.run_dir(TAG), pins / TAG) if path.exists()] + data + nodes


def end_amid_the_load(how: signal.Signals, folder: Path) -> int:
    """A run of a scenario that is ended while it measures; its exit status."""
    code = ["-m", "bench", "chaos.run", "leader-kill", "--kills", "1", "--systems", "hedgerow", "--quiet-wait", "0", "--lab", TAG,
            "--into", str(folder)]
    child = subprocess.Popen([sys.executable, *code], cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True, start_new_session=True)
    try:
        _wait_for_the_load()
        child.send_signal(how)
        return child.wait(60)
    finally:
        child.kill()
        child.stderr.close()


def test_an_interrupted_run_leaves_nothing(tmp_path):
    assert end_amid_the_load(signal.SIGTERM, tmp_path) == 128 + signal.SIGTERM
    assert not left_behind()


def test_what_a_killed_run_leaves_is_removed_by_one_command_and_a_living_run_is_left_alone(tmp_path):
    assert end_amid_the_load(signal.SIGKILL, tmp_path) == -signal.SIGKILL
    left = left_behind()
    assert {path.name for path in left} >= {f"hr-{TAG}-client", f"hr-{TAG}-a", TAG}, left
    assert any(path.name.startswith("node-") for path in left) and netns.pids_in({netns.identity(netns.path_of(f"hr-{TAG}-a"))})
    temporary_ = Path(tempfile.gettempdir(), f"hedgerow-bench-{_ended_pid()}-x")
    temporary_.mkdir()
    clean = [sys.executable, "-m", "deploy.lab", "clean", "--tag", TAG]
    assert f"lab {TAG}: removed" in subprocess.run(clean, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert not [path for path in left if path.exists()] and not left_behind() and not temporary_.exists()
    with Lab(TAG) as lab:
        assert "living process" in subprocess.run(clean, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
        assert lab.client.run(["true"]).returncode == 0 and len(netns.of_lab(TAG)) == 4


def _ended_pid() -> int:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def _wait_for_the_load(within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    log = names.run_dir(TAG) / "client-load" / "load.log"
    while not log.exists():
        assert time.monotonic() < deadline, "the load does not begin"
        time.sleep(0.1)
    time.sleep(2)
