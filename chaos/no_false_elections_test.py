# SPDX-License-Identifier: Apache-2.0
"""An election is one whether it was won or not, whatever is called a resignation counts, and ten minutes are ten minutes."""

import pytest

from bench.histogram import Histogram
from chaos import no_false_elections as nfe
from chaos.no_false_elections import Seen
from chaos.systems import Settings

_FIRST = Seen(term=3, won=1, resigned=0)


def _status(term: int, **counters: int) -> dict:
    # 64-bit integers come as text.
    return {"term": str(term), "counters": {key: str(value) for key, value in counters.items()}}


def _report(answered: int = 1000, seconds: float = 600.1) -> dict:
    latency = Histogram()
    for _ in range(answered):
        latency.record(100_000)
    return {"answered": answered, "failed": 0, "lost": 0, "seconds": seconds, "latency": latency.to_json()}


def _missed(last: Seen, **report) -> list[str]:
    row = nfe.row_of(Settings(), _FIRST, last, {"put": _report(**report), "get": _report()})
    return [check.what for check in nfe.must_show([row]) if not check.met]


def test_all_nodes_are_summed_up_and_the_highest_term_counts():
    seen = Seen.of([_status(3, elections_won=1, **{"kernel.resigned": 2}), _status(4, leader_quorum_checks=3),
                    _status(3, resigns_heard=5)])
    assert seen == Seen(term=4, won=1, resigned=7, quorum_checks=3)


def test_an_election_because_of_a_resignation_is_not_another_one():
    assert Seen.of([_status(3, resigns_heard=5, **{"elections_begun.resigned": 1})]).resigned == 5


def test_nodes_say_why():
    incidents = [{"ago_ns": "1500000000", "what": "its loop stood still for 12.0ms"},
                 {"ago_ns": "7000000000", "what": "its loop stood still for 11.0ms"}]
    assert nfe.told([{"node": "2", "incidents": incidents}, {"node": "3"}],
                    within_s=4) == ["node 2, 1.500 s ago: its loop stood still for 12.0ms"]


def test_a_term_that_nobody_won_is_an_election_too():
    assert nfe.elections(_FIRST, _FIRST) == 0
    assert nfe.elections(_FIRST, Seen(term=5, won=1, resigned=0)) == 2
    assert nfe.elections(_FIRST, Seen(term=3, won=2, resigned=0)) == 1


def test_a_calm_run_of_ten_minutes_shows_what_it_must():
    assert _missed(_FIRST) == []


@pytest.mark.parametrize(("last", "what"), [(Seen(4, 1, 0), "memory: elections"), (Seen(3, 2, 0), "memory: elections"),
                                            (Seen(3, 1, 1), "memory: leaders that resigned")])
def test_one_is_too_many(last, what):
    assert _missed(last) == [what]


def test_a_shorter_run_or_one_without_load_shows_nothing():
    assert _missed(_FIRST, seconds=599.0) == ["memory: seconds under load"]
    assert _missed(_FIRST, answered=0) == ["memory: puts per second meanwhile"]


def test_a_run_is_bounded():
    with pytest.raises(SystemExit):
        nfe.EXPERIMENT.parse(["--seconds=601"])
