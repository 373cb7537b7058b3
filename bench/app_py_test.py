# SPDX-License-Identifier: Apache-2.0
"""The Python client's deadlines are absolute, and it counts what hr-load counts."""

import contextlib
import socket
import threading
import time

import pytest

from bench import app_py


@contextlib.contextmanager
def _server(handle):
    """A UDP server on the loopback interface; `handle(sock, datagram, peer)` is called for each datagram."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(0.02)
    end = threading.Event()

    def serve():
        while not end.is_set():
            with contextlib.suppress(TimeoutError):
                handle(sock, *sock.recvfrom(2048))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield "127.0.0.1:{}".format(sock.getsockname()[1])
    finally:
        end.set()
        thread.join()
        sock.close()


def _echo(sock, datagram, peer):
    sock.sendto(datagram, peer)


def _silence(_sock, _datagram, _peer):
    pass


def _run(*flags):
    client = app_py.Client(app_py.parse_flags(["--warmup=0", "--linger=30ms", *flags]))
    client.run()
    return client.report()["summary"]


def test_closed_loop_answers_everything():
    with _server(_echo) as target:
        summary = _run(f"--target={target}", "--requests=50")
    assert (summary["n"], summary["lost"], summary["duplicates"], summary["wrong"]) == (50, 0, 0, 0)
    assert summary["cpu_us_per_request"] > 0


def test_open_loop_keeps_its_times():
    with _server(_echo) as target:
        summary = _run(f"--target={target}", "--loop=open", "--rate=1000", "--requests=200")
    assert summary["lost"] == 0
    assert summary["wall_s"] > 0.15


def test_silence_is_lost_at_the_deadline():
    with _server(_silence) as target:
        summary = _run(f"--target={target}", "--requests=3", "--timeout=50ms")
    assert (summary["lost"], summary["timeouts"]) == (3, 3)
    assert summary["max_ms"] >= 50


def test_the_other_replica_answers_after_the_delay():
    with _server(_silence) as target, _server(_echo) as other:
        summary = _run(f"--target={target}", f"--hedge_target={other}", "--requests=10", "--hedge_delay=5ms")
    assert (summary["lost"], summary["hedges"]) == (0, 10)
    assert summary["p50_ms"] >= 5


def test_stray_datagrams_do_not_postpone_the_hedge():
    def chatter(sock, _datagram, peer):
        for _ in range(200):
            sock.sendto(b"stray!", peer)
            time.sleep(0.001)

    with _server(chatter) as target, _server(_echo) as other:
        summary = _run(f"--target={target}", f"--hedge_target={other}", "--requests=10", "--hedge_delay=10ms")
    assert (summary["lost"], summary["hedges"]) == (0, 10)
    assert summary["p50_ms"] < 150, "a restarted timer would wait until the chatter ends, and 10 ms more"


def test_second_answers_are_duplicates_without_a_hedge():
    def twice(sock, datagram, peer):
        sock.sendto(datagram, peer)
        sock.sendto(datagram, peer)

    with _server(twice) as target:
        assert _run(f"--target={target}", "--requests=20")["duplicates"] == 20


def test_dns_answers_are_checked():
    workload = app_py.DnsWorkload(["www.example.test"])
    query = workload.encode(0)
    answer = query[:2] + b"\x81\x80" + query[4:6] + b"\0\1" + query[8:]
    assert workload.decode(answer, 1) == 0
    assert workload.decode(query, 1) is None
    assert workload.decode(answer[:3] + b"\x82" + answer[4:], 1) is None, "SERVFAIL"
    assert workload.decode(answer, 0) is None, "nothing was asked yet"


@pytest.mark.parametrize("flags", [["--target=x"], ["--target=127.0.0.1:1", "--requests=0"],
                                   ["--target=127.0.0.1:1", "--workload=dns"],
                                   ["--target=127.0.0.1:1", "--pause=3"]])
def test_bad_flags_are_refused(flags):
    with pytest.raises(SystemExit):
        app_py.parse_flags(flags)
