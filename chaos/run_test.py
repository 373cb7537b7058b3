# SPDX-License-Identifier: Apache-2.0
"""What a run must show, and its command line; no lab is needed."""

import pytest

from chaos import promises, run, scenario
from chaos.cell import block_sizes, log_was_cut
from deploy.lab.unsynced_disks import DiskSettings

ROW = {"system": "hedgerow", "mode": "memory", "events": 100, "client_errors": 0, "unavailable_p50_ms": 4.0,
       "unavailable_p99_ms": 15.0, "unavailable_max_ms": 900.0, "errors_share": 0.0, "bites": {"killed": 3, "cut_packets": 99, "stopped": 1}, "outage_p50_ms": 4.0, "leader_resident_bytes": None, "duplicates_arrived": 12_000, "acked_lost": 0, "double_applied": 0, "linearizable": True,
       "checkers_disagree": 0, "duplicate_answers": 0, "events_with_loss": None, "events_with_log_loss": None}


def missed(*rows: dict, kills: int = 100, hedge_delay: str = "10ms", name: str = "leader-kill") -> list[str]:
    checks = promises.must_show(scenario.load(name), [{"events_wanted": kills, "hedge_delay": hedge_delay, **row} for row in rows])
    return [check.what for check in checks if not check.met]


def parsed(argv: list[str]):
    return run.experiment_of(scenario.load(argv[0])).parse(argv[1:])


def other(system: str, unavailable: float, outage: float) -> dict:
    return {**ROW, "system": system, "unavailable_p50_ms": unavailable, "outage_p50_ms": outage}


def test_a_good_run_misses_nothing():
    assert not missed(ROW, other("etcd-default", 5000, 1300), other("noproxy-app", 4.5, 4.5), hedge_delay="0.5ms")


@pytest.mark.parametrize("change, what", [
    ({"events": 99}, "events"), ({"client_errors": 1}, "client errors"), ({"acked_lost": 1}, "writes lost"),
    ({"double_applied": 1}, "applied twice"), ({"linearizable": False}, "linearizable"),
    ({"checkers_disagree": 1}, "do not agree"), ({"unavailable_p50_ms": 5.1}, "unavailable p50"),
    ({"unavailable_p99_ms": 20.1}, "unavailable p99"),
    ({"duplicate_answers": 1}, "came twice"),
    ({"unavailable_max_ms": 2001.0}, "at most"),
    ({"bites": {"killed": 0}}, "killed, of every event"),
])
def test_each_failure_is_named(change, what):
    (found,) = missed({**ROW, **change})
    assert what in found


def test_how_long_a_fault_may_last_depends_on_the_fault():
    slow = {**ROW, "unavailable_p50_ms": 34.0, "unavailable_p99_ms": 300.0}
    assert not missed(slow, name="leader-partition")
    assert not missed({**slow, "unavailable_p50_ms": 59.0}, name="leader-pause")
    assert not missed({**slow, "mode": "disk"})
    assert missed({**slow, "unavailable_p50_ms": 36.0}, name="leader-partition")
    assert missed({**slow, "unavailable_p50_ms": 61.0}, name="leader-pause")


def test_a_leader_without_its_ballast_shows_nothing():
    def checks(resident_bytes: int) -> list[str]:
        return missed({**ROW, "leader_resident_bytes": resident_bytes, "ballast_bytes": 3 << 30})

    assert not checks(3 << 30)
    assert checks((3 << 30) - 1) == ["memory: resident memory of the leader, of every event"]


@pytest.mark.parametrize(("text", "bytes_"), [("3G", 3 << 30), ("500M", 500 << 20), ("17", 17)])
def test_sizes_are_powers_of_two(text, bytes_):
    assert run.size(text) == bytes_


@pytest.mark.parametrize("argv", [["--ballast=17G"], ["--ballast=3g"], ["--ballast=3G"]])
def test_ballast_is_bounded_and_not_for_etcd(argv):
    with pytest.raises(SystemExit):
        parsed(["leader-kill", *argv])
    assert parsed(["leader-kill", "--ballast=1G", "--systems=hedgerow"]).ballast == 1 << 30


def test_etcd_is_judged_by_its_kinder_figure():
    (found,) = missed(ROW, other("etcd-default", 5000, 39))
    assert "etcd" in found


