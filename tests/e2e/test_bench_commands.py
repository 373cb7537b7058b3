# SPDX-License-Identifier: Apache-2.0
"""Experiments that are too long for the tests run to their end here, for seconds: every part of them works, and what they
write is what charts are drawn from. What they measure meanwhile means nothing, and neither does whether it is good enough.
"""

import json
import os
from pathlib import Path

import pytest

from bench import at_once, election, heartbeat, observe, offload, phases, proxy_cost, restart
from chaos import no_false_elections

TAG = f"self{os.getpid()}6"


def summary_of(folder: Path, name: str) -> dict:
    summary = json.loads((folder / "summary.json").read_text(encoding="ascii"))
    assert summary["name"] == name and summary["rows"] and summary["checks"]
    assert list((folder / "raw").glob("*.json"))
    for row in summary["rows"]:
        assert row["config_hash"] in summary["manifest"]["configs"]
    return summary


@pytest.mark.parametrize("variants", [
    pytest.param(("none", "all", "etcd"), id="short"),
    pytest.param(("none", "all", "all-blocking", "etcd"), id="all", marks=pytest.mark.long)])
def test_offload(tmp_path, variants):
    status = offload.EXPERIMENT.main(["--rounds=1", "--replicas=3", "--clients=4", f"--variants={','.join(variants)}",
                           "--seconds=0.3", "--warm-up=0.1", "--profile-seconds=0.3", "--quiet-wait=0",
                           f"--into={tmp_path}"])
    assert status == 1  # one round is never enough
    rows = summary_of(tmp_path, "offload")["rows"]
    assert {(row["variant"], row["clients"]) for row in rows} == {(variant, 4) for variant in variants}
    for row in rows:
        assert row["n"] > 0 and row["put_per_s"] > 0 and row["p99_us"] >= row["p50_us"] > 0
        assert 0 < row["leader_cpu_us_per_op"] < row["cluster_cpu_us_per_op"]
        assert 0 < row["stack_share"] < 1
    assert {row["xdp"] for row in rows if row["variant"] == "all"} == {"generic"}
    assert (tmp_path / "offload.png").exists()


def test_no_false_elections(tmp_path):
    status = no_false_elections.EXPERIMENT.main(["--seconds=2", "--quiet-wait=0", f"--into={tmp_path}", f"--lab={TAG}"])
    assert status == 1  # two seconds are never enough
    (row,) = summary_of(tmp_path, "chaos-no-false-elections")["rows"]
    assert row["puts_per_s"] > 0 and row["gets_per_s"] > 0 and row["seconds"] >= 2
    assert row["elections"] >= 0 and row["resigns"] >= 0


@pytest.mark.parametrize(("modes", "causes"), [
    pytest.param("disk,memory", "kill,cut", id="short"),
    pytest.param(",".join(election.MODES), "kill,stall,cut", id="all", marks=pytest.mark.long)])
def test_election(tmp_path, modes, causes):
    status = election.EXPERIMENT.main(["--rounds=1", "--terms=2", "--replicas=3", f"--modes={modes}", f"--causes={causes}",
                            "--quiet-wait=0", f"--into={tmp_path}"])
    assert status == 1  # two terms are never enough
    rows = summary_of(tmp_path, "election")["rows"]
    assert {(row["mode"], row["cause"]) for row in rows} == {(mode, cause) for mode in modes.split(",")
                                                             for cause in causes.split(",")}
    for row in rows:
        assert row["terms"] == 2 and 0 < row["outage_p50_ms"] <= row["outage_max_ms"]
        assert row["vote_p50_us"] > 0 and row["pre_vote_p50_us"] > 0 and row["fences"] > 0
    assert (tmp_path / "election.png").exists()


def test_heartbeat(tmp_path):
    status = heartbeat.EXPERIMENT.main(["--rounds=1", "--questions=500", "--interval-us=200", "--quiet-wait=0", f"--into={tmp_path}"])
    assert status == 1  # one round is never enough
    rows = {(row["server"], row["load"]): row for row in summary_of(tmp_path, "heartbeat")["rows"]}
    assert set(rows) == {(server, load) for server in ("xdp", "process", "echo") for load in ("idle", "stress")}
    for row in rows.values():
        assert row["n"] == 500 and 0 < row["p50_us"] <= row["p99_us"] <= row["max_us"]
    assert rows["xdp", "idle"]["by_kernel"] > 0.5 and rows["xdp", "idle"]["xdp"] == "native XDP on eth0"
    assert rows["process", "idle"]["by_kernel"] == 0
    assert (tmp_path / "heartbeat.png").exists()


