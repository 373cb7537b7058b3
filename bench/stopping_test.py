# SPDX-License-Identifier: Apache-2.0
"""An experiment that is asked to end takes everything down, and a second signal does not cut that short."""

import signal
import subprocess
import sys
import time

import pytest

from bench import stopping
from bench.manifest import ROOT

_RUNNER = """
import pathlib, sys, time
from bench import stopping

def main(argv):
    try:
        print("runs", flush=True)
        time.sleep(60)
    finally:
        print("takes down", flush=True)
        time.sleep(1)
        print("done", flush=True)

stopping.run(main)
"""


@pytest.mark.parametrize("first, second", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGHUP)])
def test_a_second_signal_does_not_cut_the_taking_down_short(first, second):
    child = subprocess.Popen([sys.executable, "-c", _RUNNER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with child:
        assert child.stdout.readline() == "runs\n"
        child.send_signal(first)
        assert child.stdout.readline() == "takes down\n"
        child.send_signal(second)
        assert child.stdout.readline() == "done\n"
        assert child.wait(10) == 128 + first


def test_a_load_beside_a_block_that_fails_does_not_hold_it_up():
    load = subprocess.Popen(["sleep", "60"])

    class Lab:
        class registry:  # noqa: N801
            kill_all = staticmethod(load.kill)

    begun_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        with stopping.beside(Lab, 1) as pool:
            pool.submit(load.wait)
            raise KeyboardInterrupt
    assert time.monotonic() - begun_s < 10 and load.returncode == -signal.SIGKILL
