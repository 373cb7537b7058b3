# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the experiment: windows of extra load, what counts of a phase, what must be shown."""

import pytest

from bench import adaptive
from bench.adaptive import Sample


def samples(hedges_per_s: list[int], failovers: int = 0, rate: int = 1000) -> list[Sample]:
    found, hedges = [], 0
    for second, more in enumerate([0, *hedges_per_s]):
        hedges += more
        found.append(Sample(float(second), rate * second, hedges, failovers if second else 0, 0, 3.0, "a"))
    return found


def test_every_window_is_looked_at_and_none_that_is_shorter():
    assert adaptive.extra_loads(samples([50] * 9)) == []
    loads = adaptive.extra_loads(samples([50] * 10 + [0] * 5 + [100] * 10))
    assert loads[0] == (10.0, pytest.approx(0.05))
    assert max(extra for _, extra in loads) == pytest.approx(0.1)
    assert len(loads) == 16


def test_a_burst_shows_in_its_window_though_it_is_within_budget_in_all():
    loads = [extra for _, extra in adaptive.extra_loads(samples([0] * 20 + [700] + [0] * 20))]
    assert max(loads) == pytest.approx(0.07) and sum(loads) / len(loads) < 0.05


def test_what_is_sent_around_a_silent_backend_is_extra_too():
    assert adaptive.extra_loads(samples([50] * 10, failovers=200))[0][1] == pytest.approx(0.07)


def test_the_first_seconds_of_a_phase_do_not_count_for_its_percentiles():
    latencies = [(at / 10, 100.0 if at < 50 else 2.0) for at in range(100)]
    figures = adaptive.phase_figures(latencies, samples([10] * 10), 0, 10, settle_s=5)
    assert figures["p99_ms"] == 2.0 and figures["n"] == 100 and figures["hedges"] == 90
    assert adaptive.phase_figures(latencies, samples([10] * 10), 0, 10, settle_s=4)["p99_ms"] == 100.0


def rows(**changes) -> list[dict]:
    sound = {"runs": 3, "n": 60_000, "lost": 0, "hedges": 3000, "suspected": 0, "failovers": 0, "p50_ms": 1.4,
             "p95_ms": 2.4, "p99_ms": 3.2, "delay_ms": 2.5, "extra_load_max": 0.052}
    found = {phase: {**sound, "mode": "adaptive", "phase": phase} for phase in adaptive.PHASES}
    found["both-slow"].update(p99_ms=60.0, delay_ms=50.0)
    for phase, change in changes.items():
        found[phase.replace("_", "-")].update(change)
    return list(found.values())


def missed(**changes) -> list[str]:
    return [check.what for check in adaptive.must_show(rows(**changes)) if not check.met]


def test_each_thing_that_must_be_shown_can_be_missed():
    assert missed() == []
    assert len(missed(one_slow={"p99_ms": 4.9})) == 1
    assert len(missed(healthy_again={"p99_ms": 4.9})) == 1
    assert len(missed(both_slow={"p99_ms": 97.0})) == 1
    for phase in adaptive.PHASES:
        assert len(missed(**{phase.replace("-", "_"): {"extra_load_max": 0.061}})) == 1
    assert len(missed(healthy_again={"delay_ms": 40.0})) == 1
    assert len(missed(both_slow={"delay_ms": 10.0})) == 1
    assert len(missed(healthy={"lost": 1})) == 1
    assert len(missed(healthy={"runs": 2})) == 1
