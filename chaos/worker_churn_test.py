# SPDX-License-Identifier: Apache-2.0
"""One lost message or one source that met two workers is too many, whosever it was; what happened outside of events is undisturbed."""

import random

import pytest

from bench.outcome import planted_is_found
from bench.steer_records import Record, read
from chaos import worker_churn
from chaos.worker_churn import Event, Scenario

_S = 1_000_000_000
_SCENARIO = Scenario.load()
_KINDS = list(_SCENARIO.kinds)
_EVENTS = [Event(_KINDS[number % len(_KINDS)], number % 4, (2 + 2 * number) * _S, (3 + 2 * number) * _S, True) for number in range(100)]
_SUMMARY = {"sent": 100_000, "connect_failures": 0, "udp_refused": 0, "connections_lost": 30, "overflowed": 0, "unsent": 0, "duplicates": 1}


def _records(*more: Record, slow_us: int = 100) -> list[Record]:
    """Each source once, and then seven of them in every 250 ms; a source's worker is its number modulo 4."""
    usual = [Record(_S, 100, source, 1, source % 4, False, 0) for source in range(_SCENARIO.sources)]
    for at in range(4, 820):
        in_event = at > 8 and at * _S // 4 % (2 * _S) < _S
        usual += [Record(at * _S // 4, slow_us if in_event else 100, source, 1, source % 4, False, 0) for source in range(at % 9, 256, 37)]
    return usual + list(more)


def _row(*more: Record, events=_EVENTS, behind="nothing", slow_us: int = 100, **summary) -> dict:
    done = worker_churn.Churned(_records(*more, slow_us=slow_us), events, _S, _SUMMARY | summary, 50)
    row = worker_churn.row_of(behind, _SCENARIO, done, 7)
    return row | {"suspected_beyond": 0, "hedges": 5}


def _missed(row: dict) -> list[str]:
    return [check.what.partition(": ")[2] for check in worker_churn.must_show([row]) if not check.met]


def test_a_hundred_events_without_a_trace_show_what_they_must():
    assert _missed(_row()) == []
    assert _missed(_row(behind="vip")) == []


@pytest.mark.parametrize("record, missed", [
    (Record(int(2.5 * _S), None, 1, 0, 255, False, 0), "messages lost, sources of other workers"),
    (Record(int(2.5 * _S), None, 0, 0, 255, False, 0), "messages lost, the worker's own sources"),
    (Record(int(3.5 * _S), None, 0, 0, 255, True, 0), "messages lost between events, or not sent"),
    (Record(int(3.5 * _S), 90, 1, 1, 2, True, 0), "sources that met a second worker")])
def test_one_message_is_too_many(record, missed):
    assert _missed(_row(record)) == [missed]


def test_what_a_killed_supervisor_loses_is_lost_by_others():
    at = next(event for event in _EVENTS if event.kind == "supervisor")
    row = _row(Record(at.begin_ns + _S // 2, None, at.slot, 0, 255, False, 0))
    assert (row["lost_of_others"], row["lost_of_own"]) == (1, 0)


def test_waits_of_other_sources_are_compared_with_the_undisturbed():
    assert _missed(_row(slow_us=111)) == ["p99 of other workers' sources / undisturbed"]
    assert _missed(_row(slow_us=109)) == []


@pytest.mark.parametrize("row, missed", [
    (_row(connect_failures=1), "connections and datagrams refused"), (_row(udp_refused=1), "connections and datagrams refused"),
    (_row(connections_lost=0), "connections that ended with their worker"), (_row(overflowed=1), "messages lost between events, or not sent"),
    (_row(events=_EVENTS[:99]), "events"),
    (_row(events=[*_EVENTS[:-1], Event("kill", 1, 200 * _S, 201 * _S, False)]), "of them, that did what they should"),
    (_row(behind="vip") | {"suspected_beyond": 1}, "times that a backend became suspect in events, beyond the undisturbed times"),
    (_row(behind="vip") | {"hedges": 0}, "hedges, which the events cause")])
def test_each_limit_can_be_missed(row, missed):
    assert missed in _missed(row)


def test_a_planted_mistake_is_found_by_losses_and_second_workers():
    lost, second = Record(int(2.5 * _S), None, 1, 0, 255, False, 0), Record(int(3.5 * _S), 90, 1, 1, 2, True, 0)
    bad = worker_churn.must_show([_row(lost, second)])
    good = worker_churn.must_show([_row()])
    assert all(check.met for check in planted_is_found("plain", bad, 2))
    assert not all(check.met for check in planted_is_found("plain", good, 2))


def test_a_backend_that_stops_as_a_whole_is_found_by_its_suspicion():
    for suspected in (0, 1):
        checks = worker_churn.must_show([_row(behind="vip") | {"suspected_beyond": suspected}])
        assert all(check.met for check in planted_is_found("all-stop", checks, 1)) is bool(suspected)


@pytest.mark.parametrize("in_events, undisturbed, beyond", [(1, 0, 1), (0, 0, 0), (3, 3, 0), (5, 3, 2), (1, 1, 0)])
def test_what_a_busy_machine_does_in_undisturbed_times_is_not_the_events_doing(in_events, undisturbed, beyond):
    done = worker_churn.Churned([], [Event("kill", 0, 0, 10 * _S, True, in_events)], 0, {}, 20.0)
    assert worker_churn.suspicions(done, in_events + undisturbed)["suspected_beyond"] == beyond


@pytest.mark.parametrize("events", [6, 20, 100])
def test_every_kind_is_drawn_and_a_seed_draws_the_same(events):
    drawn = _SCENARIO.drawn(events, random.Random(3))
    assert len(drawn) == events and drawn == _SCENARIO.drawn(events, random.Random(3)) != _SCENARIO.drawn(events, random.Random(4))
    assert {kind for kind, _ in drawn} == set(_KINDS) or events < 20
    assert all(hasattr(worker_churn.Disturber, kind.replace("-", "_")) for kind in _KINDS)


def test_records_are_read_as_the_load_writes_them(tmp_path):
    file = tmp_path / "records"
    file.write_bytes(bytes.fromhex("0100000000000000" "05000000" "02000000" "03000000" "0401" "0600"
                                   "0200000000000000" "ffffffff" "02000000" "00000000" "ff00" "0000"
                                   "0300000000000000" "feffffff" "02000000" "00000000" "ff00" "0000"))
    assert read(file) == [Record(1, 5, 2, 3, 4, True, 6), Record(2, None, 2, 0, 255, False, 0)]


def test_a_run_is_bounded_and_its_seed_is_known():
    with pytest.raises(SystemExit):
        worker_churn.EXPERIMENT.parse(["--events=1001"])
    assert worker_churn.EXPERIMENT.parse(["--quick"]).quiet_wait == 0 and worker_churn.EXPERIMENT.parse([]).seed is not None
    assert worker_churn.EXPERIMENT.parse(["--quick"]).events == _SCENARIO.quick
