# SPDX-License-Identifier: Apache-2.0
"""What all servers of the lab share: start in the foreground, wait until it answers, stall, kill, stop.

A server is a context manager. Its config, log and state live in the host's scratch folder, which goes with the
lab. A signal goes to the whole process group: nsd answers from children, and a stall must stop them all.
"""

import contextlib
import os
import secrets
import signal
import socket
import struct
import subprocess
from pathlib import Path

from deploy.lab.host import Host
from deploy.lab.servers import zone
from deploy.lab.waiting import until

A, TXT = 1, 16  # RFC 1035, section 3.2.2


# Letters of proc(5): stopped by a signal, by a tracer, and ended.
STOPPED = frozenset("TtZX")


def thread_states(group: int) -> set[str]:
    """The states of all threads in a process group, by proc(5)'s letters."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process may end while it is looked at
            if os.getpgid(int(process.name)) == group:
                for stat in process.glob("task/*/stat"):
                    found.add(stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0])
    return found


class ServerFailed(RuntimeError):
    """A server ended or stayed silent; the message carries its log."""


class Server:
    """Subclasses say what to run and how one request is answered."""

    name = ""
    ready_timeout_s = 15.0
    default_port = 53

    def __init__(self, host: Host, port: int | None = None):
        self.host, self.port = host, port or self.default_port
        self.folder: Path = host.scratch(f"{self.name}-{self.port}")
        self.log = self.folder / "log"
        self.process: subprocess.Popen | None = None

    @property
    def addresses(self) -> list[str]:
        """Where it must answer before `start` returns."""
        return [self.host.ipv4, self.host.ipv6]

    def command(self) -> list[str]:
        """Writes the config and returns the command line that serves in the foreground."""
        raise NotImplementedError

    def answers(self, address: str) -> bool:
        raise NotImplementedError

    def start(self) -> "Server":
        self.process = self.host.popen(self.command(), log=self.log)
        try:
            for address in self.addresses:
                self._wait_until_it_answers(address)
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_it_answers(self, address: str) -> None:
        def why() -> str:
            code = self.process.poll()
            what = f"does not answer on {address} port {self.port}" if code is None else f"ended with {code}"
            return f"{self.name} {what}:\n{self._log_tail()}"

        until(lambda: self.answers(address), self.ready_timeout_s, why, hopeless=lambda: self.process.poll() is not None, error=ServerFailed)

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(no log)"

    def stall(self) -> None:
        """SIGSTOP: the sockets stay open and swallow packets, the worst replica to have. Returns when every thread has
        stopped: kill(2) only marks them, and one that runs on another processor may answer a request sent right after."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        until(lambda: thread_states(self.process.pid) <= STOPPED, self.ready_timeout_s,
              lambda: f"{self.name} does not stop: {thread_states(self.process.pid)}", 0.0002, error=ServerFailed)

    def resume(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: the port is closed from now on and the kernel answers with port unreachable."""
        self.host.stop(self.process, signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.host.stop(self.process)

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, kind, *_exc) -> None:
        """A server that ended by itself answered nothing from then on, and no measurement of it may stand."""
        died = self.process is not None and self.process.returncode is None and os.waitid(
            os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        self.stop()
        if died and kind is None:
            raise ServerFailed(f"{self.name} of {self.host.name} ended by itself with {self.process.returncode}:\n{self._log_tail()}")


class DnsServer(Server):
    """`identity` is what `whoami.example.test TXT` says; by default the host's name."""

    def __init__(self, host: Host, port: int | None = None, identity: str | None = None):
        super().__init__(host, port)
        self.identity = identity or host.name

    def answers(self, address: str) -> bool:
        # Asked by name: another server on the same port must not be taken for this one.
        answer = ask(self.host, address, self.port, f"whoami.{zone.ORIGIN}", TXT)
        return answer is not None and self.identity.encode() in answer


def ask(host: Host, address: str, port: int = 53, name: str = f"www.{zone.ORIGIN}", kind: int = A,
        timeout_s: float = 0.2) -> bytes | None:
    """One DNS question from `host` by UDP: the answer, or None. Enough to see a server live; tests of DNS
    itself use dig."""
    query_id = secrets.token_bytes(2)
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    query = query_id + bytes.fromhex("01000001000000000000") + question + struct.pack("!HH", kind, 1)
    answer = round_trip(host, address, port, query, timeout_s)
    return answer if answer is not None and answer[:2] == query_id and answer[3] & 0x0F == 0 else None


def round_trip(host: Host, address: str, port: int, payload: bytes, timeout_s: float = 0.2) -> bytes | None:
    """One UDP datagram there and back; None when the port is closed or silent."""
    with host.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect((address, port))
            sock.send(payload)
            return sock.recv(65535)
        except OSError:
            return None
