# SPDX-License-Identifier: Apache-2.0
"""The judge of `bench at-once`: rates come from the workers, a comparison is of the same rounds, each limit is met by the right
rows only, and a row without a measurement is a miss."""

import dataclasses

import pytest

from bench import at_once
from bench.at_once import WORKLOADS, figures, must_show, rate_between, row_of
from bench.client_run import ClientRun
from bench.cpu_time import Spent
from bench.histogram import Histogram

P99 = {"direct": 401.0, "delay": 12.4, "adaptive": 12.0, "at-once": 2.6, "c-clone": 2.5, "coordinator": 3.0, "app": 2.7}


def cells(workload: str = "stall", loads: tuple[int, ...] = (30, 80), runs: int = 3, **p99_of_at_once: float) -> list[dict]:
    """Sound rows; `p99_of_at_once` by load, as at80=13."""
    rows = [{"system": "highest", "workload": workload, "load": 100, "rate": 9000.0, "wanted_rate": 9639.0, "runs": 1}]
    for load in loads:
        for system, p99_ms in P99.items():
            here = p99_of_at_once.get(f"at{load}", p99_ms if load <= 30 else 12.0) if system == "at-once" else p99_ms
            if load > 30 and system == "c-clone":
                here = 300.0
            rows.append({"system": system, "workload": workload, "load": load, "runs": runs, "p99_ms": here,
                         "p99_ms_rounds": {str(number): here * (0.99 + 0.005 * (number % 3)) for number in range(1, runs + 1)}, "extra_load": 0.05, "identity_ok": True})
    return rows


def missed(rows: list[dict]) -> list[str]:
    return [check.what for check in must_show(rows) if not check.met]


def changed(rows: list[dict], system: str, load: int, **changes) -> list[dict]:
    return [{**row, **changes} if (row["system"], row["load"]) == (system, load) else row for row in rows]


def test_the_highest_rate_is_what_all_workers_serve():
    assert WORKLOADS["stall"].highest == pytest.approx(3 * 32 / 0.00996)
    assert WORKLOADS["tail"].highest == pytest.approx(3 * 6 / 0.002)


def test_sound_rows_meet_everything():
    assert missed(cells()) == []
    assert missed(cells("tail")) == []


def test_two_rounds_are_too_few():
    checks = [check for check in must_show(cells(runs=2)) if not check.met]
    assert [check.said for check in checks] == ["missed", "undecided", "undecided", "undecided"] and checks[0].what == "runs of each row"


def test_workers_that_do_not_reach_the_rate_are_a_miss():
    assert missed(changed(cells(), "highest", 100, rate=8600.0)) == ["stall: rate with all workers taken (0.9 of the highest rate)"]


def test_at_low_load_the_second_copy_leaves_at_once_or_it_is_a_miss():
    found = missed(cells(at30=3.1))
    assert "stall, 30 %: at-once p99 (goal 2.6)" in found and len(found) == 2
    # The tail's better copy has a tail of its own: there only the comparison counts.
    as_slow = {"p99_ms": 3.2, "p99_ms_rounds": dict.fromkeys("123", 3.2)}
    assert missed(changed(cells("tail", at30=3.2), "c-clone", 30, **as_slow)) == []


def test_a_delay_that_is_as_good_shows_that_the_load_did_not_stall():
    assert missed(changed(cells(), "delay", 30, p99_ms=3.0)) == ["stall, 30 %: delay p99"]


def test_at_high_load_copies_at_once_have_ended():
    assert missed(changed(cells(), "at-once", 80, extra_load=0.061)) == ["stall, 80 %: at-once extra load"]
    assert missed(cells(at80=11.5)) == []
    assert missed(cells(at80=12.8)) == [
        "stall, 80 %: at-once p99 / adaptive's of the same round",
        "stall, 80 %: at-once p99 / that of the better of adaptive and c-clone"]


