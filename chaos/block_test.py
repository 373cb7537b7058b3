# SPDX-License-Identifier: Apache-2.0
"""A block's event, without a lab: which node is the leader that the fault meets."""

import dataclasses
import random
from types import SimpleNamespace

import pytest

from chaos import block, plants, scenario
from chaos.systems import Settings
from deploy.lab import CommandFailed

BALLAST = 200 << 20


class Node:
    def __init__(self, cluster: "Cluster", number: int):
        self.cluster, self.number = cluster, number

    def transfer(self, number: int) -> bool:
        assert self is self.cluster.leader(), "leadership is its leader's to hand over"
        self.cluster.leading = number
        return True

    def resident_bytes(self) -> int:
        return BALLAST


class Cluster:
    """Of three nodes, ready at all times. `moves`: who takes the lead before each time the leader is asked for after a pause."""

    def __init__(self, leading: int, moves: list[int]):
        self.nodes = [Node(self, number) for number in (1, 2, 3)]
        self.leading, self.moves = leading, moves

    def leader(self) -> Node:
        return self.nodes[self.leading - 1]

    def wait_ready(self) -> Node:
        return self.leader()

    def pause(self) -> None:
        if self.moves:
            self.leading = self.moves.pop(0)

    def states(self) -> dict:
        return {node.number: node is self.leader() for node in self.nodes}


def event(monkeypatch, leading: int, moves: list[int], ballast: int = BALLAST) -> dict:
    """One event without a fault, in a cluster whose leader moves in each pause."""
    cluster = Cluster(leading, moves)
    monkeypatch.setattr(block, "PAUSE_S", (1.5, 1.5))
    monkeypatch.setattr(block.time, "sleep", lambda seconds: cluster.pause() if seconds == 1.5 else None)
    calm = dataclasses.replace(scenario.load("leader-kill"), lasts_s=0.0)
    site = block.Site(None, SimpleNamespace(cluster=cluster, proxy=None), None, None, calm, Settings(ballast_bytes=ballast),
                      random.Random(1))
    return block._event(site, plants.NO_FAULT)  # pylint: disable=protected-access


@pytest.mark.parametrize("leading, moves", [(1, []), (3, []), (1, [3]), (2, [2, 3, 1])])
def test_a_fault_meets_the_large_leader_though_leadership_moves_in_the_pause(monkeypatch, leading, moves):
    happened = event(monkeypatch, leading, moves)
    assert happened["node"] == 1 and happened["resident_bytes"] == BALLAST


def test_without_ballast_a_fault_meets_the_node_that_leads_after_the_pause(monkeypatch):
    assert event(monkeypatch, 1, [3], ballast=0)["node"] == 3


def test_a_large_node_that_never_keeps_the_lead_is_an_error(monkeypatch):
    monkeypatch.setattr(block, "READY_WITHIN_S", 0.05)
    with pytest.raises(CommandFailed, match="node 1 does not lead"):
        event(monkeypatch, 1, [3] * 10**6)
