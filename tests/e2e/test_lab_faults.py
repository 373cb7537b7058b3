# SPDX-License-Identifier: Apache-2.0
"""What chaos does to a machine is done: clocks that jump for one process alone, disks that are slow and full, wires and a switch that lead
nowhere. Each test fails where the fault does nothing.
"""

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from bench.manifest import binary
from bench.replicas import busy
from chaos.faults import FaultSpec, World, make
from deploy.lab import Lab
from deploy.lab.data_dirs import DataDirs
from deploy.lab.own_clock import OwnClock
from deploy.lab.unsynced_disks import DiskFailed, UnsyncedDisks
from harness.fuse import why_no_fuse

TAG = f"self{os.getpid()}9"

_ASK = """
import ctypes, socket, struct, sys, time
libc = ctypes.CDLL(None)
mutex, condition = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in sys.stdin:
    if line.strip() == "send":
        sender.sendto(b"x", receiver.getsockname())
        answer = "sent"
    elif line.strip() == "wait":
        begun, until = time.monotonic(), time.time() + 0.2
        libc.pthread_mutex_lock(mutex)
        libc.pthread_cond_timedwait(condition, mutex, struct.pack("qq", int(until), int(until % 1 * 1e9)))
        libc.pthread_mutex_unlock(mutex)
        answer = time.monotonic() - begun
    else:
        _, control, _, _ = receiver.recvmsg(16, 64)
        stamp = struct.unpack("qq", control[0][2])
        answer = f"{time.time()} {stamp[0] + stamp[1] / 1e9} {time.monotonic()}"
    print(answer, flush=True)
"""


def ask(child: subprocess.Popen, question: str) -> list[float] | str:
    child.stdin.write(question + "\n")
    child.stdin.flush()
    answer = child.stdout.readline().strip()
    return answer if answer == "sent" else [float(word) for word in answer.split()]


def test_a_clock_jumps_for_one_process_and_for_nobody_else(tmp_path):
    clock = OwnClock(tmp_path / "clock")
    environment = {**os.environ, "LD_PRELOAD": str(binary("hr-clock.so")), "HEDGEROW_LAB_CLOCK": str(clock.file)}
    with subprocess.Popen([sys.executable, "-c", _ASK], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as child:
        def look() -> tuple[float, float, float]:
            """The process's clocks against ours: the wall clock, a datagram's stamp, the monotonic clock."""
            wall, stamp, monotonic = ask(child, "look")
            return wall - time.time(), stamp - time.time(), monotonic - time.monotonic()

        ask(child, "send")
        assert look() == pytest.approx((0, 0, 0), abs=1) and clock.told == 0
        ask(child, "send")
        clock.jump(3600)
        assert look() == pytest.approx((3600, 0, 0), abs=1), "what came before the jump was stamped before it"
        ask(child, "send")
        assert look() == pytest.approx((3600, 3600, 0), abs=1)
        assert clock.told > 0
        for ahead_s in (-86400, 0):
            clock.jump(ahead_s)
            ask(child, "send")
            assert look() == pytest.approx((ahead_s, ahead_s, 0), abs=1)
        clock.jump(3600)
        assert 0.15 < ask(child, "wait")[0] < 20, "who waits for a while waits for that while"
        child.stdin.close()


@pytest.fixture
def disks():
    if why := why_no_fuse():
        pytest.skip(f"no FUSE here: {why}")
    with Lab(TAG, replicas=1) as lab, DataDirs(TAG, "disk") as data, UnsyncedDisks(lab, data.path) as made:
        yield made


def test_a_slow_disk_is_slow_and_a_full_one_takes_nothing(disks):
    file = disks.path / "a" / "file"

    def sync_s() -> float:
        with open(file, "wb") as opened:
            opened.write(b"bytes")
            opened.flush()
            begun = time.monotonic()
            os.fsync(opened.fileno())
            return time.monotonic() - begun

    sync_s()
    assert disks.ask("a", "slow 400") == {"slowed": 0, "refused": 0, "hung": 0}
    assert sync_s() >= 0.4
    assert disks.ask("a", "full") == {"slowed": 1, "refused": 0, "hung": 0}
    with pytest.raises(OSError, match="No space"):
        sync_s()
    assert disks.ask("a", "well")["refused"] > 0
    sync_s()
    assert disks.ask("a", "well")["slowed"] == 1, "it is quick again"
    with pytest.raises(DiskFailed, match="expected"):
        disks.ask("a", "broken")


@dataclasses.dataclass
class Victim:
    """As much of a node as a fault of its machine looks at."""

    process: subprocess.Popen


def test_a_starved_process_waits_and_gets_its_priority_back():
    with Lab(TAG, replicas=0) as lab:
        victim = Victim(lab.client.popen(busy(20)))
        before = os.getpriority(os.PRIO_PROCESS, victim.process.pid)
        several = make([FaultSpec("starvation", {"busy_per_cpu": 2})], World(lab, None, None, [victim]))
        several.begin()
        assert os.getpriority(os.PRIO_PROCESS, victim.process.pid) == 19
        several.hold(1.0)
        several.end()
        assert several.evidence()["waited_ms"] > 300
        assert os.getpriority(os.PRIO_PROCESS, victim.process.pid) == before
        assert lab.client.pids() == [victim.process.pid], "nobody is busy any more"


def reaches(lab: Lab, source: str, destination: str) -> bool:
    done = lab.hosts[source].run(["ping", "-c1", "-W0.3", lab.hosts[destination].ipv4], check=False)
    return done.returncode == 0


def test_what_a_cut_wire_and_a_switch_that_is_down_swallow_is_counted():
    with Lab(TAG, replicas=2) as lab:
        assert reaches(lab, "a", "b")
        for direction, (to_b, from_b) in (("out", (False, False)), ("in", (False, False))):
            lab.cut("a", direction)
            assert (reaches(lab, "a", "b"), reaches(lab, "b", "a")) == (to_b, from_b)
            assert lab.packets_cut("a") >= 2
            lab.heal("a")
            assert reaches(lab, "a", "b")
        before = lab.packets_sent_by("a")
        lab.pull_down()
        assert not reaches(lab, "a", "b")
        assert lab.packets_sent_by("a") > before
        lab.pull_up()
        deadline = time.monotonic() + 5
        while not reaches(lab, "a", "b"):
            assert time.monotonic() < deadline, "the switch does not come back"
