# SPDX-License-Identifier: Apache-2.0
"""A planted mistake is found by both checkers, whatever the history; and none is found where none was planted."""

import pytest

from bench.outcome import planted_is_found
from chaos import plants, promises, scenario
from chaos.judgement import judge_twice
from tests import needs

pytestmark = needs.JUDGES

HEADER = "client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts\n"
HISTORY = HEADER + """0,i,0,1,1,1,2,ok,1
0,i,0,2,3,3,4,ok,1
0,i,1,0,5,5,9,timed_out,1
0,p,0,7,10,10,11,ok,1
0,p,0,8,12,12,13,ok,1
0,g,0,8,14,14,15,ok,1
"""
FINAL = HEADER + """0,c,0,2,100,100,101,ok,1
0,c,1,1,100,100,101,ok,1
0,g,0,8,100,100,101,ok,1
"""


def row(folder, plant: str | None) -> dict:
    history, final = folder / "history.csv", folder / "final.csv"
    history.write_text(HISTORY, encoding="ascii")
    final.write_text(FINAL, encoding="ascii")
    plants.damage(plant, history, final)
    verdict = judge_twice(history, final)
    return {"acked_lost": verdict["acked_lost"], "double_applied": verdict["double_applied"],
            "linearizable": verdict["linearizable"], "checkers_disagree": int(not verdict["agreed"]), "bites": {"killed": 1}}


def found(plant: str, row_: dict) -> bool:
    held = {"mode": "memory", "events": 1, "client_errors": 0, "duplicate_answers": 0, "events_with_loss": None, "unavailable_max_ms": 1.0,
            "acked_lost": 0, "double_applied": 0, "linearizable": True}
    checks = promises.held({**held, **row_}, 1, scenario.load("leader-kill"))
    return all(check.met for check in planted_is_found(plant, checks, plants.PLANTS[plant]))


def test_nothing_is_found_where_nothing_was_planted(tmp_path):
    for plant in (None, plants.NO_FAULT):
        assert not any(found(each, row(tmp_path, plant)) for each in plants.PLANTS)


@pytest.mark.parametrize("plant", [plants.LOST, plants.TWICE, plants.STALE])
def test_a_damaged_history_is_found(plant, tmp_path):
    seen = row(tmp_path, plant)
    assert found(plant, seen), seen
    assert not seen["linearizable"] and not seen["checkers_disagree"]


def test_a_fault_that_did_nothing_is_found():
    assert found(plants.NO_FAULT, {"bites": {"killed": 0}})


def test_a_history_without_anything_to_damage_is_an_error(tmp_path):
    history, final = tmp_path / "history.csv", tmp_path / "final.csv"
    history.write_text(HEADER + "0,i,1,0,5,5,9,timed_out,1\n", encoding="ascii")
    final.write_text(FINAL, encoding="ascii")
    for plant in (plants.LOST, plants.STALE):
        with pytest.raises(ValueError):
            plants.damage(plant, history, final)
