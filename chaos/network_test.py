# SPDX-License-Identifier: Apache-2.0
"""One request more than the direct client lost is too many, wherever it was lost; so is one wrong status."""

import random

import pytest

from bench.outcome import planted_is_found
from chaos import network

_EACH = [{"kind": network.Machine.KINDS[number % 5], "at_s": 2.0 + number, "took_s": 0.1, "wrong": "", "agreed": True}
         for number in range(50)]


_SETTINGS = {"seconds": 50.0}  # in which each client is to send 100,000 requests


def _row(proxied=(), direct=(), each=None, sent=(100_000, 100_000)) -> dict:
    return network.row_of(sent, list(proxied), list(direct), each or _EACH, 7, _SETTINGS)


def _missed(**changes) -> list[str]:
    row = _row(**changes)
    return [check.what for check in network.must_show([row]) if not check.met]


def _but(**changed) -> list[dict]:
    return [*_EACH[:-1], _EACH[-1] | changed]


def test_fifty_changes_without_a_trace_show_what_they_must():
    assert _missed() == []


def test_what_the_direct_client_lost_at_the_same_change_is_no_loss_of_the_proxy():
    assert _missed(proxied=[7.1, 7.2], direct=[7.3, 7.05, 30.0]) == []


@pytest.mark.parametrize("proxied, direct", [([7.1], []), ([7.1, 7.2], [7.15]), ([7.1], [9.1]), ([0.5], [7.0])])
def test_a_loss_at_another_change_or_one_more_is_too_many(proxied, direct):
    assert _missed(proxied=proxied, direct=direct) == ["requests lost beyond those of the direct client"]


@pytest.mark.parametrize("each, what", [
    (_but(wrong="uplinks ['eth0'] instead of eth1"), "changes after which status was wrong"),
    (_but(agreed=False), "changes that the kernel understood in another way"),
    (_but(took_s=1.5), "changes that were followed after a second or later"), (_EACH[1:], "changes"),
    ([change | {"kind": "route"} for change in _EACH], "kinds of change")])
def test_one_change_that_is_not_followed_is_too_many(each, what):
    assert _missed(each=each) == [what]


def test_a_planted_mistake_is_found_by_losses_and_by_status():
    bad = network.must_show([_row([7.1], each=_but(wrong="x"))])
    assert all(check.met for check in planted_is_found(network.BLIND, bad))
    assert not all(check.met for check in planted_is_found(network.BLIND, network.must_show([_row([7.1])])))


@pytest.mark.parametrize("sent", [(97_000, 100_000), (100_000, 97_000)])
def test_a_client_that_sent_too_little_shows_nothing(sent):
    assert _missed(sent=sent) == ["requests of each client, of those that it was to send"]


def test_a_direct_client_without_answers_excuses_no_loss():
    at_each_change = [change["at_s"] + 0.01 for change in _EACH] * 100
    assert _missed(proxied=at_each_change, direct=at_each_change) == ["share of the direct client's requests that were lost"]


class _Host:
    """Prints the MTU of hr0."""

    def __init__(self, mtu: int):
        self.stdout = f'[{{"ifname": "hr0", "mtu": {mtu}}}]'

    def run(self, _argv) -> "_Host":
        return self


def _machine(mtu: int = 1500) -> network.Machine:
    machine = network.Machine.__new__(network.Machine)
    machine.host, machine.up, machine.routed_by = _Host(mtu), {"eth0": True, "eth1": True}, None
    machine.mtu, machine.addresses = {"eth0": 1500, "eth1": 1500}, {"eth0": "10.77.0.1", "eth1": "10.77.0.2"}
    return machine


def _status(*problems: str) -> dict:
    return {"services": [{"source": "10.77.0.1", "backends": [{"uplink": "eth0"}]}], "problems": list(problems)}


def test_problems_that_a_change_explains_are_no_wrong_status_and_others_are():
    assert _machine().wrong(_status("backend_suspect: a", "backend_down: b")) == ""
    assert _machine().wrong(_status("backend_unreachable: no route to a")) != ""
    assert _machine().wrong(_status("service_down: dns")) != ""


def test_another_mtu_of_the_proxys_interface_is_wrong():
    assert _machine(mtu=1400).wrong(_status()) == "MTU 1400 of hr0 instead of 1500"


def test_a_status_that_never_comes_is_wrong():
    def silent() -> dict:
        raise RuntimeError("no answer")

    assert network.wait_until_right(_machine(), silent, 0.0)[1] == "no status"


def test_a_change_counts_as_the_kind_that_was_performed():
    machine = _machine()
    machine.up["eth0"] = False
    machine.uplink_again = lambda: "eth0 comes up"
    assert machine.change("route") == ("uplink_again", "eth0 comes up")


class _Ended:
    returncode = 1

    def poll(self) -> int:
        return self.returncode


def test_a_load_that_ends_before_the_changes_do_is_an_error(monkeypatch):
    monkeypatch.setattr(network, "_REST_S", 0.0)
    machine = _machine()
    machine.rng = random.Random(1)
    machine.change = lambda kind: (kind, "nothing")
    machine.kernel_agrees = lambda: True
    with pytest.raises(RuntimeError, match="before change 1 was over"):
        network._changes(machine, network.EXPERIMENT.parse(["--changes=2"]), _status, {"direct": _Ended()})


def test_a_run_is_bounded_and_its_seed_is_known():
    with pytest.raises(SystemExit):
        network.EXPERIMENT.parse(["--changes=1001"])
    assert network.EXPERIMENT.parse(["--quick"]).quiet_wait == 0 and network.EXPERIMENT.parse([]).seed is not None
    assert network.EXPERIMENT.parse(["--seed=5"]).seed == 5