@pytest.mark.long
def test_phases(tmp_path):
    status = phases.EXPERIMENT.main(["--rounds=1", "--scripts=adaptive", "--scale=0.05", "--quiet-wait=0", f"--into={tmp_path}", f"--lab={TAG}"])
    assert status == 1  # one round is never enough
    rows = {(row["mode"], row["phase"]): row for row in summary_of(tmp_path, "phases")["rows"]}
    script = phases.SCRIPTS["adaptive"]
    assert set(rows) == {(mode, phase) for mode in script.modes for phase in script.phases}
    for row in rows.values():
        assert row["n"] > 2000 and 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] and row["delay_ms"] > 0
    assert rows["adaptive", "both-slow"]["p50_ms"] > 5 * rows["adaptive", "healthy"]["p50_ms"]
    assert rows["fixed", "both-slow"]["delay_ms"] == 10 and rows["adaptive", "healthy"]["delay_ms"] < 10
    assert (tmp_path / "phases.png").exists()


def test_at_once(tmp_path):
    status = at_once.EXPERIMENT.main(["--rounds=1", "--seconds=0.3", "--loads=10", "--workloads=stall", "--highest-seconds=0",
                           "--systems=at-once,c-clone,coordinator", "--quiet-wait=0", f"--into={tmp_path}", f"--lab={TAG}"])
    assert status == 1  # one round is never enough
    rows = {row["system"]: row for row in summary_of(tmp_path, "at-once")["rows"]}
    for row in rows.values():
        assert row["n"] > 250 and row["lost"] == 0 and row["identity_ok"] and row["proxies"] == 1
        assert 2 <= row["p50_ms"] <= row["p99_ms"] <= row["p999_ms"] and row["cpu_us_per_request"] > 0
    assert rows["c-clone"]["extra_load"] == pytest.approx(1, abs=0.01)
    for system in ("coordinator", "at-once"):
        assert 0.5 < rows[system]["extra_load"] <= 1.01
    assert (tmp_path / "at-once.png").exists()


def test_proxy_cost(tmp_path):
    status = proxy_cost.EXPERIMENT.main(["--rounds=1", "--seconds=0.4", "--trial=0.2", "--climb-to=11000", "--server=nsd",
                              "--quiet-wait=0", f"--into={tmp_path}"])
    assert status == 1  # one round is never enough
    rows = {(row["system"], row["variant"]): row for row in summary_of(tmp_path, "proxy-cost")["rows"]}
    assert set(rows) == {(system, variant) for system in proxy_cost.SYSTEMS for variant in (*proxy_cost.RATES, "highest")}
    for (system, _), row in rows.items():
        assert row["n"] > 0 and row["p99_us"] >= row["p50_us"] > 0 and row["cpu_us_per_request"] > 0
        assert (row["rss_bytes"] > 0) is (system != "direct") and (row["map_bytes"] > 0) is (system == "hedgerow")
    assert (tmp_path / "proxy-cost.png").exists()


def test_observe(tmp_path):
    status = observe.EXPERIMENT.main(["--rounds=1", "--slices=1", "--seconds=0.5", "--quiet-wait=0", f"--into={tmp_path}"])
    assert status == 1  # one round is never enough
    rows = summary_of(tmp_path, "observe")["rows"]
    assert [row["mode"] for row in rows] == ["alone", "watched", "traced", "top"]
    for row in rows:
        assert row["rate"] > 0 and row["p99_ms"] >= row["p50_ms"] > 0
        assert row["loss"] == pytest.approx(1 - row["rate"] / rows[0]["rate"])
    assert (tmp_path / "observe.png").exists()


def restart_of(tmp_path: Path, *more: str) -> tuple[int, dict]:
    status = restart.EXPERIMENT.main(["--rounds=1", "--quiet-wait=0", f"--into={tmp_path}", "--keys=20000", "--every-entries=20000",
                           "--tail-entries=2000", "--mode=memory", *more])
    return status, summary_of(tmp_path, "restart")


def test_restart_with_eighty_thousand_entries(tmp_path):
    """Smaller than the real one, and good enough all the same: nothing that it must show depends on the machine."""
    status, summary = restart_of(tmp_path, "--entries=80000", "--chunk=1")
    assert status == 0 and all(check["met"] for check in summary["checks"]), summary["checks"]


def test_restart_finds_out_nodes_that_never_cut_their_logs(tmp_path):
    status, summary = restart_of(tmp_path, "--entries=15000", "--every-entries=5000", "--tail-entries=500", "--chunk=0.5",
                                 "--plant=never-cut")
    assert status == 0 and all(check["met"] for check in summary["checks"]), summary["checks"]
