# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `bench standby-choice`: shares, when one is back, and which limits are met by which rows."""

import pytest

from bench import standby_choice
from bench.adaptive import Sample
from bench.standby_choice import back_after_s, must_show, phase_figures, row_of, share_of


def samples(shares_of_a: list[float], extra: float = 0.0, rate: int = 1000) -> list[Sample]:
    """One second each; the rest goes to b."""
    found, a, b = [Sample(0.0, 0, 0, 0, 0, 3.0, "a", {"a": 0, "b": 0})], 0.0, 0.0
    for second, share in enumerate(shares_of_a, 1):
        a += share * rate * (1 + extra)
        b += (1 - share) * rate * (1 + extra)
        found.append(Sample(float(second), rate * second, 0, 0, 0, 3.0, "a", {"a": round(a), "b": round(b)}))
    return found


def test_a_share_is_of_what_all_received():
    assert share_of("a", samples([0.2, 0.4])) == pytest.approx(0.3)
    assert share_of("a", samples([])) is None


def test_it_is_back_when_a_whole_second_has_the_share():
    seen = samples([0.2] * 3 + [0.0] * 4 + [0.1, 0.15, 0.16, 0.2])
    assert back_after_s("a", seen, 5.0, 11.0, 0.16) == 5.0
    assert back_after_s("a", seen, 5.0, 9.0, 0.16) is None, "too late"
    assert back_after_s("a", seen, 5.0, 11.0, 0.3) is None


def test_extra_load_is_what_the_replicas_received_beyond_the_requests():
    figures = phase_figures([(1.0, 2.0), (2.5, 3.0), (3.0, 2000.0)], samples([0.5] * 10, extra=0.05), 0.0, 10.0, 2.0)
    assert figures["extra_load"] == pytest.approx(0.05) and figures["share"] == pytest.approx(0.5)
    assert (figures["n"], figures["lost"], figures["p50_ms"]) == (3, 1, 3.0)


def rows(runs: int = 3, **changes: dict) -> list[dict]:
    sound = {"n": 1000, "lost": 0, "hedges": 50, "failovers": 0, "p50_ms": 1.4, "p99_ms": 3.0, "extra_load": 0.05, "share": 0.2,
             "identity_ok": True, "config_hash": "h"}
    found = []
    for phase in standby_choice.PHASES:
        record = {**sound, **({"back_after_s": 6.0} if phase == "back" else {}), **({"lost": 30} if phase == "overloaded" else {}),
                  **changes.get(phase.replace("-", "_"), {})}
        found.append(row_of(phase, [record] * runs))
    return found


def missed(**changes) -> list[str]:
    return [check.what for check in must_show(rows(**changes)) if not check.met]


def test_sound_rows_meet_everything_and_each_limit_has_its_row():
    assert missed() == []
    assert missed(runs=2) == ["runs of each row"]
    assert missed(back={"back_after_s": 10.5}) == missed(back={"back_after_s": None}) == [
        "slow for 5 s: until its share is 0.8 of what it was"]
    assert missed(one_slow={"p99_ms": 3.7}) == ["one 20 times slower: p99 (1.2 x the healthy one)"]
    assert missed(overloaded={"extra_load": 0.061}) == ["all overloaded: extra load at the replicas (budget + 1 point)"]
    assert missed(overloaded={"lost": 0}) == ["all overloaded: requests without an answer in time"]
    assert missed(one_slow={"lost": 1}) == ["requests without an answer in the other phases"]
    assert missed(well={"identity_ok": False}) == ["runs in which the accounts add up (share)"]


def test_a_run_of_some_phases_is_judged_by_what_those_show():
    some = [row for row in rows() if row["phase"] in ("healthy", "overloaded")]
    checks = must_show(some)
    assert all(check.met for check in checks)
    assert [check.what for check in checks if "overloaded" in check.what or "slow" in check.what] == [
        "all overloaded: extra load at the replicas (budget + 1 point)", "all overloaded: requests without an answer in time"]
    assert [name for name, *_ in standby_choice.begins(1.0, ["overloaded", "healthy"])] == ["healthy", "overloaded"]
    assert not all(check.met for check in must_show([])), "a run that measured nothing shows nothing"


def test_a_run_in_which_it_never_came_back_is_not_hidden_by_the_others():
    sound = rows()[2]
    runs = [{**sound, "back_after_s": after_s} for after_s in (3.0, None, 4.0)]
    assert row_of("back", runs)["back_after_s"] is None
    assert row_of("back", [{**sound, "back_after_s": after_s} for after_s in (3.0, 7.0, 4.0)])["back_after_s"] == 7.0
