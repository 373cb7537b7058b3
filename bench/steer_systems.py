# SPDX-License-Identifier: Apache-2.0
"""The systems between sources and the workers of a collector: one shared socket, SO_REUSEPORT by itself, Hedgerow's steering, HAProxy
and nginx. Each has an expert's configuration for this task: every source meets one worker where the system can do that.
docs/benchmarks.md gives the reasons. Used by bench/steer.py and chaos/.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench import bpf_stats
from bench.manifest import binary
from bench.other_proxies import rss_bytes
from bench.steer_rig import PORT, Counts, counts_of, target
from deploy.lab import CommandFailed, Host
from deploy.lab.waiting import until

COLLECTOR = "hr-steer-collector"
_BACKENDS_FROM = 20_000  # ports of the workers behind a proxy
_BPFFS = Path("/sys/fs/bpf")
_READY_S = 15.0
_NGINX_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
_FILES_SPARE = 200


def connections_allowed() -> int:
    """Of one process of a proxy, which has two descriptors for each: more than a burst of 10,000 where the machine allows it. What
    does not fit waits in the listener's queue."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 40_000 if most == resource.RLIM_INFINITY else min(40_000, (most - _FILES_SPARE) // 2)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The same for all systems of a comparison."""

    workers: int
    transport: str  # "udp", "tcp" or "both"
    sources: int
    work_steps: int = 0
    peek: bool = False
    receive_buffer: int = 4 << 20
    family: int = 4
    start_delay_ms: int = 0
    port: int = PORT

    @property
    def udp(self) -> bool:
        return self.transport != "tcp"

    @property
    def tcp(self) -> bool:
        return self.transport != "udp"


class NotReady(RuntimeError):
    """A system does not come up; the message carries its log."""


