# SPDX-License-Identifier: Apache-2.0
"""`hedgerow top`: rates as they are, on a terminal and into a pipe, and a terminal as it was at every end."""

import contextlib
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from harness.dns import UdpClient
from harness.product import BIN, DNS4, VIP4, wait_until
from harness.screen import ENTER, LEAVE, Screen

RATE = 200


@contextlib.contextmanager
def load(host) -> Iterator[None]:
    """RATE requests a second."""
    stop = threading.Event()

    def ask() -> None:
        with UdpClient(host, VIP4) as client:
            due, number = time.monotonic(), 0
            while not stop.is_set():
                client.ask(number % 65536, "n1.example.test")
                due, number = due + 1 / RATE, number + 1
                time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def hedgerow_top(product, columns: int, rows: int, *words: str, **environment: str) -> Screen:
    return Screen([BIN / "hedgerow", "top", *words, "--socket", product.socket], columns, rows, product.lab.client.popen, **environment)


def requests_in(frame: list[str]) -> float:
    found = [re.search(r"requests +([\d.]+)/s", line) for line in frame]
    return max((float(match.group(1)) for match in found if match), default=0.0)


def test_rates_percentiles_and_program_times_are_those_of_the_last_second(lab, servers, proxy):
    with load(lab.client):
        time.sleep(0.5)
        report = json.loads(proxy.admin("top", "--once", "--json").stdout)
        others = json.loads(proxy.admin("top", DNS4, "--once", "--json", "--no-program-times").stdout)
    service = next(each for each in report["services"] if each["name"] == DNS4)
    assert 0.7 * RATE < service["requests_per_s"] < 1.3 * RATE
    assert 0 < service["p50_ns"] <= service["p99_ns"] < 10**9
    assert service["leader"] == "a" and service["budget"] == 0.05 and len(service["backends"]) == 2
    leader = next(each for each in service["backends"] if each["name"] == "a")
    assert leader["role"] == "leader" and 0.7 * RATE < leader["sent_per_s"] < 1.3 * RATE and leader["p50_ns"] > 0
    splitter = next(each for each in report["programs"] if each["name"] == "hr_splitter")
    # Of each request twice: as it enters hr0, and as it leaves by the uplink, where clients that are bound to it are looked for.
    assert 1.4 * RATE < splitter["runs_per_s"] < 3 * RATE and 50 < splitter["ns_per_run"] < 1e6
    assert 0 < splitter["cpu_share"] < 1 and report["programs_unknown"] == ""
    assert [each["name"] for each in others["services"]] == [DNS4]
    if others["programs_unknown"]:  # unless the machine counts anyway
        assert "no-program-times" in others["programs_unknown"]


def test_into_a_pipe_it_prints_a_snapshot_a_second(lab, servers, proxy):
    log, title = lab.client.scratch("top") / "piped", f"hedgerow {proxy.instance}"

    def snapshots() -> int:
        return log.read_text(encoding="utf-8").count(title)

    child = lab.client.popen([BIN / "hedgerow", "top", "--socket", proxy.socket], log=log, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: snapshots() == 1, timeout_s=10, what="the first snapshot")
        first = time.monotonic()
        wait_until(lambda: snapshots() == 3, timeout_s=10, what="the third snapshot")
        assert 1.5 < time.monotonic() - first
    finally:
        assert lab.client.stop(child, signal.SIGTERM) == 0
    text = log.read_text(encoding="utf-8")
    assert "\033" not in text and all(len(line) <= 80 for line in text.splitlines())
    for word in (DNS4, "p99", "backend", "splitter", "ns/run"):
        assert word in text


def test_on_a_terminal_of_80_columns_everything_fits_and_moves(lab, servers, proxy):
    with hedgerow_top(proxy, 80, 50) as screen, load(lab.client):
        wait_until(lambda: requests_in(screen.frame()) > 0.5 * RATE, timeout_s=10, what="the load on the screen")
        frame = screen.frame()
        assert all(len(line) <= 80 for line in frame) and len(frame) <= 50
        text = "\n".join(frame)
        for word in (DNS4, "leader a", "of 5.00% allowed", "hedged", "unanswered", "splitter", "q ends"):
            assert word in text, text
        assert "\033[1m" in screen.read(), "titles are bold"
        screen.press("q")
        wait_until(lambda: screen.process.poll() is not None, what="the end")
        assert screen.process.returncode == 0
        assert screen.read().rstrip().endswith(LEAVE) and screen.settings() == screen.before


def test_a_wide_terminal_shows_the_programs_beside(lab, servers, proxy):
    with hedgerow_top(proxy, 160, 50) as screen:
        wait_until(lambda: any("ns/run" in line for line in screen.frame()), timeout_s=10, what="a frame")
        line = next(line for line in screen.frame() if "ns/run" in line)
        assert line.index("program") > 80
        screen.resize(80, 12, screen.process)
        wait_until(lambda: len(screen.frame()) == 12 and "more lines below" in screen.frame()[-1],
                   what="the smaller screen")
        top = screen.frame()[0]
        screen.press("\033[6~")
        wait_until(lambda: screen.frame()[0] != top, what="the next page")
        assert all(len(each) <= 80 for each in screen.frame())


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT,
                                 signal.SIGSEGV])
def test_the_terminal_is_as_it_was_however_it_ends(proxy, end):
    with hedgerow_top(proxy, 80, 24) as screen:
        wait_until(lambda: ENTER in screen.read() and screen.frame(), what="the screen")
        assert screen.settings() != screen.before, "or this test shows nothing"
        screen.process.send_signal(end)
        wait_until(lambda: screen.process.poll() is not None, what="the end")
        assert LEAVE in screen.read() and "\033[?25h" in screen.text.split(ENTER)[1]
        assert screen.settings() == screen.before


def test_stopped_by_ctrl_z_it_gives_the_terminal_back_and_takes_it_again(proxy):
    with hedgerow_top(proxy, 80, 24) as screen:
        wait_until(lambda: screen.frame(), what="the screen")
        screen.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: LEAVE in screen.read(), what="the stop")
        assert screen.settings() == screen.before
        screen.process.send_signal(signal.SIGCONT)
        wait_until(lambda: screen.read().count(ENTER) == 2 and screen.frame(), what="its return")
        assert screen.settings() != screen.before


def test_without_colours_there_are_none(proxy):
    with hedgerow_top(proxy, 80, 24, NO_COLOR="1") as screen:
        wait_until(lambda: any(DNS4 in line for line in screen.frame()), timeout_s=10, what="a frame")
        assert not re.search(r"\033\[[0-9;]*m", screen.read())


@pytest.mark.own
def test_a_daemon_that_went_away_is_said_and_the_old_figures_are_called_old(lab, servers, product):
    product.up()
    with hedgerow_top(product, 80, 50) as screen:
        wait_until(lambda: any(DNS4 in line for line in screen.frame()), timeout_s=10, what="a frame")
        product.down()
        wait_until(lambda: "NO ANSWER" in "\n".join(screen.frame()), timeout_s=10, what="the warning")
        assert any(DNS4 in line for line in screen.frame())
    product.check_nothing_left()


def test_without_a_daemon_or_for_an_unknown_service_it_fails_at_once(proxy):
    assert proxy.run("top", "--once", "--socket", proxy.folder / "nobody.sock").returncode == 3
    done = proxy.admin("top", "nosuch", "--once", check=False)
    assert done.returncode == 1 and "nosuch" in done.stderr
