# SPDX-License-Identifier: Apache-2.0
"""Runs the Python tests in four workers, a process for each file of end-to-end tests and one for all the others.

Called by test.sh. A process has mounts of its own, and an empty bpffs where the machine has one, so that what a test finds
left behind on bpffs is its own; its labs carry its pid. The longest come first, so that none is alone at the end. Each writes a JUnit
report, REPORTS/pytest-NAME.xml, and its output goes to REPORTS/pytest-NAME.log, of which each test's line is shown. The processor time
that each took, with all that its tests started, is in REPORTS/pytest-cpu.tsv.

A file's tests wait more than they compute: a worker uses a third of a processor. Two workers take the files that have a time to keep
(TIMED), which fail now and then where there are more of them at once. Two more take the other files, at a lower priority. Where nothing is
left to the first two, they help.

Not pytest-xdist: its workers of Debian 12 run a test in the main thread only by chance, and signals need that.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.runner import cpu_time

PROJECT = Path(__file__).resolve().parents[2]
END_TO_END = PROJECT / "tests" / "e2e"
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
              "[ -z \"$0\" ] || echo $$ >\"$0/cgroup.procs\"; if mountpoint -q /sys/fs/bpf; then mount -t bpf bpf /sys/fs/bpf; fi; exec \"$@\"")
NO_TEST_RAN = 5
OTHERS = "others"
# What these say of a short time, of a share or of the processors holds on a machine that is not busy. The longest first.
TIMED = ("chaos", "flood", "bench_commands", "client_faults", "failing_replicas", "sharing_the_machine", "offloads", "steer_runs", "faults",
         "stalling_replicas", "membership", "policy", "profiles", "offload_faults", "beside_segments", "limits", "raw_profile", "clock_kinds", "sysdump",
         "strangers", "engines", "store_bounds", "call_faults")
# All others pass on a machine that is busy. These of them take half a minute or more; of the rest a file's size tells well enough.
LONGEST = ("page", "adoption", "follow_network", "packages", "vip_route", "reload", "beside_programs", "recovery", "no_route", "no_harm", OTHERS, "power_cut")
OTHERS_NICE = 10

Group = tuple[str, list[str]]


def groups(beside: list[str]) -> tuple[list[Group], list[Group]]:
    """A name, and what pytest is given: of the files with a time to keep, and of all others. `beside`: folders whose tests run elsewhere."""
    files = {path.stem.removeprefix("test_"): path for path in END_TO_END.glob("test_*.py")}
    by_size = sorted(files, key=lambda name: files[name].stat().st_size, reverse=True)
    found = {name: [str(files[name].relative_to(PROJECT))] for name in by_size} | {OTHERS: [".", *(f"--ignore={folder}" for folder in ("tests/e2e", *beside))]}
    timed = [(name, found.pop(name)) for name in TIMED]
    return timed, [(name, found.pop(name)) for name in LONGEST] + list(found.items())


class Runner:
    def __init__(self, reports: Path):
        self._reports = reports
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._stopping = False
        self.status = 0
        self.cpu_seconds: dict[str, float] = {}

    def work(self, queue: Iterator[Group], nice: int) -> None:
        """Until the queue is empty or `stop`. Several threads may share a queue."""
        while True:
            with contextlib.ExitStack() as stack:
                with self._lock:
                    group = None if self._stopping else next(queue, None)
                    if group is None:
                        return
                    name, arguments = group
                    cpu = stack.enter_context(cpu_time.measured(f"hedgerow-test-{os.getpid()}-{name}"))
                    command = [sys.executable, "-m", "pytest", "-v", f"--junitxml={self._reports}/pytest-{name}.xml", *arguments]
                    child = subprocess.Popen(["nice", "-n", str(nice), *OWN_MOUNTS, str(cpu.group or ""), *command], cwd=PROJECT, text=True,
                                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
                    self._running.add(child)
                self._show(name, child)
                status = child.wait()
            with self._lock:
                self._running.discard(child)
                self.cpu_seconds[name] = cpu.seconds
                if status not in (0, NO_TEST_RAN):
                    self.status = 1

    def _show(self, name: str, child: subprocess.Popen) -> None:
        with (self._reports / f"pytest-{name}.log").open("w", encoding="utf-8") as log:
            for line in child.stdout:
                log.write(line)
                if "::" in line and not line.startswith("E "):
                    print(line, end="", flush=True)

    def stop(self, *_signal) -> None:
        """As Ctrl-C: the tests in hand take down what they made."""
        self._stopping = True
        self.status = 1
        for child in list(self._running):
            child.send_signal(signal.SIGINT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=Path, required=True, help="folder for JUnit reports and logs")
    parser.add_argument("--workers", type=int, default=2, help="of each of the two kinds")
    parser.add_argument("--beside", nargs="*", default=[], metavar="FOLDER", help="folders whose tests are run by the caller")
    args = parser.parse_args()
    runner = Runner(args.reports)
    signal.signal(signal.SIGINT, runner.stop)
    signal.signal(signal.SIGTERM, runner.stop)
    timed, others = groups(args.beside)
    queue_timed, queue_others = iter(timed), iter(others)

    def work_timed() -> None:
        runner.work(queue_timed, 0)
        runner.work(queue_others, 0)  # what is left

    def work_others() -> None:
        runner.work(queue_others, OTHERS_NICE)

    workers = [threading.Thread(target=work) for work in (work_timed, work_others) for _ in range(args.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = [f"{name}\t{seconds:.1f}\n" for name, seconds in sorted(runner.cpu_seconds.items(), key=lambda each: -each[1])]
    (args.reports / "pytest-cpu.tsv").write_text("".join(lines), encoding="utf-8")
    return runner.status


if __name__ == "__main__":
    sys.exit(main())
