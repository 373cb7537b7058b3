# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `bench phases`: windows of extra load, shares and when one is back, what counts of a phase, what must be shown."""

import pytest

from bench import phases
from bench.phases import SCRIPTS, Sample, back_after_s, begins, extra_loads, must_show, phase_figures, row_of, share_of


def samples(shares_of_a: list[float], extra: float = 0.0, rate: int = 1000) -> list[Sample]:
    """One second each; the rest goes to b."""
    found, a, b = [Sample(0.0, 0, 0, 0, 0, 3.0, "a", {"a": 0, "b": 0})], 0.0, 0.0
    for second, share in enumerate(shares_of_a, 1):
        a += share * rate * (1 + extra)
        b += (1 - share) * rate * (1 + extra)
        found.append(Sample(float(second), rate * second, 10 * second, 0, 0, 3.0, "a", {"a": round(a), "b": round(b)}))
    return found


def copies(per_s: list[int]) -> list[Sample]:
    """So many packets beyond one for each request."""
    found, more = [], 0
    for second, each in enumerate([0, *per_s]):
        more += each
        found.append(Sample(float(second), 1000 * second, 0, 0, 0, 3.0, "a", {"a": 1000 * second + more}))
    return found


def test_every_window_is_looked_at_and_none_that_is_shorter():
    assert extra_loads(copies([50] * 9)) == []
    loads = extra_loads(copies([50] * 10 + [0] * 5 + [100] * 10))
    assert loads[0] == (10.0, pytest.approx(0.05))
    assert max(extra for _, extra in loads) == pytest.approx(0.1)
    assert len(loads) == 16


def test_a_burst_shows_in_its_window_though_it_is_within_budget_in_all():
    loads = [extra for _, extra in extra_loads(copies([0] * 20 + [700] + [0] * 20))]
    assert max(loads) == pytest.approx(0.07) and sum(loads) / len(loads) < 0.05


def test_extra_load_is_what_the_replicas_received_whatever_the_proxy_counts():
    """A proxy that counts no hedge hides none."""
    silent = [Sample(one.at_s, one.requests, 0, 0, 0, 3.0, "a", one.received) for one in copies([200] * 10)]
    assert phase_figures([(1.0, 2.0)], silent, 0, 11, 0)["extra_load_max"] == pytest.approx(0.2)
    figures = phase_figures([(1.0, 2.0), (2.5, 3.0), (3.0, 2000.0)], samples([0.5] * 10, extra=0.05), 0.0, 10.0, 2.0)
    assert figures["extra_load"] == pytest.approx(0.05) and figures["share"] == pytest.approx(0.5)
    assert (figures["n"], figures["lost"], figures["p50_ms"]) == (3, 1, 3.0)


def test_the_first_seconds_of_a_phase_do_not_count_for_its_percentiles():
    latencies = [(at / 10, 100.0 if at < 50 else 2.0) for at in range(100)]
    figures = phase_figures(latencies, samples([0.5] * 10), 0, 10, settle_s=5)
    assert figures["p99_ms"] == 2.0 and figures["n"] == 100 and figures["hedges"] == 90
    assert phase_figures(latencies, samples([0.5] * 10), 0, 10, settle_s=4)["p99_ms"] == 100.0


def test_a_share_is_of_what_all_received_and_is_back_when_a_whole_second_has_it():
    assert share_of("a", samples([0.2, 0.4])) == pytest.approx(0.3)
    assert share_of("a", samples([])) is None
    seen = samples([0.2] * 3 + [0.0] * 4 + [0.1, 0.15, 0.16, 0.2])
    assert back_after_s("a", seen, 5.0, 11.0, 0.16) == 5.0
    assert back_after_s("a", seen, 5.0, 9.0, 0.16) is None, "too late"
    assert back_after_s("a", seen, 5.0, 11.0, 0.3) is None


def rows(runs: int = 3, only: tuple[str, ...] = tuple(phases.PHASES), **changes: dict) -> list[dict]:
    sound = {"n": 1000, "lost": 0, "hedges": 50, "failovers": 0, "suspected": 0, "p50_ms": 1.4, "p95_ms": 2.4, "p99_ms": 2.6, "delay_ms": 2.5,
             "extra_load": 0.05, "extra_load_max": 0.052, "share": 0.2}
    found = []
    for name, script in SCRIPTS.items():
        for phase in script.phases:
            own = {"both-slow": {"p99_ms": 60.0, "delay_ms": 50.0}, "back": {"back_after_s": 6.0}, "overloaded": {"lost": 30}}.get(phase, {})
            run = {**sound, **own, **changes.get(phase.replace("-", "_"), {})}
            record = {"phases": {phase: run}, "identity_ok": run.get("identity_ok", True), "config_hash": "h"}
            if phase in only:
                found.append(row_of(name, next(iter(script.modes)), phase, [record] * runs))
    return found


def missed(**changes) -> list[str]:
    return [check.what for check in must_show(rows(**changes)) if not check.met]


@pytest.mark.parametrize("changes, what", [
    ({"runs": 2}, "runs of each row"), ({"healthy_again": {"p99_ms": 4.9}}, "healthy-again: settled p99"),
    ({"both_slow": {"p99_ms": 97.0}}, "both-slow: settled p99"), ({"both_slow": {"extra_load_max": 0.061}}, "both-slow: extra load in any 10 s"),
    ({"healthy_again": {"extra_load_max": None}}, "healthy-again: extra load in any 10 s"),
    ({"healthy_again": {"delay_ms": 40.0}}, "healthy-again: delay"), ({"both_slow": {"delay_ms": 10.0}}, "both-slow: delay"),
    ({"back": {"back_after_s": 10.5}}, "slow for 5 s"), ({"back": {"back_after_s": None}}, "slow for 5 s"),
    ({"overloaded": {"extra_load": 0.061}}, "all overloaded: extra load"), ({"overloaded": {"lost": 0}}, "all overloaded: requests without"),
    ({"well": {"lost": 1}}, "requests without an answer in the other phases"), ({"well": {"identity_ok": False}}, "runs in which the accounts")])
def test_sound_rows_meet_everything_and_each_limit_can_be_missed(changes, what):
    assert missed() == []
    (found,) = missed(**changes)
    assert found.startswith(what)


def test_one_slow_is_judged_by_each_script():
    assert len(missed(one_slow={"p99_ms": 3.2})) == 1 and len(missed(one_slow={"p99_ms": 4.9})) == 2


def test_a_run_of_some_phases_is_judged_by_what_those_show():
    checks = must_show(rows(only=("overloaded",)))
    assert all(check.met or "other phases" in check.what for check in checks)
    assert sum("overloaded" in check.what for check in checks) == 2 and not any("slow for" in check.what for check in checks)
    assert [name for name, *_ in begins(SCRIPTS["standby-choice"], 1.0, ["overloaded", "healthy"])] == ["healthy", "overloaded"]
    assert not all(check.met for check in must_show([])), "a run that measured nothing shows nothing"


def test_a_run_in_which_it_never_came_back_is_not_hidden_by_the_others():
    def records(*waits: float | None) -> list[dict]:
        run = {"n": 1, "lost": 0, "hedges": 0, "failovers": 0, "suspected": 0}
        return [{"phases": {"back": {**run, "back_after_s": wait}}, "identity_ok": True, "config_hash": "h"} for wait in waits]

    assert row_of("standby-choice", "fastest", "back", records(3.0, None, 4.0))["back_after_s"] is None
    assert row_of("standby-choice", "fastest", "back", records(3.0, 7.0, 4.0))["back_after_s"] == 7.0