class System:
    """Up inside the `with` block, on `host`."""

    name = ""
    transports = ("udp", "tcp", "both")

    def __init__(self, host: Host, wanted: Wanted, label: str = "steer"):
        self.host, self.wanted = host, wanted
        self.folder = host.scratch(f"{label}-{self.name}")
        self.log = self.folder / "log"
        self.collector = binary(COLLECTOR)
        self._started: list[subprocess.Popen] = []

    @property
    def listen(self) -> str:
        return target(self.host, self.wanted.family, self.wanted.port)

    def collector_command(self, slot: int | str, *more: str) -> list[str]:
        wanted = self.wanted
        return [str(self.collector), f"--slot={slot}", f"--counts={self.folder}/slot-{slot}.counts", f"--report={self.folder}/slot-{slot}.json",
                f"--sources={wanted.sources}", f"--work={wanted.work_steps}", f"--peek={str(wanted.peek).lower()}",
                f"--start_delay_max={wanted.start_delay_ms}ms", *more]

    def start(self) -> None:
        raise NotImplementedError

    def config(self) -> str:
        """The part of a row's configuration that `Wanted` lacks."""
        raise NotImplementedError

    def __enter__(self) -> "System":
        for old in (*self.folder.glob("slot-*"), self.log):
            old.unlink(missing_ok=True)
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_exc) -> None:
        self.stop()

    def _popen(self, argv: list[str], **options) -> subprocess.Popen:
        child = self.host.popen(argv, log=self.log, **options)
        self._started.append(child)
        return child

    def wait_ready(self) -> None:
        """Every worker has said that it is."""
        self.wait_until(lambda: len(self.order()) >= self.wanted.workers)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """While all that was started runs."""
        until(holds, _READY_S, lambda: f"{self.name} does not come up; exit codes {[child.poll() for child in self._started]}, workers "
              f"{self.order()}, log:\n{self._log()[-2000:]}", 0.01, hopeless=lambda: any(child.poll() is not None for child in self._started),
              error=NotReady)

    def order(self) -> list[int]:
        """The slots in the order in which their workers came; one that came again stands twice."""
        return [int(words[1]) for words in map(str.split, self._log().splitlines()) if len(words) == 2 and words[0] == "worker"]

    def _log(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def started(self) -> list[subprocess.Popen]:
        return list(self._started)

    def stop(self, sig: int = signal.SIGTERM) -> None:
        # Proxies first: a worker that ends under one makes it complain.
        for child in reversed(self._started):
            if child.returncode is None:
                self.host.stop(child, sig)
        self._started.clear()

    def pids(self) -> dict[str, list[int]]:
        """Of the workers, and of all other processes of the system."""
        found = {"workers": [], "others": []}
        groups = {child.pid for child in self._started}
        for pid in self.host.pids():
            with contextlib.suppress(OSError):
                of_ours = os.getpgid(pid) in groups or self._owns(pid)
                if of_ours:
                    found["workers" if os.readlink(f"/proc/{pid}/exe") == str(self.collector.resolve()) else "others"].append(pid)
        return found

    def _owns(self, _pid: int) -> bool:
        return False

    def counts(self) -> list[list[Counts]]:
        return [counts_of(self.folder / f"slot-{slot}.counts") for slot in range(self.wanted.workers)]

    def reports(self) -> list[dict]:
        """The reports that the workers wrote at their end."""
        return [json.loads(file.read_text(encoding="ascii")) for file in sorted(self.folder.glob("slot-*.json"))]

    def memory(self) -> dict:
        pids = self.pids()
        return {"rss_bytes": rss_bytes(pids["others"]), "workers_rss_bytes": rss_bytes(pids["workers"]), "map_bytes": 0}

    def program_totals(self) -> dict[str, dict]:
        """Runs and time of kernel programs so far; only Hedgerow has any."""
        return {}


class OneSocket(System):
    """One socket of each transport, which all workers have: the first worker to wake takes the message."""

    name = "one"

    def config(self) -> str:
        return "one UDP socket and one listener, inherited by all workers; epoll with EPOLLEXCLUSIVE"

    def start(self) -> None:
        with contextlib.ExitStack() as stack:
            sockets = []
            for kind in ([socket.SOCK_DGRAM] if self.wanted.udp else []) + ([socket.SOCK_STREAM] if self.wanted.tcp else []):
                made = stack.enter_context(self.host.socket(socket.AF_INET if self.wanted.family == 4 else socket.AF_INET6, kind))
                if kind == socket.SOCK_STREAM:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                else:
                    made.setsockopt(socket.SOL_SOCKET, 33, self.wanted.receive_buffer)  # SO_RCVBUFFORCE of asm-generic/socket.h
                made.bind((self.host.ipv4 if self.wanted.family == 4 else self.host.ipv6, self.wanted.port))
                if kind == socket.SOCK_STREAM:
                    made.listen(16_384)
                made.setblocking(False)
                # High numbers, out of the way of 3 and 4, where the workers have to find them.
                sockets.append(fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, 100))
                stack.callback(os.close, sockets[-1])
            moved = " ".join(f"{place}<&{fd}" for place, fd in enumerate(sockets, 3))
            closed = " ".join(f"{fd}<&-" for fd in sockets)
            for slot in range(self.wanted.workers):
                self._popen(["bash", "-c", f'exec {moved} {closed}; exec "$@"', "bash", *self.collector_command(slot, "--shared")],
                            pass_fds=sockets, env={"LISTEN_FDS": str(len(sockets))})


class Reuseport(System):
    """A socket of its own for each worker, spread by the kernel: a hash of both addresses and ports."""

    name = "reuseport"

    def config(self) -> str:
        return "SO_REUSEPORT, each worker its own sockets"

    first_slot = 0

    def start(self) -> None:
        for slot in range(self.wanted.workers):
            self.start_worker(self.first_slot + slot)

    def start_worker(self, slot: int) -> subprocess.Popen:
        return self._popen(self.collector_command(slot, "--reuseport", f"--listen={self.listen}", f"--transport={self.wanted.transport}",
                                                  f"--receive_buffer={self.wanted.receive_buffer}"))


