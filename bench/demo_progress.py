# SPDX-License-Identifier: Apache-2.0
"""The demo's progress: one line per mode that updates itself on a terminal, plain lines every few seconds elsewhere."""

import shutil
import sys

from bench.dns_rig import Staller

_BAR = 10  # All of a line fits 80 columns.
_PLAIN_EVERY = 5  # seconds


class ProgressLine:
    def __init__(self, label: str, seconds: float):
        self._label, self._seconds = label, seconds
        self._terminal = sys.stdout.isatty()
        self._ticks = 0
        self._worst_ms = 0.0
        self._show(f"{label:15} starting")

    def on_tick(self, event: dict, staller: Staller) -> None:
        self._worst_ms = max(self._worst_ms, event["max_ms"])
        if event["event"] != "tick" or event["sent"] >= event["total"]:
            return
        self._ticks += 1
        share = event["sent"] / event["total"]
        bar = "#" * round(share * _BAR)
        state = "a STOPPED" if staller.stopped else "a runs   "
        text = (f"{self._label:15} [{bar:{_BAR}}] {self._ticks:2d} s  {state}  p50 {event['p50_ms']:5.1f}  slowest "
                f"{event['max_ms']:6.1f} ms")
        if self._terminal or self._ticks % _PLAIN_EVERY == 0:
            self._show(text)

    def finish(self, row: dict) -> None:
        self._show(f"{self._label:15} done: p99 {row['p99_ms']:7.1f} ms, slowest {row['max_ms']:7.1f} ms, "
                   f"{row['lost']} lost")
        if self._terminal:
            print(flush=True)

    def _show(self, text: str) -> None:
        if not self._terminal:
            print(text, flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        # Cut to the terminal: a wrapped line cannot be overwritten.
        print(f"\r{text[:width]:{width}}", end="", flush=True)
