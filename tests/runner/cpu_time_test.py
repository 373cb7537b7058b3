# SPDX-License-Identifier: Apache-2.0
"""Processor time counts what a process leaves behind as well."""

import os
import subprocess
import time

import pytest

from tests.runner import cpu_time

BURN = "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass"


def test_what_outlives_the_process_counts_and_the_group_goes():
    with cpu_time.measured(f"hedgerow-cpu-time-test-{os.getpid()}") as taken:
        if taken.group is None:
            pytest.skip("no control group can be made here")
        # The shell ends at once; what it started is then no child of ours.
        read, write = os.pipe()
        subprocess.run(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && { "$@" & }', str(taken.group), "/usr/bin/python3", "-c", BURN],
                       check=True, pass_fds=[write])
        os.close(write)
        os.read(read, 1)  # its end
        os.close(read)
    assert 0.3 <= taken.seconds < 3
    deadline = time.monotonic() + 5
    while taken.group.exists() and time.monotonic() < deadline:  # the process may still be on its way out
        cpu_time._remove(taken.group)
    assert not taken.group.exists()


def test_without_groups_the_time_is_unknown(monkeypatch):
    monkeypatch.setattr(cpu_time, "_own_group", lambda: None)
    with cpu_time.measured("unused") as taken:
        pass
    assert (taken.group, taken.seconds) == (None, 0.0)
