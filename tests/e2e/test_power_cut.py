# SPDX-License-Identifier: Apache-2.0
"""Power cuts: nodes on disks that forget what was not synced. Short here; `./dev chaos power-cut` does fifty. And the
disks themselves: nothing of them stays mounted, whoever dies.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos import scenario
from chaos.block import Block, run_block
from chaos.systems import Settings
from deploy.lab import Lab
from deploy.lab.data_dirs import DataDirs, remove_all
from deploy.lab.unsynced_disks import DiskSettings, UnsyncedDisks
from tests import needs
from harness.fuse import why_no_fuse

PROJECT = Path(__file__).resolve().parents[2]
TAG = f"self{os.getpid()}5"


@pytest.fixture(autouse=True)
def fuse():
    if why := why_no_fuse():
        pytest.skip(f"no FUSE here: {why}")


def cut(name: str, disks: DiskSettings, events: int, folder: Path) -> Block:
    with Lab(TAG, replicas=3) as lab:
        return run_block(lab, "noproxy-app", scenario.load(name), Settings(mode="disk", disks=disks), events=events,
                         seed=1, history=folder / "history.csv")


def mounts() -> list[str]:
    """Of our labs' disks."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if f"/hedgerow-lab-{TAG}-" in line]


@needs.JUDGES
@pytest.mark.parametrize("name, disks", [("power-cut", DiskSettings(torn=True)), ("leader-kill", DiskSettings())],
                         ids=["all-at-once-torn", "leader"])
def test_what_was_acknowledged_survives_a_power_cut(name, disks, tmp_path):
    block = cut(name, disks, 1, tmp_path)
    verdict = block.verdict
    assert verdict["linearizable"] and verdict["acked_lost"] == verdict["double_applied"] == 0, verdict
    assert verdict["answered"] > 1000
    (event,) = block.events
    assert len(event["lost"]) == (3 if name == "power-cut" else 1)
    assert all(lost["lost_bytes"] > 0 for lost in event["lost"].values()), event
    assert not mounts()


@needs.JUDGES
def test_disks_that_lie_are_found_out(tmp_path):
    verdict = cut("power-cut", DiskSettings(ignore_sync="*"), 1, tmp_path).verdict
    assert verdict["acked_lost"] > 0 and not verdict["linearizable"]


def test_a_mount_whose_file_system_has_died_is_cleared_away():
    try:
        with Lab(TAG, replicas=1) as lab, DataDirs(TAG, "disk") as data, UnsyncedDisks(lab, data.path) as disks:
            (disks.path / "a" / "file").write_bytes(b"bytes")
            assert disks.cut("a")["files"] == {"file": 5}
            for pid in lab.replica("a").pids():
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(OSError):
                os.listdir(disks.path / "a")
            assert mounts()
        assert not mounts() and not data.path.exists()
    finally:
        remove_all(TAG)


def test_a_killed_runner_leaves_nothing_mounted():
    """Nobody could clean up after it: the file systems see the end of their input."""
    child = subprocess.Popen(
        [sys.executable, "-c", f"""
import time
from deploy.lab import Lab
from deploy.lab.data_dirs import DataDirs
from deploy.lab.unsynced_disks import UnsyncedDisks
with Lab("{TAG}", replicas=1) as lab, DataDirs("{TAG}", "disk") as data, UnsyncedDisks(lab, data.path):
    print("up", flush=True)
    time.sleep(60)
"""], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "up\n"
        assert len(mounts()) == 1
        child.kill()
        child.wait()
        deadline = time.monotonic() + 10
        while mounts():
            assert time.monotonic() < deadline, mounts()
            time.sleep(0.02)
    finally:
        child.kill()
        child.stdout.close()
        subprocess.run([sys.executable, "-m", "deploy.lab", "down", "--tag", TAG], cwd=PROJECT, check=True)
    assert not list(Path("/var/tmp").glob(f"hedgerow-lab-{TAG}-*"))
