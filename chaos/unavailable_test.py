# SPDX-License-Identifier: Apache-2.0
"""The figures of an experiment, from histories made by hand. Times in milliseconds."""

import pytest

from chaos.unavailable import Event, Request, costs, read_history

MS = 1_000_000
TIMEOUT = 5000 * MS


def request(intended: float, wait: float, ok: bool = True, write: bool = True) -> Request:
    return Request(int(intended * MS), int((intended + wait) * MS), ok, write)


def steady(begin: int, end: int, wait: float = 1.0) -> list[Request]:
    return [request(at, wait) for at in range(begin, end, 10)]


def cost(requests, begin: float, end: float):
    (found,) = costs(sorted(requests, key=lambda r: r.intended_ns), [Event(int(begin * MS), int(end * MS))], TIMEOUT)
    return found


def test_a_fault_that_nobody_notices_costs_an_ordinary_wait():
    found = cost(steady(0, 10_000), 2000, 4000)
    assert found.unavailable_ms == pytest.approx(1)
    assert found.outage_ms == pytest.approx(10)
    assert found.failed == 0 and found.requests == 310  # from 0.1 s before the fault until 1 s after its end


def test_the_longest_wait_around_the_fault_counts_and_no_other():
    requests = steady(0, 10_000) + [request(1000, 900), request(2003, 80), request(2500, 30), request(8000, 700)]
    assert cost(requests, 2000, 4000).unavailable_ms == pytest.approx(80)


def test_a_request_from_just_before_the_fault_counts():
    assert cost([*steady(0, 10_000), request(1995, 60)], 2000, 4000).unavailable_ms == pytest.approx(60)


def test_what_got_no_answer_or_an_error_has_waited_its_whole_time_out():
    for failed in (request(2100, 5000, ok=False), request(2100, 3, ok=False)):
        found = cost([*steady(0, 10_000), failed], 2000, 4000)
        assert found.unavailable_ms == pytest.approx(5000)
        assert found.failed == 1
        assert found.outage_ms == pytest.approx(10), "others were served all the time"


def test_an_outage_is_the_longest_time_without_an_acknowledged_write():
    requests = [*steady(0, 2000), *steady(2300, 10_000), *[request(at, 1, write=False) for at in range(2000, 2300, 10)]]
    assert cost(requests, 2000, 4000).outage_ms == pytest.approx(310)


def test_the_next_answer_is_to_one_who_asked_after_the_fault():
    requests = [*steady(0, 2000), request(1999, 4), request(2001, 3, ok=False), request(2002, 17), *steady(2010, 10_000, 30)]
    assert cost(requests, 2000, 4000).next_answer_ms == pytest.approx(19)
    assert cost(steady(0, 2000), 2000, 4000).next_answer_ms == pytest.approx(5000), "no request was answered"


def test_the_calm_before_the_fault_is_told_apart():
    requests = [*steady(0, 10_000), request(999, 700), request(1500, 12), request(1901, 50)]
    found = cost(requests, 2000, 4000)
    assert (found.calm_ms, found.unavailable_ms) == (pytest.approx(12), pytest.approx(50))


def test_an_outage_to_the_end_is_counted_to_the_end_of_the_window():
    requests = [*steady(0, 2000), *[request(at, 5000, ok=False) for at in range(2000, 5000, 10)]]
    assert cost(requests, 2000, 4000).outage_ms == pytest.approx(5000 - 1991)


def test_events_do_not_take_each_others_requests():
    requests = [*steady(0, 10_000), request(2900, 77)]
    first, second = costs(sorted(requests, key=lambda r: r.intended_ns),
                          [Event(2000 * MS, 2500 * MS), Event(2950 * MS, 3500 * MS)], TIMEOUT)
    assert (first.unavailable_ms, second.unavailable_ms) == (pytest.approx(1), pytest.approx(77))


def test_the_profile_has_the_longest_wait_of_each_slot():
    found = cost([*steady(0, 10_000), request(2005, 50)], 2000, 2020)
    assert found.profile_ms[:7] == pytest.approx([1, 1, 1, 1, 1, 50, 1])


def test_an_event_without_requests_is_an_error():
    with pytest.raises(ValueError, match="event 1"):
        costs([], [Event(0, 1)], TIMEOUT)


def test_a_history_is_read_in_the_order_of_its_plan(tmp_path):
    file = tmp_path / "history.csv"
    file.write_text("client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts\n"
                    "0,g,1,0,200,201,300,timed_out,1\n1,i,2,7,100,101,250,ok,2\n", encoding="ascii")
    assert read_history(file) == [Request(100, 250, True, True), Request(200, 300, False, False)]
