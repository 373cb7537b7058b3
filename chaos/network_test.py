# SPDX-License-Identifier: Apache-2.0
"""One request more than the direct client lost is too many, wherever it was lost; so is one wrong status."""

import pytest

from chaos import network

_EACH = [{"kind": network.Machine.KINDS[number % 5], "at_s": 2.0 + number, "took_s": 0.1, "wrong": "", "agreed": True}
         for number in range(50)]


def _missed(proxied=(), direct=(), each=None, sent=100_000) -> list[str]:
    row = network.row_of(sent, list(proxied), list(direct), each or _EACH, 7, {})
    return [check.what for check in network.must_show(row, 50) if not check.met]


def _but(**changed) -> list[dict]:
    return [*_EACH[:-1], _EACH[-1] | changed]


def test_fifty_changes_without_a_trace_show_what_they_must():
    assert _missed() == []


def test_what_the_direct_client_lost_at_the_same_change_is_no_loss_of_the_proxy():
    assert _missed(proxied=[7.1, 7.2], direct=[7.3, 7.05, 30.0]) == []


@pytest.mark.parametrize("proxied, direct", [([7.1], []), ([7.1, 7.2], [7.15]), ([7.1], [9.1]), ([0.5], [7.0])])
def test_a_loss_at_another_change_or_one_more_is_too_many(proxied, direct):
    assert _missed(proxied, direct) == ["requests lost beyond those of the direct client"]


@pytest.mark.parametrize("each, what", [
    (_but(wrong="uplinks ['eth0'] instead of eth1"), "changes after which status was wrong"),
    (_but(agreed=False), "changes that the kernel understood in another way"),
    (_but(took_s=1.5), "changes that were followed after a second or later"), (_EACH[1:], "changes"),
    ([change | {"kind": "route"} for change in _EACH], "kinds of change")])
def test_one_change_that_is_not_followed_is_too_many(each, what):
    assert _missed(each=each) == [what]


def test_a_planted_mistake_is_found_by_losses_and_by_status():
    bad = network.must_show(network.row_of(9, [7.1], [], _but(wrong="x"), 7, {}), 50)
    assert all(check.met for check in network.planted_is_found(bad))
    assert not all(check.met for check in network.planted_is_found(network.must_show(network.row_of(9, [7.1], [], _EACH, 7, {}), 50)))


def test_a_run_is_bounded_and_its_seed_is_known():
    with pytest.raises(SystemExit):
        network.parse(["--changes=1001"])
    assert network.parse(["--quick"]).quiet_wait == 0 and network.parse([]).seed is not None
    assert network.parse(["--seed=5"]).seed == 5
