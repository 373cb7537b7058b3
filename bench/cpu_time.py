# SPDX-License-Identifier: Apache-2.0
"""CPU time of an experiment between two moments of a run: its processes, and the kernel's work that no process pays.

A hedge in the kernel costs time that no process is charged for: timer and network interrupts on an idle CPU. It is what
is left of the machine's busy time (all CPUs' wall time - idle - iowait - steal; idle time is exact on tickless
kernels) after the running time of all tasks. Experiment = its own processes + that rest. So strangers who compute at
the same time do not count, and the method is one for all modes. What it cannot see: an interrupt on top of another
process, which the kernel charges to that process; under stress, when no CPU is idle, that is most of them.
Readers: bench/client_run.py and the experiments; docs/benchmarks.md says it to users.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4, 7)  # idle, iowait, steal: positions in the `cpu` line of /proc/stat
_CPUS = os.cpu_count() or 1


@dataclasses.dataclass
class Sample:
    """Cumulative times in microseconds."""

    wall_us: int
    not_busy_us: int  # Of all CPUs together.
    all_tasks_us: int
    softirq_us: int
    processes_us: dict[int, int]


@dataclasses.dataclass
class Spent:
    """What was spent between two samples."""

    wall_us: int
    machine_us: int      # Busy time of all CPUs, strangers and stress processes included.
    processes_us: int    # Of that, the processes of the experiment (client, servers, daemon).
    kernel_us: int       # Of that, outside of every process.
    experiment_us: int   # The two together.
    softirq_us: int      # Sampled by the tick; for orientation.
    strangers_share: float  # All other processes, stress processes included, as a share of the machine.

    def as_json(self) -> dict:
        return dataclasses.asdict(self)


def sample(processes: Iterable[int]) -> Sample:
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(text) for text in file.readline().split()[1:]]
    return Sample(wall_us=time.monotonic_ns() // 1000,
                  not_busy_us=sum(fields[i] for i in _IDLE_FIELDS) * _TICK_US,
                  all_tasks_us=all_tasks_us(),
                  softirq_us=(fields[5] + fields[6]) * _TICK_US,
                  processes_us={pid: process_us(pid) for pid in processes})


def spent(before: Sample, after: Sample) -> Spent:
    wall_us = after.wall_us - before.wall_us
    machine_us = max(0, wall_us * _CPUS - (after.not_busy_us - before.not_busy_us))
    processes_us = sum(max(0, us - before.processes_us.get(pid, 0)) for pid, us in after.processes_us.items())
    kernel_us = max(0, machine_us - (after.all_tasks_us - before.all_tasks_us))
    return Spent(wall_us, machine_us, processes_us, kernel_us, processes_us + kernel_us,
                 after.softirq_us - before.softirq_us,
                 max(0, machine_us - processes_us - kernel_us) / max(1, wall_us * _CPUS))


def stolen_us() -> int:
    """What a hypervisor has taken from all CPUs together so far; in ticks, and 0 on a machine that has none."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) * _TICK_US


def all_tasks_us() -> int:
    """Running time of all tasks that ever ran, the idle tasks left out. An error where the kernel does not say: without that sum the
    figure would be another one, with the strangers' time in it."""
    with contextlib.suppress(OSError):
        # CONFIG_SCHEDSTATS, as Debian's kernels have it: the 7th figure of a cpu line is that CPU's sum, in ns.
        lines = Path("/proc/schedstat").read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[7]) for line in lines if line.startswith("cpu")) // 1000
    with contextlib.suppress(OSError):
        return int(Path("/sys/fs/cgroup/cpuacct/cpuacct.usage").read_text(encoding="ascii")) // 1000
    raise RuntimeError("this kernel does not say how long all tasks ran: processor time of an experiment cannot be told from that of "
                       "others. It needs CONFIG_SCHEDSTATS (/proc/schedstat), as Debian's kernels have it")


def process_us(pid: int) -> int:
    """User and system time of all threads of a process so far; 0 when it is gone."""
    total_ns = 0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                total_ns += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii").split()[0])
    return total_ns // 1000


def busy_share(seconds: float) -> float:
    """How busy the machine is right now, 0 to 1."""
    before = sample(())
    time.sleep(seconds)
    passed = spent(before, sample(()))
    return passed.machine_us / (passed.wall_us * _CPUS)


def wait_until_quiet(share: float = 0.1, at_most_s: float = 30.0) -> bool | None:
    """Waits until the machine is (nearly) idle, so that no other work is measured; whether it is. With no time to wait it does not
    even look, which takes half a second: tests run experiments with many rounds."""
    deadline, quiet = time.monotonic() + at_most_s, None
    while not quiet and time.monotonic() < deadline:
        quiet = busy_share(0.5) <= share
    return quiet
