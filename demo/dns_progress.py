# SPDX-License-Identifier: Apache-2.0
"""The DNS demo's progress: one line per mode that updates itself on a terminal, plain lines now and then elsewhere."""

from bench.dns_rig import Staller
from demo.terminal import Live

_BAR = 10  # All of a line fits 80 columns.
_PLAIN_EVERY = 5  # seconds


class ProgressLine:
    def __init__(self, label: str, seconds: float):
        self._label, self._seconds = label, seconds
        self._screen = Live(_PLAIN_EVERY)
        self._ticks = 0
        self._screen.live(f"{label:15} starting")

    def on_tick(self, event: dict, staller: Staller) -> None:
        if event["event"] != "tick" or event["sent"] >= event["total"]:
            return
        self._ticks += 1
        share = event["sent"] / event["total"]
        bar = "#" * round(share * _BAR)
        state = "a STOPPED" if staller.stopped else "a runs   "
        self._screen.live(f"{self._label:15} [{bar:{_BAR}}] {self._ticks:2d} s  {state}  p50 {event['p50_ms']:5.1f}  "
                          f"slowest {event['max_ms']:6.1f} ms")

    def finish(self, row: dict) -> None:
        self._screen.stay(f"{self._label:15} done: p99 {row['p99_ms']:7.1f} ms, slowest {row['max_ms']:7.1f} ms, "
                          f"{row['lost']} lost")
