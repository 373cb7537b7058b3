# SPDX-License-Identifier: Apache-2.0
"""Where a store's processor time goes: shares of the kernel's network stack, of scheduling and of the offloads' programs, from
hr-cpu-profile's samples of all CPUs. Called by bench/offload.py.

A store's samples are those of its nodes' processes and of the kernel on nobody's behalf (soft interrupts, whomever they
interrupted, and the idle task when it is not idle). The load's own process is left out, and so are strangers; what they
send or wake, the kernel does in soft interrupts, and that is in.
"""

import json
import subprocess
from collections.abc import Collection

from bench.manifest import binary

KINDS = ("user", "stack", "switch", "offload", "other")  # and "idle", which is no work


def start(seconds: float) -> subprocess.Popen:
    """Samples from now on; `finish` takes what it says."""
    return subprocess.Popen([binary("hr-cpu-profile"), f"--seconds={seconds:g}s"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen) -> dict:
    try:
        out, errors = child.communicate(timeout=60)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode != 0:
        raise RuntimeError(f"hr-cpu-profile: exit {child.returncode}: {errors}")
    return json.loads(out)


def shares(profile: dict, nodes: Collection[int]) -> dict:
    """`{"stack": 0.4, ...}` of the store's samples; every share None when there is no sample."""
    counts = dict.fromkeys(KINDS, 0)
    for pid, found in profile["processes"].items():
        for kind in KINDS:
            counts[kind] += found["soft_irq"][kind]
            if int(pid) in nodes or pid == "0":
                counts[kind] += found["task"][kind]
    total = sum(counts.values())
    return {kind: counts[kind] / total if total else None for kind in KINDS}
