# SPDX-License-Identifier: Apache-2.0
"""One address that met two workers, or that explain is wrong about, is too many; shares are even or not by chi-square."""

import pytest

from bench.outcome import planted_is_found
from bench.steer_rig import Counts
from chaos import steer_starts
from chaos.steer_starts import Spread


def _rows(**changed) -> list[dict]:
    balance = {"what": "balance, IPv4", "addresses": 10_000, "failed": 0, "one_worker": 10_000, "of_two": 0, "chi_square": 3.0,
               "explained_right": 10_000}
    starts = {"what": "starts", "starts": 1000, "orders": 24, "sources_share": 1.0, "both_share": 0.95, "of_two": 0}
    return [row | {key: value for key, value in changed.items() if key in row} for row in (balance, starts)]


def _missed(**changed) -> list[str]:
    return [check.what for check in steer_starts.must_show(_rows(**changed)) if not check.met]


def test_what_is_good_enough_is_met():
    assert _missed() == []


@pytest.mark.parametrize("changed, missed", [
    ({"addresses": 9_999, "one_worker": 9_999}, "balance, IPv4: addresses"), ({"failed": 1}, "balance, IPv4: visits that failed"),
    ({"one_worker": 9_999}, "balance, IPv4: addresses with all visits at one worker"),
    ({"chi_square": 11.4}, "balance, IPv4: chi-square of the shares (99 %)"),
    ({"explained_right": 9_999}, "balance, IPv4: addresses that explain is right about"), ({"starts": 999}, "starts"),
    ({"orders": 9}, "starts: orders in which workers came"), ({"sources_share": 0.9}, "starts: share of the sources that were heard"),
    ({"both_share": 0.8}, "starts: share that was heard by both transports"), ({"of_two": 1}, "starts: sources that met a second worker")])
def test_each_limit_can_be_missed(changed, missed):
    assert missed in _missed(**changed)


def test_a_planted_mistake_is_found_in_every_row():
    checks = steer_starts.must_show(_rows(of_two=1))
    assert all(check.met for check in planted_is_found(steer_starts.PLAIN, checks))
    assert not all(check.met for check in planted_is_found(steer_starts.PLAIN, steer_starts.must_show(_rows())))


def test_a_source_counts_as_met_by_one_worker_with_all_its_messages_only():
    all_, none = Counts(8, 8), Counts(0, 0)
    spread = Spread.of([[all_, none, Counts(8, 7), Counts(8, 0), none], [none, all_, none, Counts(0, 8), none]], 5, 8)
    assert spread == Spread(one_worker=2, of_two=1, shares=[2, 1], slots=[0, 1, 0, None, None])


def test_a_source_is_heard_by_both_transports_at_whatever_worker():
    assert steer_starts.heard_by_both([[Counts(1, 0), Counts(1, 0), Counts(2, 2)], [Counts(0, 1), Counts(1, 0), Counts(0, 0)]]) == 2
    assert steer_starts.heard_by_both([[Counts(1, 1)], []]) == 0  # a worker has not begun


def test_chi_square():
    assert steer_starts.chi_square([25, 25, 25, 25]) == 0
    assert steer_starts.chi_square([30, 20]) == 2
    assert steer_starts.chi_square([0, 0]) > 1000


def test_a_run_is_bounded():
    with pytest.raises(SystemExit):
        steer_starts.EXPERIMENT.parse(["--starts=10001"])
    quick = steer_starts.EXPERIMENT.parse(["--quick"])
    assert (quick.addresses, quick.starts) == (500, 20)
    assert steer_starts.EXPERIMENT.parse(["--quick", "--starts=0"]).starts == 0
