# SPDX-License-Identifier: Apache-2.0
"""Scenarios are read strictly."""

import pytest

from chaos import scenario

SOUND = {"what": "the leader is killed", "fault": "kill", "target": "leader", "lasts_s": 2.0, "pause_s": [1.0, 2.0]}


def test_every_scenario_that_ships_is_sound():
    assert {"leader-kill", "leader-pause", "leader-partition", "power-cut"} <= set(scenario.names())
    for name in scenario.names():
        found = scenario.load(name)
        assert found.name == name and found.what


@pytest.mark.parametrize("change, message", [
    ({"fault": "flood"}, "fault 'flood' is none of kill"),
    ({"target": "everybody"}, "target 'everybody'"),
    ({"fault": "pause", "target": "all"}, "one node at a time"),
    ({"lasts": 2}, "does not know the key 'lasts'"),
    ({"lasts_s": 0}, "lasts_s must be above 0"),
    ({"pause_s": [2.0, 1.0]}, "pause_s must be"),
    ({"pause_s": 1.0}, "pause_s must be"),
])
def test_a_mistake_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        scenario.parse("s", {**SOUND, **change})


def test_a_key_that_is_missing_is_named():
    content = dict(SOUND)
    del content["fault"]
    with pytest.raises(ValueError, match="lacks the key 'fault'"):
        scenario.parse("s", content)
