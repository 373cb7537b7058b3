# SPDX-License-Identifier: Apache-2.0
"""One run of a load client (hr-load) in a host of the lab, with the CPU time of its measured part.

The clients print an event line when their measured part begins and ends and once a second between; the machine's
CPU counters are read at the first two, so that neither start-up nor warm-up is charged. The modes differ here and
nowhere else: in the program, in where it sends to, and in whether it hedges by itself.
"""

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench import cpu_time, pinning
from bench.manifest import ROOT, binary
from deploy.dev import temporary
from deploy.lab import CommandFailed, Host, Lab

MODES = ("baseline", "app-cc", "wheel")
EventHook = Callable[[dict], None]


@dataclasses.dataclass(frozen=True)
class Destinations:
    primary: str  # address:port
    standby: str
    vip: str


@dataclasses.dataclass
class ClientRun:
    report: dict  # {"summary": .., "histograms": ..}
    spent: cpu_time.Spent
    argv: list[str]

    @property
    def summary(self) -> dict:
        return self.report["summary"]


def command(mode: str, to: Destinations, flags: Sequence[str], hedge_delay: str) -> list[str]:
    argv = [str(binary("hr-load")), f"--target={to.vip if mode == 'wheel' else to.primary}", f"--mode={mode}", *flags]
    return argv + [f"--hedge_target={to.standby}", f"--hedge_delay={hedge_delay}"] if mode == "app-cc" else argv


def run_client(host: Host, argv: Sequence[str], lab: Lab | None, *, stress: Sequence[int] = (),
               on_event: EventHook | None = None, hurried: bool = False) -> ClientRun:
    """Runs the client to its end. The processes of `lab` make up the experiment. `hurried`: ahead of
    everything else on this machine."""
    with temporary.folder("bench") as folder:
        out = Path(folder, "report.json")
        before, after = follow(host, [*argv, f"--out={out}", "--progress"], lambda _pid: _experiment(lab, stress), on_event, hurried,
                               stdout=subprocess.DEVNULL)
        report = json.loads(out.read_text(encoding="ascii"))
    return ClientRun(report, cpu_time.spent(before, after), list(argv))


def follow(host: Host, argv: Sequence[str], experiment: Callable[[int], Iterable[int]], on_event: EventHook | None = None,
           hurried: bool = False, **options) -> tuple[cpu_time.Sample, cpu_time.Sample]:
    """Runs a load to its end, which it bounds itself: samples of the processes that `experiment` names (it is told the load's), when
    the measured part began and when it ended. `on_event` comes after the sample of that moment."""
    samples: dict[str, cpu_time.Sample] = {}
    child = host.popen(argv, stderr=subprocess.PIPE, text=True, cwd=ROOT, ends_with_runner=True, **options)
    if hurried:
        pinning.hurry(child.pid)
    other_lines = []
    try:
        for line in child.stderr:
            event = _event(line)
            if event is None:
                other_lines.append(line)
                continue
            if event["event"] in ("measuring", "measured"):
                samples[event["event"]] = cpu_time.sample(list(experiment(child.pid)))
            if on_event is not None:
                on_event(event)
    except BaseException:
        host.stop(child, signal.SIGKILL)
        raise
    child.stderr.close()
    child.wait(30)
    if host.stop(child) != 0 or len(samples) != 2:
        raise CommandFailed(f"{' '.join(map(str, argv))} failed:\n{''.join(other_lines)}")
    sys.stderr.writelines(other_lines)
    return samples["measuring"], samples["measured"]


def _event(line: str) -> dict | None:
    if not line.startswith("{"):
        return None
    event = json.loads(line)
    return event if "event" in event else None


def _experiment(lab: Lab | None, stress: Sequence[int]) -> list[int]:
    return [pid for pid in lab.pids() if pid not in stress] if lab else []
