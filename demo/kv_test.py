# SPDX-License-Identifier: Apache-2.0
"""What the demo must show, and what it says meanwhile; no lab is needed."""

import pytest

from demo import kv
from demo.kv_progress import Progress
from demo.terminal import Live

SOUND = {"unavailable_ms": [30.0, 20.0, 40.0], "longest_ms": 40.0, "client_errors": 0, "acked_lost": 0,
         "double_applied": 0, "linearizable": True, "sound": True, "duplicate_answers": 0, "identity_ok": True}


def missed(bare: dict | None = None, hedgerow: dict | None = None) -> list[str]:
    rows = [{**SOUND, "system": "noproxy-noretry", "client_errors": 4000, **(bare or {})},
            {**SOUND, "system": "noproxy-app"}, {**SOUND, "system": "hedgerow", **(hedgerow or {})}]
    return [check.what for check in kv.what_worked(rows) if not check.met]


def test_a_good_run_misses_nothing():
    assert not missed()


@pytest.mark.parametrize("change, what", [
    ({"client_errors": 1}, "failed"), ({"acked_lost": 1}, "lost"), ({"double_applied": 1}, "twice"),
    ({"linearizable": False}, "linearizable"), ({"duplicate_answers": 1}, "second answers"),
    ({"identity_ok": None}, "accounted for"), ({"longest_ms": 1001.0}, "longest wait"),
    ({"unavailable_ms": [30.0, 20.0]}, "kills")])
def test_each_failure_of_hedgerow_is_named(change, what):
    (found,) = missed(hedgerow=change)
    assert what in found


def test_kills_that_hurt_nobody_show_nothing():
    (found,) = missed(bare={"client_errors": 0})
    assert "no proxy" in found


def test_a_store_that_loses_writes_fails_the_demo_whoever_asks():
    (found,) = missed(bare={"sound": False})
    assert "every way" in found


def test_away_from_a_terminal_the_live_line_comes_now_and_then(capsys):
    screen = Live(plain_every=3)
    for number in range(1, 8):
        screen.live(f"live {number}")
    screen.stay("stays")
    assert capsys.readouterr().out.splitlines() == ["live 3", "live 6", "stays"]


def test_a_wait_that_is_not_over_is_said_to_go_on(capsys):
    progress = Progress()
    progress.begin(0, "a")
    progress.on_tick({"at_ns": 5_000_000_000, "sent": 10, "failed": 0, "longest_ms": 2000.0})
    progress.survived()
    progress.on_tick({"at_ns": 5_250_000_000, "sent": 11, "failed": 0, "longest_ms": 0.4})
    progress.survived()
    _, _, waiting, over = capsys.readouterr().out.splitlines()
    assert waiting.endswith("longest wait so far: 2,000 ms and still waiting")
    assert over.endswith("longest wait so far: 2,000 ms")
