# SPDX-License-Identifier: Apache-2.0
"""Runs the Python tests in three workers, a process for each file of end-to-end tests and one for all the others.

Called by test.sh. A process has mounts of its own, and an empty bpffs where the machine has one, so that what a test finds
left behind on bpffs is its own; its labs carry its pid. The longest come first, so that none is alone at the end. Each writes a JUnit
report, REPORTS/pytest-NAME.xml, and its output goes to REPORTS/pytest-NAME.log, of which each test's line is shown. The processor time
that each took, with all that its tests started, is in REPORTS/pytest-cpu.tsv.

A file's tests wait more than they compute: a worker uses a third of a processor. With a third worker for all files, tests with a time to
keep fail now and then. So it takes those of BESIDE only, at a lower priority.

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

from deploy.dev import cpu_time

PROJECT = Path(__file__).resolve().parents[2]
END_TO_END = PROJECT / "tests" / "e2e"
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
              "[ -z \"$0\" ] || echo $$ >\"$0/cgroup.procs\"; if mountpoint -q /sys/fs/bpf; then mount -t bpf bpf /sys/fs/bpf; fi; exec \"$@\"")
NO_TEST_RAN = 5
OTHERS = "others"
# Most of a minute each. Of the rest a file's size tells well enough.
LONGEST = ("chaos", "adoption", "page", "bench_commands", "reload", "flood", "faults", "follow_network", "beside_programs", "failing_replicas",
           "sharing_the_machine")
# No test of theirs asks how long something took but with a bound of seconds, and all of them pass on a machine that is busy. The
# longest first, as well.
BESIDE = ("packages", OTHERS, "recovery", "power_cut", "lab_clusters", "steer_run", "peer_tls", "members_and_proxies", "prometheus", "snapshots",
          "steer_daemons", "memcached_cluster", "recipes", "top", "dns_clients", "sysdump", "tutorial", "kubernetes", "lab", "checkers",
          "store_bounds", "hashicorp_raft", "large_entries", "full_disk_start", "hostile_configs", "metrics_access", "images", "client_access",
          "session_owners")
BESIDE_NICE = 10

Group = tuple[str, list[str]]


def groups(folders: list[str]) -> tuple[list[Group], list[Group]]:
    """A name, and what pytest is given: for the workers, and for the one beside them."""
    files = {path.stem.removeprefix("test_"): path for path in END_TO_END.glob("test_*.py")}
    by_size = sorted(files, key=lambda name: files[name].stat().st_size, reverse=True)
    found = {name: [str(files[name].relative_to(PROJECT))] for name in by_size} | {OTHERS: [*folders, "tests", "--ignore=tests/e2e"]}
    beside = [(name, found.pop(name)) for name in BESIDE]
    return [(name, found.pop(name)) for name in LONGEST] + list(found.items()), beside


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
    parser.add_argument("--workers", type=int, default=2, help="beside which there is one more")
    parser.add_argument("folders", nargs="*", help="folders with further tests, beside tests/")
    args = parser.parse_args()
    runner = Runner(args.reports)
    signal.signal(signal.SIGINT, runner.stop)
    signal.signal(signal.SIGTERM, runner.stop)
    files, beside = groups(args.folders)
    queue, queue_beside = iter(files), iter(beside)

    def worker_of_all() -> None:
        runner.work(queue, 0)
        runner.work(queue_beside, 0)  # what is left

    workers = [threading.Thread(target=worker_of_all) for _ in range(args.workers)]
    workers.append(threading.Thread(target=runner.work, args=(queue_beside, BESIDE_NICE)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = [f"{name}\t{seconds:.1f}\n" for name, seconds in sorted(runner.cpu_seconds.items(), key=lambda each: -each[1])]
    (args.reports / "pytest-cpu.tsv").write_text("".join(lines), encoding="utf-8")
    return runner.status


if __name__ == "__main__":
    sys.exit(main())
