# SPDX-License-Identifier: Apache-2.0
"""One run of a virtual machine: QEMU's command line, its console line by line, and what it brings back.

`det` counts virtual time in instructions, one nanosecond each, and skips idle time: one seed and one image give one
run, byte for byte. `mt` has real concurrency and the host's time. Neither needs /dev/kvm, which may exist and be
useless for a stock kernel: software emulation is asked for by name.
"""

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from deploy.dev import temporary
from deploy.vm.kernels import Broken, Kernel

QEMU = "qemu-system-x86_64"
# cmpxchg16b: QEMU 7.2 miscomputes it with several CPUs, and a 6.12 kernel double-faults.
_CPU = "max,-cx16"
# no_timer_check: the test of the timer at the start counts jiffies against cycles, and panics if the host was busy elsewhere.
KERNEL_WORDS = "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on no_timer_check"
# One nanosecond an instruction, idle time skipped. Recorded into nothing, for the sake of a lock: without it QEMU's main loop
# may skip idle time while the processor, just halted, has not yet accounted for what it executed, and the clock then jumps by that
# too far. Seen on a busy host with 45,000 sleeps: 8 ns in one run of three; in whole systems after some seconds of each run.
_COUNTING = "shift=0,align=off,sleep=off,rr=record,rrfile=/dev/null"
# What the guest's init prints around the script's output (guest/init).
BEGIN = "hedgerow-vm: begin"
_END = re.compile(r"hedgerow-vm: exit (\d+)$", re.MULTILINE)
NO_END = 255
_running: set[subprocess.Popen] = set()


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the machine is made. Memory in MiB; the time-out is the host's, in seconds."""

    mode: str = "det"
    seed: int = 1
    memory_mb: int = 2048
    cpus: int = 2  # of `mt`; `det` has one
    timeout_s: float = 600.0

    def words(self) -> list[str]:
        if self.mode == "det":
            return ["-accel", "tcg,thread=single", "-icount", _COUNTING, "-smp", "1",
                    "-seed", str(self.seed), "-rtc", "base=2026-01-01,clock=vm"]
        return ["-accel", "tcg,thread=multi", "-smp", str(self.cpus), "-seed", str(self.seed)]


def has_stale_int3(console: str) -> bool:
    """A processor of QEMU's ran an int3 which the kernel had put there to change its code (a static key), and taken away
    again: on hardware the kernel's barriers prevent that. Seen about once in a hundred machines; they are started once more."""
    return "Oops: int3" in console


@dataclasses.dataclass
class Outcome:
    status: int      # of the script; 255 when the machine ended without saying
    output: str      # what the script printed
    console: str     # all of it
    seconds: float   # of the host
    timed_out: bool

    def emulator_failed(self) -> bool:
        return self.status == 255 and not self.timed_out and has_stale_int3(self.console)

    def why_not(self) -> str:
        """For a machine that ended badly: what it was, and the console's last lines."""
        what = "ran into its time-out" if self.timed_out else "ended without an exit status"
        return f"the machine {what} after {self.seconds:.0f} s; its last lines:\n" + "\n".join(
            self.console.splitlines()[-15:])


def run(kernel: Kernel, image: Path, settings: Settings, files: Path | None = None,
        show: Callable[[str], None] | None = None) -> Outcome:
    """Boots the image and waits for its end. What the script left in /out comes into the folder `files`; every line
    that it prints is shown at once."""
    with temporary.folder("vm") as scratch:
        archive = Path(scratch) / "out.tar"
        started = time.monotonic()
        # However the lane ends, no machine goes on without it: in a process group of its own it hears of nothing. Not in a
        # session of its own, which the kernel would give as much of the processors as any of the end-to-end tests'.
        bound = ["setpriv", "--pdeathsig", "KILL", "--", *_command(kernel, image, settings, archive)]
        with subprocess.Popen(bound, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0) as process:
            timer = threading.Timer(settings.timeout_s, process.kill)
            timer.start()
            _running.add(process)
            try:
                console = _read(process, show)
                process.wait()
            finally:
                process.kill()
                timer.cancel()
                _running.discard(process)
        seconds = time.monotonic() - started
        outcome = _outcome(console, seconds, seconds >= settings.timeout_s)
        if files is not None:
            _unpack(archive, files)
    return outcome


def end_all() -> None:
    """For a caller that must stop while its threads wait for machines."""
    for process in list(_running):
        process.kill()


def shell(kernel: Kernel, image: Path, settings: Settings) -> int:
    """A shell on the console; `poweroff -f` or Ctrl-A X ends it."""
    with temporary.folder("vm") as scratch:
        command = _command(kernel, image, settings, Path(scratch) / "out.tar")
        command[command.index("stdio")] = "mon:stdio"
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the guest's
        return subprocess.run(command, check=False).returncode


def _command(kernel: Kernel, image: Path, settings: Settings, archive: Path) -> list[str]:
    if not shutil.which(QEMU):
        raise Broken(f"{QEMU} is not installed (sudo ./dev deps)")
    return [QEMU, "-M", "pc", *common_words(settings), "-kernel", str(kernel.image), "-initrd", str(image),
            "-serial", "stdio", "-serial", f"file:{archive}", "-append", KERNEL_WORDS]


def common_words(settings: Settings) -> list[str]:
    """Of every machine of the lanes: its processors and memory, and no device that is not asked for."""
    return ["-cpu", _CPU, *settings.words(), "-m", f"{settings.memory_mb}M", "-nodefaults", "-display", "none", "-no-reboot"]


def _read(process: subprocess.Popen, show: Callable[[str], None] | None) -> str:
    lines, inside = [], False
    for raw in process.stdout:
        line = raw.decode("utf-8", "replace").replace("\r", "").rstrip("\n")
        lines.append(line)
        if inside and show and not _END.search(line):
            show(line)
        inside = inside and not _END.search(line)
        if line == BEGIN:
            inside = True
    return "".join(line + "\n" for line in lines)


def _outcome(console: str, seconds: float, timed_out: bool) -> Outcome:
    end = _END.search(console)
    _, _, output = console.partition(BEGIN + "\n")
    if end:
        output = output[:output.find(end.group(0))]
    return Outcome(int(end.group(1)) if end else NO_END, output, console, seconds, timed_out and not end)


def _unpack(archive: Path, files: Path) -> None:
    """A machine that was killed leaves no archive, or half of one: then there are the files that arrived."""
    files.mkdir(parents=True, exist_ok=True)
    if not archive.exists() or os.path.getsize(archive) == 0:
        return
    done = subprocess.run(["tar", "-xf", archive, "-C", files, "--no-same-owner"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        print(f"vm: what the machine left in /out is incomplete: {done.stderr.strip()}", file=sys.stderr)
