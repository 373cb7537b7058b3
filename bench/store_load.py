# SPDX-License-Identifier: Apache-2.0
"""One run of a closed-loop load on a replicated store (hr-kv-load): its report, and what everybody's processor
time was when its measured part began and ended. Called by bench/kv.py and bench/offload.py.
"""

import dataclasses
import json
import signal
import subprocess
import tempfile
from collections.abc import Callable

from bench import cpu_time
from bench.histogram import Histogram
from deploy.lab import CommandFailed, Lab, netns

TIMEOUT_NS = 1_000_000_000  # of hr-kv-load: what is lost has waited that long


@dataclasses.dataclass
class LoadRun:
    argv: list[str]
    report: dict
    before: cpu_time.Sample  # of all processes of the lab's hosts but the load's
    after: cpu_time.Sample

    @property
    def spent(self) -> cpu_time.Spent:
        return cpu_time.spent(self.before, self.after)

    @property
    def answered(self) -> int:
        """At least one, to divide by."""
        return max(1, self.report["answered"])

    def process_us(self, pid: int) -> int:
        """Of one process, within the measured part."""
        return self.after.processes_us.get(pid, 0) - self.before.processes_us.get(pid, 0)


def run_load(lab: Lab, argv: list[str], on_event: Callable[[str], None] = lambda event: None) -> LoadRun:
    """To its end. `on_event` gets "measuring" and "measured", each when the sample of that moment has been taken."""
    samples: dict[str, cpu_time.Sample] = {}
    identities = {netns.identity(netns.path_of(host.netns)) for host in lab.hosts.values()}
    with tempfile.TemporaryFile("w+", encoding="ascii") as out:
        child = lab.client.popen(argv, stdout=out, stderr=subprocess.PIPE, text=True, ends_with_runner=True)
        said = []
        try:
            for line in child.stderr:  # ends with the load, which bounds itself
                if line.startswith('{"event"'):
                    others = [pid for pid in netns.pids_in(identities) if pid != child.pid]
                    event = json.loads(line)["event"]
                    samples[event] = cpu_time.sample(others)
                    on_event(event)
                else:
                    said.append(line)
        except BaseException:
            lab.client.stop(child, signal.SIGKILL)
            raise
        child.stderr.close()
        child.wait(30)
        if lab.client.stop(child) != 0:
            raise CommandFailed(f"{' '.join(argv)} failed:\n{''.join(said)}")
        out.seek(0)
        report = json.load(out)
    return LoadRun(argv, report, samples["measuring"], samples["measured"])


def latency_of(report: dict) -> Histogram:
    """What is lost has waited its whole timeout."""
    latency = Histogram.from_json(report["latency"])
    for _ in range(report["lost"]):
        latency.record(TIMEOUT_NS)
    return latency
