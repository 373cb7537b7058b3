# SPDX-License-Identifier: Apache-2.0
"""Limits of `bench steer` compare the right rows, added CPU is paired by round, and a source that met two workers is found."""

import os

import pytest

from bench import steer, steer_rig, steer_systems
from bench.histogram import Histogram
from bench.steer_rig import Counts


def _run(total_us: float = 30.0, **changes) -> dict:
    latency = Histogram()
    latency.record(60_000)
    one = {"machine_us": total_us + 5.0, "n": 100, "latency": latency.to_json(),
           "lost": 0, "unanswered": 0, "failed_connects": 0, "sources_of_two": 0, "sources_met": 512, "p50_us": 60.0, "p99_us": 90.0,
           "total_us": total_us, "user_us": 2.0, "system_us": total_us - 2.0, "workers_us": 9.0, "before_them_us": 0.0, "sources_system_us": 20.0,
           "kernel_us": 1.0, "worst_over_mean": 1.1, "rss_bytes": 10, "workers_rss_bytes": 10, "map_bytes": 0, "program_ns": 200.0,
           "highest_rate": 100_000, "config_hash": "h"}
    for size in steer.BURSTS:
        one |= {f"burst_{size}_failed": 0, f"burst_{size}_ms": 40.0, f"burst_{size}_of_two": 0}
    return one | changes


_TOTALS = {"idle": {"one": 30.0, "reuseport": 31.0, "steer": 32.0, "haproxy": 60.0, "nginx": 58.0},
           "working": {"one": 50.0, "reuseport": 51.0, "steer": 52.0, "haproxy": 80.0, "nginx": 78.0}}


def _round(changes: dict | None = None, system: str = "steer", loads=steer.LOADS) -> dict:
    done = {}
    for load in loads:
        for name, total_us in _TOTALS[load].items():
            cell = steer.Cell(name, "tcp", 4, load)
            done[cell] = _run(**{"total_us": total_us, **(changes or {} if name == system else {})})
    return done


def _missed(rounds: list[dict]) -> list[str]:
    records = [{**run, "system": cell.system, "transport": cell.transport, "workers": cell.workers, "load": cell.load, "round": number}
               for number, done in enumerate(rounds, 1) for cell, run in done.items()]
    return [check.what for check in steer.must_show(steer.rows_of(records)) if not check.met]


def test_what_is_good_enough_is_met():
    assert _missed([_round()] * 10) == []


@pytest.mark.parametrize("rounds, missed", [
    ([_round()] * 9, "runs of each row"),
    ([_round({"total_us": 67.3}, loads=("working",))] * 10, "working, tcp, 4 workers: total CPU / HAProxy's"),
    ([_round({"total_us": 36.1}, loads=("idle",))] * 10, "idle, tcp, 4 workers: CPU added to one socket (a fifth of haproxy's)"),
    ([_round({"total_us": 35.7}, loads=("idle",))] * 10, "idle, tcp, 4 workers: CPU added to one socket (a fifth of nginx's)"),
    ([_round()] * 9 + [_round({"sources_of_two": 1})], "working, tcp, 4 workers: sources that met a second worker"),
    ([_round()] * 9 + [_round({"lost": 1})], "idle, tcp, 4 workers: messages lost or not answered"),
    ([_round()] * 9 + [_round({"unanswered": 1})], "idle, tcp, 4 workers: messages lost or not answered"),
    ([_round()] * 9 + [_round({"failed_connects": 1})], "idle, tcp, 4 workers: failed or lost connections"),
    ([_round()] * 9 + [_round({"burst_10000_failed": 1})], "idle, tcp, 4 workers: failed connects of 10000 at once"),
    ([_round()] * 9 + [_round({"burst_512_of_two": 1})], "idle, tcp, 4 workers: of them, sources that met a second worker"),
])
def test_each_limit_can_be_missed(rounds, missed):
    assert missed in _missed(rounds)


@pytest.mark.parametrize("left_out", ["one", "haproxy", "nginx", "steer"])
def test_a_system_that_was_left_out_meets_no_limit(left_out):
    rounds = [{cell: run for cell, run in _round().items() if cell.system != left_out}] * 10
    assert _missed(rounds) != []


