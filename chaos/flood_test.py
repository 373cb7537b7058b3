# SPDX-License-Identifier: Apache-2.0
"""What `chaos flood` demands can be missed, each by its own fault; forged datagrams have the sizes that programs look at."""

import re
from pathlib import Path

import pytest

from bench.outcome import planted_is_found
from chaos import flood, flood_rigs, plants

_QUIET = {"n": 5000, "lost": 0, "wrong": 0, "p50_us": 70.0, "p99_us": 100.0, "rss_grown": 0.0, "maps_grown": 0.0, "hedges": 100, "stalls": 20}
_NOTHING: dict = {}


def _rounds(count: int = 5, quiet: dict = _NOTHING, **changes) -> list[dict]:
    """`changes` are under the flood."""
    attacked = {**_QUIET, "p99_us": 190.0, "sent": 600_000, "sent_per_s": 99_900.0, "met": 599_000, "shown": 590_000, **changes}
    return [{"quiet": {**_QUIET, **quiet}, "control": {**_QUIET, "p99_us": 150.0}, "flood": attacked}] * count


def _missed(**changes) -> list[str]:
    rows = [flood.row_of(hook, _rounds(**changes)) for hook in flood.ROWS]
    return [check.what for check in flood.must_show(rows) if not check.met]


def test_what_is_good_enough_is_met():
    assert _missed() == []


@pytest.mark.parametrize("changes, missed", [
    ({"count": 4}, "runs of each hook"),
    ({"sent_per_s": 97_000.0}, "clock: frames per second"),
    ({"met": 500_000}, "splitter: share of them that the program met"),
    ({"p99_us": 201.0}, "reply: honest clients' p99 / quiet"),
    ({"hedges": 40}, "beside-slow: honest hedges / quiet"),
    ({"quiet": {"hedges": 0}, "hedges": 0}, "beside-slow: honest hedges of each stall, quiet"),
    ({"stalls": 0}, "beside-silent: stalls in each run"),
    ({"shown": 100_000}, "beside-silent: share of the frames that found the service's share full"),
    ({"shown": 500_000}, "beside-refusing: share of the frames that ended in a negative reply"),
    ({"lost": 1}, "sink: honest requests lost"),
    ({"wrong": 1}, "reply: honest requests answered wrongly"),
    ({"rss_grown": 0.02}, "announce: resident memory changed by, beyond the quiet run"),
    ({"maps_grown": 0.02}, "node: maps' memory changed by"),
])
def test_each_limit_can_be_missed(changes, missed):
    assert missed in _missed(**changes)


def test_floods_beside_a_service_have_a_rate_that_its_backends_share():
    assert _missed(sent_per_s=19_900.0) == [f"{hook}: frames per second" for hook in flood.ROWS if hook not in flood.BESIDE]


@pytest.mark.parametrize("plant, changes", [(plants.LOST_ANSWERS, {"lost": 3}), (plants.LATE_ANSWERS, {"p99_us": 5000.0}),
                                            (plants.NO_HEDGES, {"hedges": 0})])
def test_a_mistake_on_purpose_is_found_or_the_run_fails(plant, changes):
    def found(**changes) -> bool:
        rows = [flood.row_of(hook, _rounds(**changes)) for hook in flood.ROWS]
        return all(check.met for check in planted_is_found(plant, flood.must_show(rows)))

    assert found(**changes) and not found()


def test_a_hook_that_was_left_out_is_missed():
    assert "hooks" in [check.what for check in flood.must_show([flood.row_of("sink", _rounds())])
                       if not check.met]


def test_memory_that_shrinks_has_changed_too():
    assert flood.grown({"rss_bytes": 100, "map_bytes": 50}, {"rss_bytes": 90, "map_bytes": 50})["rss_grown"] == \
        pytest.approx(0.1)


def test_forged_datagrams_are_as_long_as_they_say():
    assert len(flood_rigs.announcement()) == 104
    forged = flood_rigs.peer_append(2, 1)
    assert len(forged) == int.from_bytes(forged[6:8], "little") == 264


def test_forged_appends_are_of_the_version_that_is_spoken():
    abi = (Path(__file__).parents[1] / "bpf/abi/peer_abi.h").read_text(encoding="utf-8")
    spoken = int(re.search(r"#define HR_PEER_VERSION (\d+)", abi)[1])
    assert flood_rigs.peer_append(2, 1)[4] == spoken, "or they end before their tag is looked at"


class _Growing:
    """Holds more after each honest run, up to a bound or for ever."""

    def __init__(self, monkeypatch, sizes: list[int]):
        self.ran, self._sizes = 0, sizes
        monkeypatch.setattr(flood, "memory", lambda rig: {"rss_bytes": rig.size(), "map_bytes": 1})

    def size(self) -> int:
        return self._sizes[min(self.ran, len(self._sizes) - 1)]

    def honest(self, _seconds: float) -> dict:
        self.ran += 1
        return {}


@pytest.mark.parametrize("sizes, ran", [([100, 100], 1), ([100, 150, 170, 170], 3), (list(range(100, 200, 10)), 5)])
def test_memory_is_let_grow_to_its_bound_and_not_for_ever(monkeypatch, sizes, ran):
    rig = _Growing(monkeypatch, sizes)
    flood.settle(rig, 1.0, 5)
    assert rig.ran == ran
