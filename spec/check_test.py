# SPDX-License-Identifier: Apache-2.0
"""What TLC says is read rightly, and no model passes that was not checked or whose planted mistake was not found."""

import dataclasses

import pytest

from spec import check

PROGRESS = (
    "Progress(14) at 2026-01-01 00:00:00: 183,109 states generated (180,197 s/min), "
    "34,060 distinct states found (33,126 ds/min), 9,169 states left on queue.\n"
)
HOLDS = PROGRESS + """
Model checking completed. No error has been found.
654767 states generated, 84625 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 28.
"""
BREAKS = """Error: Invariant OneVotePerTerm is violated.
Error: The behavior up to this point is:
State 1: <Initial predicate>
3370 states generated, 1292 distinct states found, 935 states left on queue.
The depth of the complete state graph search is 9.
"""
PROPERTY = BREAKS.replace("Invariant OneVotePerTerm", "Action property TermsOnlyGrow")
BROKEN = """Error: TLC threw an unexpected exception.
Error: Invariant OneVotePerTerm cannot be evaluated
"""
SOUND = check.Model("sound", "quick", "memory", ["n1"], 2, 2, 2, 60)
PLANTED = dataclasses.replace(SOUND, name="planted", set="faults", fault="no_fence", finds=("OneVotePerTerm",))


def judged(model, text, status, in_time=True):
    return check.judge(model, check.read_output(text), status, in_time)


def test_the_last_count_is_the_one_that_is_told():
    assert check.read_output(PROGRESS).distinct == 34060
    verdict = check.read_output(HOLDS)
    assert (verdict.states, verdict.distinct, verdict.diameter) == (654767, 84625, 28)
    assert verdict.finished and not verdict.violated and not verdict.error


def test_a_sound_model_passes_only_when_every_state_was_seen():
    assert judged(SOUND, HOLDS, 0) == ""
    assert "every state" in judged(SOUND, HOLDS.replace("Model checking completed", ""), 0)
    assert "not finished" in judged(SOUND, HOLDS, -9, in_time=False)
    assert "OneVotePerTerm" in judged(SOUND, BREAKS, 12)
    assert "status 255" in judged(SOUND, BROKEN, 255)


def test_a_planted_mistake_passes_only_when_it_broke_what_it_names():
    assert judged(PLANTED, BREAKS, 12) == ""
    assert "not found" in judged(PLANTED, HOLDS, 0)
    assert "TermsOnlyGrow" in judged(PLANTED, PROPERTY, 12)
    assert "status 255" in judged(PLANTED, BROKEN, 255)
    assert "not finished" in judged(PLANTED, "", -9, in_time=False)


def test_the_models_are_read_and_every_planted_mistake_is_in_the_specification():
    models = check.read_models()
    text = "".join(path.read_text() for path in check.SPEC_DIR.glob("*.tla"))
    assert {"quick", "full", "reached", "faults"} == {model.set for model in models}
    for model in models:
        assert model.fault == "none" or f'"{model.fault}"' in text, model.name
        assert "Fault = " in check.configuration(model)


def test_a_model_without_a_mistake_names_nothing_to_find(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text('[defaults]\nsplit = ["n1"]\nterms = 2\nentries = 2\nslots = 1\nlimit_s = 9\n'
                    '[model.a]\nset = "quick"\nmode = "disk"\nfinds = ["OneVotePerTerm"]\n')
    with pytest.raises(ValueError, match="must break"):
        check.read_models(path)


def test_no_such_model_is_an_error():
    with pytest.raises(SystemExit, match="no such model: fast"):
        check.chosen(check.read_models(), ["fast"])
