# SPDX-License-Identifier: Apache-2.0
"""Programs that draw on a terminal (operate/each_second.h): what they drew, and the terminal afterwards."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence

ENTER, LEAVE = "\033[?1049h", "\033[?1049l"


class Screen:
    """A terminal with a program in it, which `popen` starts."""

    def __init__(self, argv: Sequence[str | os.PathLike], columns: int, rows: int, popen=subprocess.Popen, **environment: str):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows, None)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        self.process = popen(argv, stdin=self.slave, stdout=self.slave, stderr=self.slave,
                             env={"TERM": "xterm", "NO_COLOR": "", **environment})

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_exc) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns: int, rows: int, process: subprocess.Popen | None) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if process is not None:
            process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self) -> str:
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536).decode()
        return self.text

    def frame(self) -> list[str]:
        """The last frame that was drawn to its end, without colours."""
        frames = self.read().split("\033[H")[1:]
        whole = [frame for frame in frames if "\033[J" in frame]
        if not whole:
            return []
        text = whole[-1].split("\033[J")[0]
        return [line.rstrip("\r") for line in re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", text).split("\n")]

    def settings(self) -> list:
        return termios.tcgetattr(self.slave)
