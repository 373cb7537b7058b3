# SPDX-License-Identifier: Apache-2.0
"""The lots that network faults draw, without a lab: shares come out, seeds and links matter, mistakes are refused."""

import re
from pathlib import Path

import pytest

from deploy.lab import network_faults
from deploy.lab.network_faults import DELAYS_MS, Counted, Rule, draw, lost_numbers, seed_of

ABI = Path(__file__).resolve().parents[2] / "bpf" / "lab" / "network_faults_abi.h"


def constant(name: str) -> int:
    return int(re.search(rf"#define {name} (0x[0-9a-f]+|\d+)", ABI.read_text(encoding="ascii"))[1], 0)


def test_python_and_the_program_agree_on_the_numbers():
    assert constant("HR_FAULTS_DELAY_CLASSES") == len(DELAYS_MS)
    assert constant("HR_FAULTS_SHORTEST_NS") == DELAYS_MS[0] * 1e6
    assert constant("HR_FAULTS_LEAVES") == network_faults._LEAVES
    assert constant("HR_FAULTS_LEAF_BASE") == network_faults._LEAF_BASE
    assert constant("HR_FAULTS_FRAME_BYTES") == network_faults._FRAME_BYTES
    assert constant("HR_FAULTS_MILLION") == network_faults._MILLION
    assert len(Rule().packed()) == 64


def test_shares_come_out():
    lost = lost_numbers(Rule(seed=seed_of(1, ("a", "b")), lost=0.05), 100_000)
    assert 4_700 < len(lost) < 5_300  # 4 sigma is 276
    assert lost_numbers(Rule(seed=1, lost=1.0), 50) == list(range(50))
    assert lost_numbers(Rule(seed=1), 50) == []
    drawn = [draw(7, number, 3, 4) for number in range(10_000)]
    assert {drawn.count(value) // 1000 for value in range(4)} <= {2}


def test_lots_depend_on_seed_link_and_purpose():
    def lots(seed: int, purpose: int = 0) -> list[int]:
        return [draw(seed, number, purpose, 1000) for number in range(20)]

    assert lots(1) == lots(1)
    assert lots(1) != lots(2) and lots(1) != lots(1, 1)
    assert len({seed_of(1, ("a", "b")), seed_of(1, ("b", "a")), seed_of(2, ("a", "b"))}) == 3


@pytest.mark.parametrize("wrong", [{"lost": 1.1}, {"duplicated": -0.1}, {"delays_ms": (0.5, 3)}, {"delays_ms": (4, 1)}])
def test_a_rule_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="network faults"):
        Rule(**wrong)


def test_counts_add_up():
    assert Counted(5, 1, 2, 3, 0) + Counted(1, 1, 0, 0, 1) == Counted(6, 2, 2, 3, 1)
    assert Counted(5, 1, 2, 3, 0) - Counted(1, 1, 0, 0, 0) == Counted(4, 0, 2, 3, 0)


def test_the_delay_line_has_a_leaf_for_whoever_waits():
    lines = list(network_faults._delay_line("x"))
    assert len(lines) == 1 + len(DELAYS_MS) * constant("HR_FAULTS_LEAVES")
    assert "classid 1:10 htb rate 3200000bps" in lines[1] and "rate 25000bps" in lines[-1]
