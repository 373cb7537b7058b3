# SPDX-License-Identifier: Apache-2.0
"""A system that is booted and thrown away: this machine's files under a layer in memory, with a systemd of its own.

What is installed, written or removed in it stays in the layer. It has a network namespace of its own, and sees the machine's
kernel: BPF programs and maps are real.
"""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

BOOT_S = 60
_LAYERS = Path("/run")


class Booted:
    """One boot. `run` runs a command in it as root and returns what it printed. It is shut down when the test's
    process ends, however that ends: SIGTERM has systemd-nspawn do so."""

    def __init__(self, root: Path, name: str):
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the system)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "systemd-nspawn", "--boot", f"--directory={root}", f"--machine={name}", "--private-network",
             "--register=no", "--keep-unit", "--capability=all", "--system-call-filter=bpf perf_event_open landlock_create_ruleset "
             "landlock_add_rule landlock_restrict_self pidfd_getfd", "--console=pipe", "--quiet", "systemd.unit=multi-user.target"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True)
        self._leader = 0
        try:
            self._leader = self._wait_for_leader()
            self._wait_until_it_runs()
            # Its /sys lacks what systemd mounts on a host of its own.
            self.run("mount -o remount,rw /sys && mkdir -p /sys/fs/bpf && mount -t bpf bpf /sys/fs/bpf && "
                     "systemd-tmpfiles --create --prefix=/sys/fs/bpf && ip link set lo up")
        except BaseException:
            self.end()
            raise

    def run(self, script: str, timeout: float = 60, check: bool = True) -> str:
        done = self.start(script)
        try:
            out, _ = done.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            done.kill()
            raise
        if check and done.returncode != 0:
            journal, _ = self.start("journalctl --no-pager --lines=20").communicate(timeout=20)
            raise AssertionError(f"{script!r} ended with {done.returncode} in the booted system:\n{out}\n{journal}")
        return out

    def start(self, script: str) -> subprocess.Popen:
        return subprocess.Popen(
            # With its root: where the caller is itself in a chroot, the mount namespace's root is another one.
            ["nsenter", f"--target={self._leader}", "--all", "--root", "--wd", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
             "/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self) -> None:
        """As a shutdown does: units are stopped, then everything ends."""
        try:
            if self._leader:
                os.kill(self._leader, signal.SIGRTMIN + 4)  # poweroff, systemd(1)
            self.process.wait(timeout=40 if self._leader else 0)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._log.close()

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _wait_for_leader(self) -> int:
        deadline = time.monotonic() + BOOT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
            for child in map(int, children):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{child}/comm").read_text(encoding="ascii").strip() == "systemd":
                        return child
            time.sleep(0.05)
        raise AssertionError(f"nothing booted: {self._said()}")

    def _wait_until_it_runs(self) -> None:
        deadline = time.monotonic() + BOOT_S
        state = ""
        while time.monotonic() < deadline:
            state = self.run("systemctl is-system-running 2>&1", check=False).strip()
            if state in ("running", "degraded"):
                return
            time.sleep(0.2)
        raise AssertionError(f"the system is {state} after {BOOT_S} s: {self._said()}")


@contextlib.contextmanager
def layered_root() -> Iterator[tuple[Path, Path]]:
    """This machine's files under a layer in memory: the root to boot, and the layer, which has what differs."""
    base = Path(tempfile.mkdtemp(prefix=f"hr-booted-{os.getpid()}-", dir=_LAYERS))
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", base], check=True, timeout=10)
        for folder in ("layer", "work", "root"):
            (base / folder).mkdir()
        # Nothing of this machine that starts, and none of its files that change meanwhile: these folders hide what is below them.
        for folder in ("etc/systemd/system", "var/lib/systemd", "var/log", "var/tmp", "tmp"):
            (base / "layer" / folder).mkdir(parents=True)
            os.setxattr(base / "layer" / folder, "trusted.overlay.opaque", b"y")
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir=/,upperdir={base / 'layer'},workdir={base / 'work'}", base / "root"], check=True, timeout=10)
        # An identity of its own, and packages may start what they bring.
        (base / "root/etc/machine-id").write_text("", encoding="ascii")
        (base / "root/usr/sbin/policy-rc.d").unlink(missing_ok=True)
        # man-db indexes every manual page of this machine when a package with some comes or goes: seconds, each time.
        (base / "root/var/lib/man-db/auto-update").unlink(missing_ok=True)
        for folder in ("etc/hedgerow", "etc/hedgerow-node", "var/lib/hedgerow-node"):
            subprocess.run(["rm", "-rf", base / "root" / folder], check=True, timeout=30)
        yield base / "root", base / "layer"
    finally:
        _take_away(base)


def _take_away(base: Path) -> None:
    for folder in (base / "root", base):
        subprocess.run(["umount", "--lazy", folder], check=False, timeout=10, capture_output=True)
    with contextlib.suppress(OSError):
        base.rmdir()


def take_away_what_dead_runs_left() -> None:
    """The layers of test processes that were killed."""
    for base in _LAYERS.glob("hr-booted-*"):
        found = re.fullmatch(r"hr-booted-(\d+)-\w+", base.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _take_away(base)
