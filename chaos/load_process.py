# SPDX-License-Identifier: Apache-2.0
"""One load (hr-kv-chaos) as a process: it has begun when the `with` block begins, and has written its
history when the block ends. Used by the chaos runner, `raft-hedge` and the demo.
"""

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.systems import CLIENT_TIMEOUT_S
from deploy.lab import CommandFailed, Lab


@contextlib.contextmanager
def sending(lab: Lab, argv: list[str], log: Path, *, on_line: Callable[[str], None] | None = None,
            to_its_end_s: float | None = None) -> Iterator[subprocess.Popen]:
    """At the end of the block the load is asked to stop, unless it is to go on to its end, which is so far away at most, and waits for
    what is outstanding. `on_line` gets what it prints meanwhile (--progress), in a thread."""
    with open(log, "wb") as errors:
        child = lab.client.popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True, ends_with_runner=True)
    reader = threading.Thread(target=_read, args=(child, on_line), daemon=True)
    try:
        # Bounded by the program: it ends, and with it its output, when it gets no session within 10 s.
        if child.stdout.readline().strip() != "ready":
            raise CommandFailed(f"{' '.join(argv)} did not begin:\n{log.read_text(errors='replace')}")
        reader.start()
        yield child
        if to_its_end_s is None:
            child.send_signal(signal.SIGTERM)
        if child.wait((to_its_end_s or 0) + CLIENT_TIMEOUT_S + 30) != 0:
            raise CommandFailed(f"{' '.join(argv)}: exit {child.returncode}\n{log.read_text(errors='replace')}")
    finally:
        lab.client.stop(child, signal.SIGKILL)
        if reader.is_alive():
            reader.join()
        child.stdout.close()


def _read(child: subprocess.Popen, on_line: Callable[[str], None] | None) -> None:
    for line in child.stdout:
        if on_line is not None:
            on_line(line)
