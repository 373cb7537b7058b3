# SPDX-License-Identifier: Apache-2.0
"""Shares of `bench parking` are of the measured part of a client, and its counts of one trial."""

import pytest

from bench import bpf_stats, cpu_time, parking
from bench.client_run import ClientRun
from bench.histogram import Histogram


class _Proxy:
    """Of a service that has passed 5,000 requests through before the trial, and passes three in it."""

    laps, passed = 100_000, 5_000

    def status(self) -> dict:
        return {"pid": 1, "clock": {"laps": self.laps}, "services": [{"name": "raw", "identity_ok": True, "passed_through": self.passed}]}

    status_at_rest = status


class _Rig:
    """A client that takes two seconds, of which one is measured; the clock laps once in a millisecond, in 10 us."""

    def __init__(self, proxy: _Proxy):
        self._proxy = proxy

    def client(self, _mode, _rate, _seconds, on_event=lambda _event: None) -> ClientRun:
        for name, laps in (("measuring", 700), ("measured", 1000), ("end", 300)):
            self._proxy.laps += laps
            on_event({"event": name})
        self._proxy.passed += 3
        summary = {"n": 1000, "lost": 0, "send_lag_p99_us": 1.0, "rate_per_second": 1000.0, "p50_ms": 0.1, "p99_ms": 0.2}
        return ClientRun({"summary": summary}, cpu_time.Spent(1_000_000, 0, 0, 0, 0, 0, 0.0), [])


def test_laps_and_program_time_are_shares_of_the_measured_second(monkeypatch):
    proxy = _Proxy()
    monkeypatch.setattr(bpf_stats, "programs_of", lambda _pid: {"hr_clock": {"runs": proxy.laps, "ns": proxy.laps * 10_000}})
    found = parking.measure_at(_Rig(proxy), proxy, "wheel", 1000, 1.0)
    assert (found["laps"], found["laps_per_second"]) == (1000, 1000)
    assert found["clock_program_share"] == pytest.approx(0.01)
    assert found["passed_through"] == 3


def test_a_row_adds_up_what_its_trials_counted():
    run = {"rate": 1000, "n": 10, "lost": 0, "programs": {}, "passed_through": 3, "delay_line_full": 0, "idle_copies": 0,
           "client": {"histograms": {"latency": Histogram().to_json()}},
           **dict.fromkeys(("laps_per_second", "cpu_us_per_request", "core_share", "kernel_core_share", "clock_program_share"), 1.0)}
    row = parking.row_of("wheel", "1000", [run, run], "h")
    assert row["passed_through"] == 6
    assert "at all rates: requests of wheel that were not tracked" in [check.what for check in parking.must_show([row]) if not check.met]