def test_a_noisy_machine_decides_nothing_and_passes_nothing():
    """With the spread added to the limit, a machine that was noisy enough passed everything."""
    noisy = {"1": 8.0, "2": 20.0, "3": 11.0}
    checks = must_show(changed(cells(at80=11.0), "at-once", 80, p99_ms_rounds=noisy))
    assert {check.said for check in checks if check.what.startswith("stall, 80 %: at-once p99 /")} == {"undecided"}
    assert sum(not check.met for check in checks) == 2


def test_what_was_left_out_is_missed():
    rows = [row for row in cells() if row["system"] != "at-once"]
    assert len(missed(rows)) == 5
    assert len(missed([row for row in cells() if row["system"] != "adaptive"])) == 3


def test_accounts_that_do_not_add_up_are_a_miss():
    assert missed(changed(cells(), "at-once", 30, identity_ok=False)) == [
        "runs behind a proxy in which the accounts add up (share)"]


def client(*latencies_ms: float, warmup: int = 0) -> ClientRun:
    histogram = Histogram()
    for value in latencies_ms:
        histogram.record(int(value * 1e6))
    spent = dataclasses.replace(Spent(0, 0, 0, 0, 0, 0, 0.0), experiment_us=1000)
    return ClientRun({"summary": {"n": len(latencies_ms), "warmup": warmup, "lost": 1}, "histograms": {"latency": histogram.to_json()}},
                     spent, [])


def test_clients_count_as_one_and_copies_are_the_servers():
    record = figures([client(*[2.0] * 98, warmup=20), client(*[2.0] * 97, *[400.0] * 5)], [{"requests": 110}, {"requests": 220}], [])
    assert (record["n"], record["lost"]) == (200, 2)
    assert record["extra_load"] == pytest.approx(330 / 220 - 1)
    assert record["cpu_us_per_request"] == pytest.approx(5)
    assert record["p50_ms"] == pytest.approx(2.0, rel=0.01) and record["p99_ms"] == pytest.approx(400, rel=0.01)
    assert record["identity_ok"]


def test_a_row_is_of_all_requests_together_and_keeps_each_rounds_p99():
    runs = [{**figures([client(*[2.0] * 90, *[p99_ms] * 10)], [{"requests": 110}], []), "round": number, "proxies": 1,
             "identity_ok": p99_ms < 5, "config_hash": "h"} for number, p99_ms in enumerate((3.0, 2.5, 7.0), 1)]
    row = row_of("stall", 30, "at-once", runs)
    assert row["p99_ms"] == pytest.approx(7, rel=0.01) and row["p99_ms_rounds"]["2"] == pytest.approx(2.5, rel=0.01)
    assert (row["n"], row["lost"], row["identity_ok"]) == (300, 3, False)


def test_the_rate_is_that_of_the_middle_of_a_run():
    def tick(at_s: float, answered: int, sent: int) -> tuple[float, dict]:
        return at_s, {"event": "tick", "answered": answered, "sent": sent, "total": 100}

    seen = [(0.5, {"event": "measuring", "answered": 0, "sent": 1, "total": 100}), tick(1, 10, 20), tick(2, 40, 60), tick(3, 60, 90),
            tick(4, 100, 100)]
    assert rate_between(seen) == pytest.approx(25)
    assert rate_between(seen[:2]) != rate_between(seen[:2]), "not a number of one report"


def test_the_quick_form_may_be_changed_in_part():
    quick = at_once.EXPERIMENT.parse(["--quick", "--loads", "10"])
    assert (quick.rounds, quick.loads, quick.seconds, quick.quiet_wait) == (1, [10], 1.0, 0.0)
    whole = at_once.EXPERIMENT.parse([])
    assert (whole.rounds, whole.loads, whole.seconds) == (3, list(at_once.LOADS), 10.0)
    for wrong in (["--loads", "0"], ["--loads", "ten"], ["--proxies", "9"], ["--systems", "none"], ["--idle", "0"]):
        with pytest.raises(SystemExit):
            at_once.EXPERIMENT.parse(wrong)