def test_added_cpu_is_paired_by_round():
    def of(one_us: float, ours_us: float) -> dict:
        return {steer.Cell("one", "tcp", 4, "idle"): _run(one_us), steer.Cell("steer", "tcp", 4, "idle"): _run(ours_us)}

    rounds = [of(30, 31), of(60, 61), of(90, 91)]
    assert steer.added_us(rounds, steer.Cell("steer", "tcp", 4, "idle")) == [1, 1, 1]


def test_the_kernels_share_counts_and_the_sources_own_time_does_not():
    cpu = steer.cpu_of({"n": 10, "user_us": 1e9, "system_us": 100}, steer.Used(20, 30), steer.Used(5, 6), kernel_us=40)
    assert cpu["user_us"] == 2.5 and cpu["system_us"] == 17.6 and cpu["total_us"] == 20.1


def test_a_source_that_met_two_workers_is_found_by_either_transport():
    by_slot = [[Counts(3, 0), Counts(0, 0), Counts(1, 1)], [Counts(0, 2), Counts(0, 0), Counts(0, 0)]]
    assert steer_rig.workers_met(by_slot, 3) == [{0, 1}, set(), {0}]
    assert steer_rig.counted(by_slot) == 7
    assert steer_rig.worst_over_mean(by_slot) == 5 * 2 / 7


def test_counts_are_read_as_workers_write_them(tmp_path):
    file = tmp_path / "slot-0.counts"
    file.write_bytes((7).to_bytes(8, "little") + (9).to_bytes(8, "little"))
    assert steer_rig.counts_of(file) == [Counts(7, 9)]
    assert steer_rig.counts_of(tmp_path / "none") == []


@pytest.mark.parametrize("too_much", [{"lost": 1}, {"unanswered": 1}, {"p99_us": 200_000}])
def test_the_highest_rate_is_one_at_which_nothing_is_lost_or_late(monkeypatch, too_much):
    bench = steer.Bench.__new__(steer.Bench)
    bench.arguments = steer.EXPERIMENT.parse([])
    good = {"lost": 0, "unanswered": 0, "p99_us": 500}
    monkeypatch.setattr(bench, "_trial", lambda _cell, rate: {**good, **(too_much if rate > 77_000 else {}), "rate": rate, "achieved_rate": rate})
    assert 74_000 <= bench.highest(steer.Cell("one", "udp", 2, "idle")) <= 77_000


def test_processor_time_is_split_as_the_kernel_does():
    used = steer.used_by([os.getpid()])
    assert used.user > 0 and used.user + used.system == pytest.approx(steer.cpu_time.process_us(os.getpid()), rel=0.2)
    assert steer.used_by([2 ** 22 + 1]) == steer.Used(0.0, 0.0)


class _Host:
    ipv4, ipv6, netns = "10.77.0.11", "fd77::a", "hr-test-a"

    def __init__(self, folder):
        self._folder = folder

    def scratch(self, _name):
        return self._folder


def test_proxies_are_told_what_a_comparison_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(steer_systems, "binary", lambda name: tmp_path / name)
    wanted = steer_systems.Wanted(workers=2, transport="both", sources=4)
    nginx = steer_systems.NginxStream(_Host(tmp_path), wanted).config()
    assert nginx.count("10.77.0.11:2055") == 2 and "10.77.0.11:2055 udp reuseport" in nginx
    assert nginx.count("server 127.0.0.1:") == 2 and "hash $remote_addr consistent" in nginx and "access_log off" in nginx
    haproxy = steer_systems.Haproxy(_Host(tmp_path), wanted).config()
    assert "balance source" in haproxy and "shards by-thread" in haproxy and "  log" not in haproxy and "option tcplog" not in haproxy
    assert "10.77.0.11:2055" in haproxy and haproxy.count("  server w") == 2


def test_haproxy_is_asked_about_tcp_only():
    arguments = steer.EXPERIMENT.parse(["--workers=2"])
    assert {cell.transport for cell in steer.cells(arguments) if cell.system == "haproxy"} == {"tcp"}
    assert len(steer.cells(arguments)) == 13 * 2  # systems and transports, working and idle
    with pytest.raises(SystemExit):
        steer.EXPERIMENT.parse(["--workers=65"])
