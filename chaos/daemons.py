# SPDX-License-Identifier: Apache-2.0
"""The proxy's daemons, one after the other: the kernel part of an instance lives on when its daemon ends, and the next one takes it
over. Used by `./dev chaos upgrade` and by the fault `daemon-kill`.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from bench import product
from bench.manifest import binary
from deploy.lab import Host
from deploy.lab.waiting import until

BUILDS = ("hedgerowd", "hedgerowd-next")  # the second is another build of the kernel programs
_SERVES_WITHIN_S = 20.0
_ENDS_WITHIN_S = 10.0


class Daemons:
    """Of one instance."""

    def __init__(self, proxy: product.Product, host: Host):
        self.proxy, self.host, self.build = proxy, host, 0
        self.log = proxy.file.with_name("hedgerowd.log")
        self._child: subprocess.Popen | None = None

    def pid(self) -> int:
        return int(self.proxy.status()["pid"])

    def end(self, how: signal.Signals, amid: contextlib.AbstractContextManager = contextlib.nullcontext()) -> None:
        """Returns when it has ended; `amid` is what it is in the midst of."""
        pid = self.pid()
        with amid:
            os.kill(pid, how)
            self._wait_until_it_ended(pid, how)

    def take_over(self, other_build: bool = False) -> dict:
        """The next one; its status when it serves."""
        self.build = 1 - self.build if other_build else self.build
        self._child = self.host.popen([binary(BUILDS[self.build]), "--config", self.proxy.file], log=self.log)
        return self._wait_until_it_serves()

    def succeed(self, name: str, how: signal.Signals, other_build: bool,
                amid: contextlib.AbstractContextManager = contextlib.nullcontext()) -> dict:
        """One daemon ends, another takes over. What it says of that."""
        begun = time.monotonic()
        self.end(how, amid)
        absent_from = time.monotonic()
        status = self.take_over(other_build)
        ended = time.monotonic()
        return {"event": name, "build": BUILDS[self.build], "took_s": round(ended - begun, 3),
                "without_daemon_s": round(ended - absent_from, 3), **status["adoption"]}

    def _wait_until_it_ended(self, pid: int, how: signal.Signals) -> None:
        if self._child is not None:
            self._child.wait(_ENDS_WITHIN_S)
            return
        until(lambda: not running(pid), _ENDS_WITHIN_S, lambda: f"the daemon {pid} does not end after {how.name}", 0.005)

    def _wait_until_it_serves(self) -> dict:
        """Reads its log until then: a command that asks again and again takes processor time beside the start."""
        until(lambda: f" as pid {self._child.pid}\n" in self.log.read_text(errors="replace"), _SERVES_WITHIN_S,
              lambda: f"no daemon took over:\n{self.log.read_text(errors='replace')[-2000:]}", 0.005, hopeless=lambda: self._child.poll() is not None)
        return self.proxy.status()


def running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return False
