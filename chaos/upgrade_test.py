# SPDX-License-Identifier: Apache-2.0
"""One lost request, one second answer, one daemon that began anew: each is a missed check."""

import pytest

from chaos import upgrade

GOOD = {"events": 20, "adopted": 20, "upgrades": 8, "reloads": 8, "applied": 8, "lost": 0, "wrong": 0,
        "not_counted": 0, "no_daemon": 0, "identity_ok": True, "p999_ms": 0.9}


def missed(calm: dict | None = None, **rough) -> list[str]:
    rows = [{"phase": "undisturbed", **GOOD, "p999_ms": 0.5, **(calm or {})}, {"phase": "disturbed", **GOOD, **rough}]
    return [check.what for check in upgrade.must_show(rows) if not check.met]


def test_a_run_without_a_fault_misses_nothing():
    assert missed() == []


@pytest.mark.parametrize("fault", [{"lost": 1}, {"wrong": 1}, {"not_counted": 1}, {"not_counted": -1}, {"no_daemon": 1},
                                   {"identity_ok": False}, {"p999_ms": 1.1}, {"adopted": 19}, {"events": 19, "adopted": 19},
                                   {"upgrades": 3}, {"reloads": 5, "applied": 5}, {"applied": 7}], ids=str)
def test_each_fault_is_missed_by_one_check(fault):
    assert len(missed(**fault)) == 1


def test_the_plan_has_its_successions_and_reloads_between_them():
    planned = upgrade.plan(20)
    assert sum(how is not None for _, how, _ in planned) == 20
    assert sum(name == upgrade.RELOAD for name, _, _ in planned) == 8
    assert planned[-1][1] is not None


def test_each_reload_changes_something_and_the_last_is_the_first_again():
    first = {"services": [{"name": "raw", "vip": "10.99.0.1", "port": 9000, "primary": "a", "backends": [
        {"name": "a", "address": "10.77.0.11", "port": 9000}, {"name": "b", "address": "10.77.0.12", "port": 9000}]}]}
    found = upgrade.variants(first)
    assert found[-1] == first and all(one != other for one, other in zip(found, [*found[1:], found[0]], strict=True))


def test_losses_of_the_undisturbed_run_are_told_as_its_own():
    assert missed({"lost": 2}) == ["undisturbed: requests lost"]
