# SPDX-License-Identifier: Apache-2.0
"""What faults are made of, without a lab: which links, in which order they begin and end, what is counted."""

import time

import pytest

from chaos.faults import KINDS, FaultSpec, Several, World, make
from chaos.faults.fault import Fault
from chaos.faults.wires import BETWEEN, links
from deploy.lab.names import CLIENT

FIVE = ["a", "b", "c", "d", "e"]


class Noted(Fault):
    kind = "noted"
    shows, shown = "noted", 2

    def __init__(self, notes: list[str], name: str, *, fails: bool = False):
        self.notes, self.name, self.fails = notes, name, fails

    def begin(self) -> None:
        self.notes.append(f"begin {self.name}")
        if self.fails:
            raise RuntimeError(self.name)

    def end(self) -> None:
        self.notes.append(f"end {self.name}")
        if self.fails:
            raise RuntimeError(self.name)


class Slow(Noted):
    def hold(self, seconds: float) -> None:
        time.sleep(0.05)
        self.notes.append(f"held {self.name}")


def test_several_begin_in_order_last_together_and_end_the_other_way_round():
    notes: list[str] = []
    several = Several([Noted(notes, "a"), Slow(notes, "b"), Noted(notes, "c")])
    begun_ns = several.begin()
    several.hold(0.01)
    ended_ns = several.end()
    assert notes == ["begin a", "begin b", "begin c", "held b", "end c", "end b", "end a"]
    assert ended_ns - begun_ns >= 50_000_000, "one that takes its own time has it"
    assert several.evidence() == {"noted": 6} and several.lost == {}


def test_all_that_begun_end_whatever_one_does():
    notes: list[str] = []
    several = Several([Noted(notes, "a"), Noted(notes, "b", fails=True), Noted(notes, "c")])
    with pytest.raises(RuntimeError, match="b"):
        several.begin()
    with pytest.raises(RuntimeError, match="b"):
        several.end()
    assert notes == ["begin a", "begin b", "end b", "end a"]
    several.end()
    assert len(notes) == 4, "twice is once"


def test_no_fault_shows_nothing():
    several = make([], World(None, None, None, []))
    several.begin()
    several.hold(0)
    several.end()
    assert several.evidence() == {}


def test_a_ring_leaves_each_node_its_two_neighbours():
    cut = links("ring", FIVE, "a", "b")
    assert len(cut) == 5 * 2 == len(set(cut))
    for index, host in enumerate(FIVE):
        neighbours = {FIVE[index - 1], FIVE[(index + 1) % 5]}
        assert {other for a, other in cut if a == host} == set(FIVE) - neighbours - {host}
    assert links("ring", FIVE[:3], "a", "b") == [], "three are each other's neighbours"


def test_links_between_whom():
    assert len(links("nodes", FIVE, "a", "b")) == 20
    assert set(links("clients", FIVE[:1], "a", "b")) == {(CLIENT, "a"), ("a", CLIENT)}
    assert links("requests", FIVE[:2], "a", "b") == [(CLIENT, "a"), (CLIENT, "b")]
    assert links("answers", FIVE[:2], "a", "b") == [("a", CLIENT), ("b", CLIENT)]
    assert len(links("everybody", FIVE, "a", "b")) == 30
    assert links("leader-to-follower", FIVE, "c", "d") == [("c", "d")]
    assert links("follower-to-leader", FIVE, "c", "d") == [("d", "c")]
    for between in BETWEEN:
        assert all(a != b for a, b in links(between, FIVE, "a", "b"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_what_shows_it_and_whom_it_can_meet(kind):
    assert KINDS[kind].shows and KINDS[kind].targets


def test_a_fault_names_its_mistakes():
    with pytest.raises(ValueError, match="none of"):
        FaultSpec.parse({"share": 1})
    assert FaultSpec.parse({"kind": "kill"}) == FaultSpec("kill")
