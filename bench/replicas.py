# SPDX-License-Identifier: Apache-2.0
"""The bench's own servers as programs in lab hosts. Each says "ready" when its socket is open,
stops by itself after a bounded time, and prints its counters as JSON when it is asked to stop. And the busy processes of
runs under stress.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.manifest import binary
from deploy.lab import CommandFailed, Host
from deploy.lab.host import UPLINK

MAX_SECONDS = 1800  # No server outlives the longest run by much, whatever happens to its runner.


class BenchServer:
    """One running program of bench/serve."""

    def __init__(self, host: Host, program: str, flags: Sequence[str], **options):
        self.host, self._options = host, options
        self.argv = [str(binary(program)), *flags]
        self.counters: dict = {}

    def __enter__(self) -> "BenchServer":
        self._child = self.host.popen([*self.argv, f"--seconds={MAX_SECONDS}"], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, ends_with_runner=True, **self._options)
        first_line = self._child.stdout.readline()
        if first_line.strip() != "ready":
            self.host.stop(self._child, signal.SIGKILL)
            raise CommandFailed(f"{' '.join(self.argv)}: {first_line}")
        return self

    def __exit__(self, kind=None, *_exc) -> None:
        died = self._child.poll()
        code = self.host.stop(self._child)
        with self._child.stdout:
            lines = self._child.stdout.read().splitlines()
        # A server that died answered nothing from then on: no figure of its run may stand.
        if kind is None and (died is not None or code != 0):
            raise CommandFailed(f"{' '.join(self.argv)}: {'it ended by itself' if died is not None else 'it was stopped'}, exit {code}\n"
                                + "\n".join(lines[-5:]))
        if lines and lines[-1].startswith("{"):
            self.counters = json.loads(lines[-1])

    @property
    def pid(self) -> int:
        return self._child.pid


@contextlib.contextmanager
def stress(host: Host, per_cpu: int) -> Iterator[list[int]]:
    """`per_cpu` busy processes for every CPU, of ordinary priority; their pids. They share CPUs, not the network."""
    with contextlib.ExitStack() as stack:
        children = [host.popen(busy(MAX_SECONDS), ends_with_runner=True) for _ in range(per_cpu * (os.cpu_count() or 1))]
        for child in children:
            stack.callback(host.stop, child, signal.SIGKILL)
        yield [child.pid for child in children]
        if any(child.poll() is not None for child in children):
            raise CommandFailed("a busy process ended by itself")


def busy(seconds: float) -> list[str]:
    """A process that computes without pause, for so long at most."""
    return [sys.executable, "-c", f"import time\nend = time.monotonic() + {seconds:g}\nwhile time.monotonic() < end:\n pass"]


def packets_received(host: Host) -> int:
    """Packets that came in by the host's uplink so far: how the load on a replica is counted, whatever serves there.
    A handful of neighbour discovery packets among thousands of requests are counted along."""
    with host.entered():
        lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()
    counters = next(line.split(":")[1] for line in lines if line.strip().startswith(f"{UPLINK}:"))
    return int(counters.split()[1])
