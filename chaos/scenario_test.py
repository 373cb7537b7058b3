# SPDX-License-Identifier: Apache-2.0
"""Scenarios are read strictly."""

import copy

import pytest

from chaos import scenario
from chaos.promises import held

SOUND = {"what": "the leader is killed", "target": "leader", "lasts_s": 2.0,
         "fault": [{"kind": "kill"}], "client": {"errors": 0, "quiet": {"memory": {"p50_ms": 5}}}, "bites": {"killed": 1},
         "run": {"mode": "memory", "replicas": 3, "quick": 2, "full": 20}}


def changed(**change) -> dict:
    """A key with two underscores is one in a table: client__errors."""
    content = copy.deepcopy(SOUND)
    for key, value in change.items():
        table, _, inner = key.rpartition("__")
        (content[table] if table else content)[inner] = value
    return content


def test_every_scenario_that_ships_is_sound():
    assert {"leader-kill", "leader-pause", "leader-partition", "power-cut", "network-faults", "ring-partition"} <= set(scenario.names())
    for name in scenario.names():
        found = scenario.load(name)
        assert found.name == name and found.what and found.faults


def test_a_sound_one_says_what_it_needs():
    found = scenario.parse("s", changed(fault=[{"kind": "kill"}, {"kind": "loss", "between": "nodes", "share": 0.1}],
                                        bites={"killed": 1, "lost_packets": 5}))
    assert found.kinds == {"kill", "loss"} and found.needs == {"network_faults"} and found.kills
    assert found.client.errors == 0 and found.client.duplicate_answers == 0


@pytest.mark.parametrize("change, message", [
    ({"fault": [{"kind": "flood"}]}, "fault 'flood' is none of kill"),
    ({"fault": []}, "no \\[\\[fault\\]\\]"),
    ({"fault": [{"kind": "kill", "share": 1}]}, "does not know the key 'share'"),
    ({"fault": [{"kind": "loss", "between": "nodes"}]}, "lacks the key 'share'"),
    ({"fault": [{"kind": "loss", "between": "all", "share": 0.5}]}, "between must be one of nodes"),
    ({"fault": [{"kind": "loss", "between": "nodes", "share": 2}]}, "share must be a number from 0.0001 to 1"),
    ({"fault": [{"kind": "delay", "between": "nodes", "share": 1, "from_ms": 3, "to_ms": 4}]}, "from_ms must be one of 0.5"),
    ({"target": "everybody"}, "target 'everybody'"),
    ({"target": "all", "fault": [{"kind": "pause"}], "bites": {"stopped": 1}}, "'pause' cannot meet 'all'"),
    ({"lasts": 2}, "does not know the key 'lasts'"),
    ({"lasts_s": 0}, "lasts_s must be above 0"),
    ({"holds": {"acked_lost": 1}}, "does not know the key 'holds'"),
    ({"client__errors": 3}, 'errors is 0 or "any"'),
    ({"client__errors_share": 0.1}, "not both"),
    ({"client__quiet": {"memory": {"p90_ms": 1}}}, "client.quiet"),
    ({"bites": {}}, "does not say what shows the fault 'kill'"),
    ({"bites__stopped": 1}, "nothing counts 'stopped'"),
    ({"bites__killed": 0}, "must be above 0"),
    ({"run__replicas": 4}, "replicas '4'"),
    ({"run__quick": 21}, "quick and full"),
    ({"run__needs": ["magic"]}, "does not know the key 'needs'"),
])
def test_a_mistake_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        scenario.parse("s", changed(**change))


def test_a_file_says_what_differs():
    short = {key: value for key, value in SOUND.items() if key not in ("client", "run")}
    assert scenario.parse("s", short).client == scenario.Client(0, None, 0, 2000)
    assert scenario.parse("s", short).run == scenario.Run("memory", 3, 2, 20)
    nothing = scenario.parse("s", {**short, "client": {"errors_share": 0.1, "duplicate_answers": "any", "waits_at_most_ms": "any"}}).client
    assert nothing == scenario.Client(None, 0.1, None, None)


@pytest.mark.parametrize("key", sorted(SOUND.keys() - {"client", "run"}))
def test_a_key_that_is_missing_is_named(key):
    content = copy.deepcopy(SOUND)
    del content[key]
    with pytest.raises(ValueError, match=f"lacks the key '{key}'"):
        scenario.parse("s", content)


def row_of(what: scenario.Scenario) -> dict:
    """That misses nothing."""
    return {"mode": what.run.mode, "events": 3, "acked_lost": 0, "double_applied": 0, "linearizable": True, "client_errors": 0,
            "errors_share": 0.0, "duplicate_answers": 0, "unavailable_max_ms": 1.0, "bites": dict(what.bites),
            "events_with_loss": None}


@pytest.mark.parametrize("name", scenario.names())
def test_the_judgement_of_every_scenario_can_fail(name):
    what = scenario.load(name)
    good = row_of(what)

    def missed(**change) -> list[str]:
        return [check.what for check in held({**good, **change}, 3, what) if not check.met]

    assert not missed()
    for change in ({"events": 2}, {"acked_lost": 1}, {"double_applied": 1}, {"linearizable": False}):
        assert len(missed(**change)) == 1, change
    for bite, wanted in what.bites.items():
        assert len(missed(bites={**good["bites"], bite: wanted - 1})) == 1
    assert bool(missed(client_errors=1)) is (what.client.errors is not None)
    assert bool(missed(errors_share=0.9)) is (what.client.errors_share is not None)
    assert bool(missed(duplicate_answers=1)) is (what.client.duplicate_answers is not None)
    assert bool(missed(unavailable_max_ms=60_000)) is (what.client.waits_at_most_ms is not None)