class Steer(System):
    """`hedgerow steer run`, and nothing else changed."""

    name = "steer"

    def __init__(self, host: Host, wanted: Wanted, label: str = "steer", more: tuple[str, ...] = ()):
        super().__init__(host, wanted, label)
        self.group = f"{host.netns}-{label}"[-40:]
        self.run_dir = self.folder / "run"
        self.more = more

    def config(self) -> str:
        return " ".join(["hedgerow steer run", f"--transport {self.wanted.transport}", f"-n {self.wanted.workers}",
                         f"--receive-buffer {self.wanted.receive_buffer}", *self.more])

    def command(self) -> list[str]:
        return [str(binary("hedgerow-steer")), "run", "--listen", self.listen, "--transport", self.wanted.transport, "--name", self.group,
                "--workers", str(self.wanted.workers), "--receive-buffer", str(self.wanted.receive_buffer), "--run-dir", str(self.run_dir),
                *self.more, "--", *self.collector_command("%s")]

    def start(self) -> None:
        self.call("clean", check=False)  # the remains of a killed run
        self._popen(self.command())

    def kill_supervisor(self) -> None:
        """SIGKILL, and to it alone: its workers are of its process group."""
        supervisor = self._started.pop()
        os.kill(supervisor.pid, signal.SIGKILL)
        supervisor.wait(_READY_S)

    def start_supervisor(self) -> None:
        """The next one, which adopts; returns when it answers."""
        child = self._popen(self.command())

        def adopts() -> bool:
            with contextlib.suppress(CommandFailed, ValueError):
                return int(self.show()["supervisor_pid"]) == child.pid
            return False

        until(adopts, _READY_S, lambda: f"the next supervisor does not adopt:\n{self._log()[-2000:]}", 0.05,
              hopeless=lambda: child.poll() is not None, error=NotReady)

    def call(self, *words: str, check: bool = True, timeout: float = 30) -> str:
        # Not `hedgerow steer`, which would load one program for finding the other: their processor time is the measured workers'.
        return self.host.run([binary("hedgerow-steer"), words[0], *words[1:], "--name", self.group, "--run-dir", str(self.run_dir)],
                             check=check, timeout=timeout).stdout

    def show(self) -> dict:
        return json.loads(self.call("show", "--json"))

    def record(self) -> dict:
        """The group as its supervisor has recorded it for its successor."""
        return json.loads((self.run_dir / self.group / "record.json").read_text(encoding="utf-8"))

    def _owns(self, pid: int) -> bool:
        # A worker whose first supervisor is gone.
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        return str(self.run_dir) in command or f"{self.folder}/slot-" in command

    def stop(self, sig: int = signal.SIGTERM) -> None:
        super().stop(sig)
        for pid in [pid for pids in self.pids().values() for pid in pids]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if sig == signal.SIGKILL:
            self.call("clean", check=False)

    def pins(self) -> list[Path]:
        return sorted((_BPFFS / "hedgerow-steer" / self.group).glob("*"))

    def memory(self) -> dict:
        total = 0
        for pin in self.pins():
            done = subprocess.run(["bpftool", "--json", "map", "show", "pinned", str(pin)], capture_output=True, text=True, check=False)
            with contextlib.suppress(ValueError):
                shown = json.loads(done.stdout)
                total += int(shown.get("bytes_memlock", 0)) if "id" in shown else 0
        return {**super().memory(), "map_bytes": total}

    def program_totals(self) -> dict[str, dict]:
        totals = {}
        for pin in self.pins():
            done = subprocess.run(["bpftool", "--json", "prog", "show", "pinned", str(pin)], capture_output=True, text=True, check=False)
            with contextlib.suppress(ValueError):
                shown = json.loads(done.stdout)
                if shown.get("type") == "sk_reuseport":
                    entry = totals.setdefault(shown["name"], {"runs": 0, "ns": 0})
                    entry["runs"] += shown.get("run_cnt", 0)
                    entry["ns"] += shown.get("run_time_ns", 0)
        return totals


