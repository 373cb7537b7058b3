# SPDX-License-Identifier: Apache-2.0
"""One error, one election or one announcement that is not believed is too many; a change that changes nothing is none."""

import pytest

from bench.outcome import planted_is_found
from chaos import rotate_keys
from chaos.no_false_elections import Seen

_FIRST = Seen(term=3, won=1, resigned=0)


def _missed(last: Seen = _FIRST, ok: int = 5000, changes: int = 20, keys: int = 20, reasons: dict | None = None) -> list[str]:
    each = [{"took_s": 2.5, "keys": {"cluster_seals": f"{number % keys:08x}"}} for number in range(changes)]
    statuses = tuple({"services": [{"reasons": counted}]} for counted in ({}, reasons or {}))
    row = rotate_keys.row_of("memory", {"sent": 5000, "ok": ok}, _FIRST, last, each, statuses)
    return [check.what for check in rotate_keys.must_show([row]) if not check.met]


def test_twenty_changes_without_a_trace_show_what_they_must():
    assert _missed(reasons={"announce_accepted": "9000"}) == []


@pytest.mark.parametrize(("missed", "what"), [
    (_missed(ok=4999), "memory: errors"), (_missed(Seen(4, 2, 0)), "memory: elections"),
    (_missed(Seen(3, 1, 1)), "memory: leaders that resigned"), (_missed(changes=19), "memory: changes of all keys"),
    (_missed(keys=19), "memory: of them, that left other keys"),
    (_missed(reasons={"announce_tag": "1"}), "memory: announcements that were not believed")])
def test_one_is_too_many(missed, what):
    assert missed == [what]


def test_a_planted_mistake_is_found_by_an_election():
    row = {"mode": "memory", "changes": 1, "different_keys": 1, "sent": 1, "errors": 0, "elections": 1, "resigns": 0, "unbelieved": 0}
    assert all(check.met for check in planted_is_found(rotate_keys.CUT_OFF, rotate_keys.must_show([row])))
    assert not all(check.met for check in planted_is_found(rotate_keys.CUT_OFF, rotate_keys.must_show([row | {"elections": 0}])))


def test_a_run_is_bounded():
    with pytest.raises(SystemExit):
        rotate_keys.EXPERIMENT.parse(["--changes=101"])
