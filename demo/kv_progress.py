# SPDX-License-Identifier: Apache-2.0
"""What the demo says while a cluster loses its leaders: each thing that happens as a line that stays, and below them
how the clients are doing at this moment. Ticks come from the load's reader thread, everything else from the runner.
"""

import time

from demo.terminal import Live

_PLAIN_EVERY = 10  # ticks, of which there are four a second


class Progress:
    def __init__(self) -> None:
        self._screen = Live(_PLAIN_EVERY)
        self._start_ns = 0
        self._leader = ""
        self._state = ""
        self._longest_ms = 0.0
        self._waiting_ms = 0.0

    def preparing(self, what: str) -> None:
        self._screen.live(f"           {what}")

    def begin(self, start_ns: int, leader: str) -> None:
        self._start_ns = start_ns
        self._happened("the clients begin")
        self.leads(leader)

    def leads(self, server: str) -> None:
        """Without a time: who leads is asked some time after the election."""
        if server != self._leader:
            self._screen.stay(f"           server {server} leads{' now' if self._leader else ''}")
        self._leader, self._state = server, f"{server} leads"

    def killed(self, number: int, server: str, at_ns: int) -> None:
        self._state = f"{server} killed"
        self._happened(f"KILL {number}: server {server}, the leader, is killed (SIGKILL)", at_ns)

    def started_again(self, server: str) -> None:
        self._happened(f"server {server} is started again")

    def survived(self) -> None:
        self._happened(f"longest wait so far: {_ms(self._longest_ms)}{self._still()}")

    def sent_all(self) -> None:
        self._happened(f"nothing more is asked{'; waiting for what has no answer yet' if self._still() else ''}")

    def judging(self) -> None:
        self._screen.live("           reading every key back from every server, and judging the history")

    def finish(self, row: dict) -> None:
        sound = "every acknowledged write is there, once" if row["sound"] else "THE HISTORY IS UNSOUND"
        self._screen.stay(f"    done   {row['operations']:,} operations, {count(row['client_errors'], 'error')}, "
                          f"longest wait {_ms(row['longest_ms'])}; {sound}\n")

    def on_tick(self, tick: dict) -> None:
        self._waiting_ms = tick["longest_ms"]
        self._longest_ms = max(self._longest_ms, tick["longest_ms"])
        self._screen.live(f"{(tick['at_ns'] - self._start_ns) / 1e9:6.1f} s   {self._state:9} {tick['sent']:6,} asked "
                          f"{tick['failed']:5,} errors  longest wait so far {_ms(self._longest_ms)}")

    def _still(self) -> str:
        """The load reports four times a second, so a wait that is longer now is not over."""
        return " and still waiting" if self._waiting_ms > 500 else ""

    def _start_s(self) -> float:
        return (time.monotonic_ns() - self._start_ns) / 1e9

    def _happened(self, text: str, at_ns: int | None = None) -> None:
        at_s = self._start_s() if at_ns is None else (at_ns - self._start_ns) / 1e9
        self._screen.stay(f"{at_s:6.1f} s   {text}")


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"
