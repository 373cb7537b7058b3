# SPDX-License-Identifier: Apache-2.0
"""Groups of `hedgerow steer` in a network namespace of their own, and clients with many addresses on its loopback."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from deploy.lab import netns
from harness.product import BIN, wait_until

PORT = 2055
# By its text: the workers' user may not be able to read a clone in somebody's home.
WORKER = ("-c", Path(__file__).with_name("steer_worker.py").read_text(encoding="utf-8"))
IPV4 = [f"127.0.1.{number}" for number in range(1, 41)]
IPV6 = [f"fd00::1:{number:x}" for number in range(1, 9)]


class Netns:
    def __init__(self, name: str):
        self.name = name

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with netns.entered(self.name):
            yield

    def kill_all(self) -> None:
        """Every process in it, whoever started it."""
        def pids() -> list[int]:
            return netns.pids_in({netns.identity(netns.path_of(self.name))})

        for pid in pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not pids(), 5, "the end of all processes")

    def open(self, kind: int, source: str = "127.0.0.1") -> socket.socket:
        """Bound to `source`, with a timeout of 3 s."""
        with self.entered():
            sock = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, kind)
        sock.settimeout(3)
        sock.bind((source, 0))
        return sock

    def udp(self, source: str, to: str = "127.0.0.1", payload: bytes = b"x", port: int = PORT) -> str:
        """The answer. ConnectionRefusedError: nothing listens."""
        with self.open(socket.SOCK_DGRAM, source) as sock:
            if ":" in source:  # a worker on [::] answers from another address of the loopback
                sock.sendto(payload, (to, port))
            else:
                sock.connect((to, port))
                sock.send(payload)
            return sock.recv(2048).decode()

    def connect(self, source: str, to: str = "127.0.0.1", port: int = PORT) -> socket.socket:
        sock = self.open(socket.SOCK_STREAM, source)
        sock.connect((to, port))
        return sock

    def tcp(self, source: str, to: str = "127.0.0.1", port: int = PORT) -> str:
        with self.connect(source, to, port) as sock:
            return sock.recv(2048).decode()


def scraped(path) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(path))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode()


def slot_of(answer: str | bytes) -> int:
    return int(answer.split()[0])


def pid_of(answer: str | bytes) -> int:
    return int(answer.split()[1])


# A program that gets descriptors from 3 on, as systemd starts it.
HANDED = """import os, sys
copies = [os.dup2(int(fd), 100 + i, inheritable=False) for i, fd in enumerate(sys.argv[1].split(","))]
os.closerange(3, 100)
for i, fd in enumerate(copies): os.dup2(fd, 3 + i)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(copies)))
os.execv(sys.argv[2], sys.argv[2:])"""


class Group:
    """A supervisor in the foreground, and the commands that ask it."""

    def __init__(self, net: Netns, folder: Path, name: str):
        self.net, self.folder, self.name = net, folder, name
        self.run_dir = folder / "run"
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen | None = None
        self.environment: dict[str, str] = {}

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return [str(BIN / "hedgerow-steer"), *words]

    def cli(self, *words: str, ok: bool = True, within_s: float = 30) -> subprocess.CompletedProcess:
        with self.net.entered():
            done = subprocess.run(self._words((*words, "--run-dir", str(self.run_dir))), capture_output=True, text=True, timeout=within_s, check=False)
        assert not ok or done.returncode == 0, done.stderr + done.stdout
        return done

    def ask(self, *words: str) -> dict:
        return json.loads(self.cli(*words, "--name", self.name, "--json").stdout)

    def command(self, *options: str, workers: int | str = 2, listen: str = f"127.0.0.1:{PORT}", worker: tuple[str, ...] = ()) -> tuple[str, ...]:
        return ("run", "--listen", listen, "-n", str(workers), "--name", self.name, "--run-dir", str(self.run_dir), *options,
                "--", sys.executable, *WORKER, *worker)

    def start(self, *options: str, handed: list[int] = (), **others) -> "Group":
        """Returns when it says that it is ready. `handed`: descriptors as a service manager hands them over (LISTEN_FDS)."""
        return self._start(self.command(*options, **others), handed)

    def run(self, *command: str, workers: int = 2, listen: str = f"127.0.0.1:{PORT}", options: tuple[str, ...] = ()) -> "Group":
        """Workers that are others than steer_worker.py."""
        return self._start(("run", "--listen", listen, "-n", str(workers), *options, *self._where(), "--", *command))

    def adopt(self, *pids: int, listen: str = f"127.0.0.1:{PORT}", options: tuple[str, ...] = ()) -> "Group":
        return self._start(("adopt", "--listen", listen, *options, *self._where(), *map(str, pids)))

    def _where(self) -> tuple[str, ...]:
        return ("--name", self.name, "--run-dir", str(self.run_dir))

    def _start(self, words: tuple[str, ...], handed: list[int] = ()) -> "Group":
        first = (sys.executable, "-c", HANDED, ",".join(map(str, handed)))
        with self.net.entered(), self.log.open("ab") as log:
            self.process = subprocess.Popen([*(first if handed else ()), *self._words(words)], stdout=subprocess.PIPE, stderr=log,
                                            env={**os.environ, **self.environment}, pass_fds=handed)
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready: "), line + self.log.read_text(encoding="utf-8")
        return self

    def refused(self, *options: str, code: int = 1, **others) -> str:
        """A start that fails: its error."""
        with self.net.entered():
            done = subprocess.run(self._words(self.command(*options, **others)), capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr

    def slots(self) -> dict[int, dict]:
        return {slot["slot"]: slot for slot in self.ask("show")["slots"]}

    def pids(self) -> dict[int, int]:
        return {number: slot["pid"] for number, slot in self.slots().items()}

    def wait_state(self, slot: int, state: str, timeout_s: float = 20.0) -> dict:
        return wait_until(lambda: (found := self.slots()[slot])["state"] == state and found, timeout_s, f"slot {slot} {state}")

    def kill(self) -> None:
        """The supervisor alone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(5)
        self.process.stdout.close()

    def stop(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(15)
        self.process.stdout.close()
        self.process = None
        self.cli("clean", "--name", self.name, ok=False)

    def left(self) -> list[str]:
        """What is still there of the group."""
        pins = Path("/sys/fs/bpf/hedgerow-steer", self.name)
        return [str(path) for path in (pins, self.run_dir / self.name, self.run_dir / f"{self.name}.lock") if path.exists()]


@contextlib.contextmanager
def service_manager(group: Group) -> Iterator[tuple[dict[str, int], Callable[[int], None]]]:
    """That of the group's next starts. The descriptors that it stores by name (FDSTORE=1), and a wait until they are so many."""
    path = str(group.folder / "manager.sock")
    stored: dict[str, int] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(5)

        def hear(count: int) -> None:
            while len(stored) != count:
                text, descriptors, _, _ = socket.recv_fds(manager, 4096, 1)
                lines = dict(line.split("=", 1) for line in text.decode().split("\n"))
                if "FDSTORE" in lines:
                    stored[lines["FDNAME"]] = descriptors[0]
                elif "FDSTOREREMOVE" in lines:
                    os.close(stored.pop(lines["FDNAME"]))

        group.environment = {"NOTIFY_SOCKET": path}
        yield stored, hear


@contextlib.contextmanager
def made_netns(name: str) -> Iterator[Netns]:
    netns.create(name)
    try:
        with netns.entered(name):
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            for address in ("fd00::1", *IPV6):
                subprocess.run(["ip", "address", "add", f"{address}/64", "dev", "lo", "nodad"], check=True)
            with IPRoute() as route:
                for address in ("fd00::1", *IPV6):
                    netns.wait_for_own_route(route, address)
        yield Netns(name)
    finally:
        netns.remove(name)


@contextlib.contextmanager
def made_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hr-steer-") as folder:
        os.chmod(folder, 0o755)  # workers of other users reach their socket through it
        yield Path(folder)


def fixtures(kind: str) -> tuple:
    """For a module's tests: `net`, which they share, and each one's `folder` and `group`, of which nothing is left behind."""
    @pytest.fixture(scope="module", name="net")
    def net():
        with made_netns(f"hr-{kind}-{os.getpid()}") as made:
            yield made

    @pytest.fixture(name="folder")
    def folder():
        with made_folder() as made:
            yield made

    @pytest.fixture(name="group")
    def group(net, folder):
        made = Group(net, folder, f"{kind}-{os.getpid()}")
        yield made
        made.stop()
        assert made.left() == []

    return net, folder, group
