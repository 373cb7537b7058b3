# SPDX-License-Identifier: Apache-2.0
"""A processor for the client and one for the server of a run, where the machine has two: the scheduler moving them about is
not what is measured. Called by the experiments that compare rates or processor time, and by the floods of chaos/.
"""

import contextlib
import os
from pathlib import Path

CLIENT_CPU, SERVER_CPU = 0, 1
_HURRIED_NICE = -15


def on_cpu(argv: list[str], cpu: int) -> list[str]:
    """The command that runs there."""
    return ["taskset", "-c", str(cpu), *argv] if _several() else argv


def pin(pid: int, cpu: int) -> None:
    if _several():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, {cpu})


def hurry(pid: int) -> None:
    """Ahead of everything else here, as what comes from another machine would be. A nice value means something within one
    session only where the kernel groups them (autogroup, sched(7)): the session's is set as well."""
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, _HURRIED_NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_HURRIED_NICE), encoding="ascii")


def client_and_server() -> dict | None:
    """For the manifest; None where nothing was pinned."""
    return {"client_cpu": CLIENT_CPU, "server_cpu": SERVER_CPU} if _several() else None


def _several() -> bool:
    return (os.cpu_count() or 1) > 1