class Proxied(System):
    """A proxy in front of workers that listen on loopback, a port each."""

    def backends(self) -> list[str]:
        return [f"127.0.0.1:{_BACKENDS_FROM + slot}" for slot in range(self.wanted.workers)]

    def start(self) -> None:
        for slot, address in enumerate(self.backends()):
            self._popen(self.collector_command(slot, f"--listen={address}", f"--transport={self.wanted.transport}",
                                               f"--receive_buffer={self.wanted.receive_buffer}"))
        super().wait_ready()
        file = self.folder / "proxy.conf"
        file.write_text(self.config(), encoding="ascii")
        self._popen(self.proxy_command(file))

    def proxy_command(self, file: Path) -> list[str]:
        raise NotImplementedError

    def wait_ready(self) -> None:
        self.wait_until(self._listens)

    def _listens(self) -> bool:
        kinds = [kind for kind, used in (("-lu", self.wanted.udp), ("-lt", self.wanted.tcp)) if used]
        return all(self.listen in self.host.run(["ss", "-Hn", kind]).stdout for kind in kinds)


class Haproxy(Proxied):
    """A thread for each CPU, each with a listening socket of its own (shards by-thread). `balance source` with a consistent hash: a source
    meets one worker. Keepalive at both ends, no log, no checks of the workers, which cost and decide nothing here."""

    name = "haproxy"
    transports = ("tcp",)

    def config(self) -> str:
        servers = "".join(f"  server w{slot} {address}\n" for slot, address in enumerate(self.backends()))
        return f"""global
  nbthread {os.cpu_count() or 1}
  maxconn {connections_allowed()}
defaults
  mode tcp
  maxconn {connections_allowed()}
  option clitcpka
  option srvtcpka
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen collector
  bind {self.listen} shards by-thread backlog 16384
  balance source
  hash-type consistent
{servers}"""

    def proxy_command(self, file: Path) -> list[str]:
        return ["/usr/sbin/haproxy", "-db", "-q", "-f", str(file)]


class NginxStream(Proxied):
    """A worker process for each CPU, each with sockets of its own (reuseport). `hash $remote_addr consistent`: a source meets one worker.
    A UDP session lives on between a source's datagrams: with proxy_responses each datagram would make a socket. No log."""

    name = "nginx"

    def config(self) -> str:
        servers = "".join(f"    server {address} max_fails=0;\n" for address in self.backends())
        listeners = []
        if self.wanted.tcp:
            listeners.append(f"""  server {{
    listen {self.listen} reuseport backlog=16384 so_keepalive=on;
    proxy_pass workers;
    proxy_socket_keepalive on;
    proxy_connect_timeout 10s;
    proxy_timeout 1h;
  }}
""")
        if self.wanted.udp:
            listeners.append(f"""  server {{
    listen {self.listen} udp reuseport rcvbuf=4m sndbuf=4m;
    proxy_pass workers;
    proxy_timeout 60s;
  }}
""")
        return f"""load_module {_NGINX_MODULE};
user root;
worker_processes auto;
worker_rlimit_nofile {2 * connections_allowed() + _FILES_SPARE};
pid {self.folder}/nginx.pid;
error_log stderr crit;
events {{
  worker_connections {2 * connections_allowed()};
  multi_accept on;
}}
stream {{
  access_log off;
  upstream workers {{
    hash $remote_addr consistent;
{servers}  }}
{''.join(listeners)}}}
"""

    def proxy_command(self, file: Path) -> list[str]:
        return ["/usr/sbin/nginx", "-p", str(self.folder), "-c", str(file), "-g", "daemon off;"]


SYSTEMS: dict[str, type[System]] = {kind.name: kind for kind in (OneSocket, Reuseport, Steer, Haproxy, NginxStream)}


def program_ns(before: dict[str, dict], after: dict[str, dict]) -> float | None:
    """Of one run of the steering program, both transports together."""
    spent = bpf_stats.between(before, after).values()
    runs = sum(each["runs"] for each in spent)
    return sum(each["total_ns"] for each in spent) / runs if runs else None
