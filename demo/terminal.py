# SPDX-License-Identifier: Apache-2.0
"""How the demos talk while they run: lines that stay, and below them one that is rewritten on a terminal. Without a
terminal (a file, a pipe) the latter is printed now and then. Any thread.
"""

import shutil
import sys
import threading


class Live:
    def __init__(self, plain_every: int):
        """Away from a terminal, one of `plain_every` updates of the live line is printed."""
        self._plain_every = plain_every
        self._terminal = sys.stdout.isatty()
        self._updates = 0
        self._lock = threading.Lock()

    def stay(self, text: str) -> None:
        with self._lock:
            self._clear()
            print(text, flush=True)

    def live(self, text: str) -> None:
        with self._lock:
            if self._terminal:
                width = self._width()
                # Cut to the terminal: a wrapped line cannot be overwritten.
                print(f"\r{text[:width]:{width}}", end="", flush=True)
                return
            self._updates += 1
            if self._updates % self._plain_every == 0:
                print(text, flush=True)

    def _clear(self) -> None:
        if self._terminal:
            print(f"\r{'':{self._width()}}\r", end="")

    @staticmethod
    def _width() -> int:
        return shutil.get_terminal_size().columns - 1