def test_the_application_must_not_be_better():
    (found,) = missed(ROW, other("noproxy-app", 3, 3))
    assert "application" in found


def test_rows_of_another_mode_are_no_comparison():
    assert not missed(ROW, {**other("noproxy-app", 1, 1), "mode": "disk"})


def test_few_duplicates_matter_only_where_hedges_are_early():
    few = {**ROW, "duplicates_arrived": 100}
    assert not missed(few)
    assert missed(few, hedge_delay="0.5ms")


def test_disks_that_lose_what_was_not_synced_judge_durability_alone():
    cut = {**ROW, "mode": "disk", "events_with_loss": 100, "events_with_log_loss": 9, "unavailable_p50_ms": 900.0, "client_errors": 70}
    assert not missed(cut, name="power-cut")
    (found,) = missed(cut, name="leader-kill")
    assert "client errors" in found
    for change, what in (({"acked_lost": 1}, "writes lost"), ({"double_applied": 1}, "applied twice"),
                         ({"linearizable": False}, "linearizable"), ({"events_with_loss": 99}, "unsynced bytes"),
                         ({"events_with_log_loss": 0}, "midst of a write")):
        (found,) = missed({**cut, **change}, name="power-cut")
        assert what in found


def test_a_power_cut_is_of_disks_that_lose_what_was_not_synced():
    arguments = parsed(["power-cut"])
    assert arguments.mode == ["disk"] and arguments.disks == DiskSettings()
    torn = parsed(["leader-kill", "--mode", "disk", "--drop-unsynced", "torn", "--names", "journal"])
    assert torn.disks == DiskSettings(names="journal", torn=True)
    assert parsed(["leader-kill"]).disks is None and parsed(["leader-kill"]).mode == ["memory"]
    for wrong in (["power-cut", "--mode", "memory"], ["leader-pause", "--drop-unsynced"], ["leader-kill", "--ignore-sync", "*"],
                  ["leader-kill", "--names", "journal"], ["leader-kill", "--drop-unsynced", "some"]):
        with pytest.raises(SystemExit):
            parsed(wrong)


def test_what_needs_a_machine_of_its_own_is_told_from_what_always_holds():
    row = {**ROW, "unavailable_p50_ms": 6.0, "unavailable_max_ms": 2001.0, "events_wanted": 100, "hedge_delay": "10ms"}
    checks = promises.must_show(scenario.load("leader-kill"), [row, other("noproxy-app", 3, 3)])
    assert [check.what for check in checks if not (check.met or check.needs_full)] == ["memory: unavailable, at most"]
    assert len([check for check in checks if check.needs_full and not check.met]) == 2


def test_a_short_run_and_one_of_disks_that_ignore_syncs_take_nobodys_place():
    short, planted = parsed(["leader-kill", "--events=99"]), parsed(["leader-kill", "--drop-unsynced", "--ignore-sync=*"])
    assert short.rounds < short.stated_rounds and parsed(["leader-kill"]).rounds == short.stated_rounds
    assert planted.into.name == "chaos-leader-kill-plant-ignore-sync" and parsed(["leader-kill", "--as=x"]).into.name == "chaos-x"


def test_blocks_add_up():
    assert block_sizes(100) == [10] * 10
    assert block_sizes(23) == [10, 10, 3]
    assert block_sizes(1) == [1]


def test_the_command_line():
    arguments = parsed(["leader-kill", "--kills", "20", "--mode", "memory,disk", "--systems", "hedgerow,etcd-tuned"])
    assert (arguments.kills, arguments.mode, arguments.systems) == (20, ["memory", "disk"], ["hedgerow", "etcd-tuned"])
    for wrong in (["leader-kill", "--kills", "0"], ["leader-kill", "--replicas", "4"],
                  ["leader-kill", "--systems", "paxos"]):
        with pytest.raises(SystemExit):
            parsed(wrong)


@pytest.mark.parametrize(("file", "is_log"), [("node/segments/0000000000000001", True), ("member/wal/0-0.wal", True),
                                              ("node/watermark", False), ("node/identity", False)])
def test_a_cut_log_is_told_from_other_lost_files(file, is_log):
    assert log_was_cut({"lost": {"1": {"lost_bytes": 1, "files": {file: 1}}}}) == is_log
