# SPDX-License-Identifier: Apache-2.0
"""`./dev chaos flood` in short: every part of it works, every hook is met, nobody honest is lost and no memory grows. How fast
the honest are answered meanwhile is measured by the long run only.
"""

import json
import os
import subprocess

from bench.manifest import binary
from chaos import flood

TAG = f"self{os.getpid()}7"


def test_spoofed_frames_at_every_hook_lose_nobody_and_take_no_memory(tmp_path):
    status = flood.EXPERIMENT.main(["--rounds=1", "--settle=3", "--seconds=0.3", "--warm-up=0.2", "--pause=0.1", "--rate=20000", "--quiet-wait=0",
                         f"--into={tmp_path}", f"--lab={TAG}"])
    assert status == 1  # one round at a fifth of the rate is never enough
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="ascii"))
    rows = {row["hook"]: row for row in summary["rows"]}
    assert set(rows) == set(flood.ROWS)
    for hook, row in rows.items():
        assert row["met_share"] > 0.9, hook
        assert row["flood_lost"] == row["wrong"] == 0, hook
        # A store's logs grow by what honest clients write, most in the first run, the quiet one; a proxy has no such excuse.
        honest = row["quiet_rss_grown"] if hook == "node" else 0
        assert row["rss_grown"] - honest < 0.05 and row["maps_grown"] <= 0.01, hook
        assert row["n"] > 100, hook
        assert row["config_hash"] in summary["manifest"]["configs"]
    for hook in flood.BESIDE:
        assert rows[hook]["stalls"] >= 1 and rows[hook]["quiet_hedges_of_stalls"] >= 1, hook
    assert rows["beside-refusing"]["shown_share"] > 0.9


def test_a_service_that_no_longer_hedges_under_a_flood_is_found(tmp_path):
    arguments = ["--quick", "--plant=no-hedges", "--hooks=beside-refusing", f"--into={tmp_path}", f"--lab={TAG}"]
    assert flood.EXPERIMENT.main(arguments) == 0
    row, = json.loads((tmp_path / "summary.json").read_text(encoding="ascii"))["rows"]
    assert row["quiet_hedges_of_stalls"] >= 1 and row["hedges_of_quiet"] < 0.5


def test_the_sender_refuses_every_network_but_a_labs():
    done = subprocess.run([binary("hr-flood"), "--interface=lo", "--destination_mac=02:00:00:00:00:01",
                           "--destination=127.0.0.1", "--rate=1", "--seconds=1"], capture_output=True, text=True, check=False,
                          timeout=10)
    assert done.returncode == 2 and "of a lab only" in done.stderr
