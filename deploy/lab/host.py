# SPDX-License-Identifier: Apache-2.0
"""One host of the lab: run programs in it, open sockets in it, shape, cut and heal its uplink.

A host is a network namespace and nothing more: it shares files, processes and bpffs with the machine, as the
programs under test expect. Processes started here are registered, so that they die with the lab.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyroute2 import IPRoute

from deploy.lab import netns
from deploy.lab import uplink as uplink_options
from deploy.lab.names import INNER, netns_name
from deploy.lab.programs import note_installed
from deploy.lab.registry import Registry

UPLINK = "eth0"


def _wait(child: subprocess.Popen, timeout: float) -> None:
    """Popen.wait with a time-out looks ever more seldom, down to once in 50 ms; tests run thousands of short programs."""
    pidfd = os.pidfd_open(child.pid)
    try:
        if not select.select([pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(child.args, timeout)
    finally:
        os.close(pidfd)
    child.wait()


class CommandFailed(RuntimeError):
    """A program in the lab ended with an error; the message carries what it said."""


class Host:
    def __init__(self, registry: Registry, name: str, ipv4: str, ipv6: str):
        self.name = name
        self.ipv4, self.ipv6 = ipv4, ipv6
        self.netns = netns_name(registry.tag, name)
        self._registry = registry
        self._children: list[subprocess.Popen] = []

    def __repr__(self) -> str:
        return f"Host({self.netns})"

    @property
    def has_port(self) -> bool:
        """On the switch; a container behind the client host has none."""
        return self.name != INNER

    # -- programs ------------------------------------------------------------------------------------------

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """The calling thread is in this host inside the block (its network namespace only)."""
        return netns.entered(self.netns)

    def popen(self, argv: Sequence[str | os.PathLike], *, log: os.PathLike | str | None = None,
              env: Mapping[str, str] | None = None, ends_with_runner: bool = False, **options) -> subprocess.Popen:
        """Starts a program in the background; `log` takes its output. It leads a process group of its own. `ends_with_runner`: the kernel
        kills it when this process ends, however that ends (to be started by a thread that outlives it)."""
        command = [os.fspath(part) for part in argv]
        note_installed(command)
        if ends_with_runner:
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with contextlib.ExitStack() as stack:
            if log is not None:
                output = stack.enter_context(open(log, "ab"))
                options.setdefault("stdout", output)
            options.setdefault("stdout", subprocess.DEVNULL)
            options.setdefault("stderr", subprocess.STDOUT)
            options.setdefault("stdin", subprocess.DEVNULL)
            environment = None if env is None else {**os.environ, **env}
            with self.entered():
                child = subprocess.Popen(command, env=environment, start_new_session=True, **options)
        self._registry.add(child.pid, self.name, command)
        self._children.append(child)
        return child

    def run(self, argv: Sequence[str | os.PathLike], *, check: bool = True, timeout: float = 30.0,
            stdin: str | None = None, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess:
        """Runs a program to its end, with its output as text. The output goes through files: a daemon the
        program leaves behind may hold a pipe open for ever. A program over its time is killed with its whole
        group, so that nothing it started holds the lab up."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = self.popen(argv, env=env, text=True, stdout=out, stderr=err,
                               stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE)
            try:
                if stdin is None:
                    _wait(child, timeout)
                else:
                    child.communicate(stdin, timeout=timeout)
            except BaseException:
                self.stop(child, signal.SIGKILL)
                raise
            self._forget(child)
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(child.args, child.returncode, out.read(), err.read())
        if check and done.returncode != 0:
            raise CommandFailed(f"{self.netns}: {' '.join(child.args)}: exit {done.returncode}\n"
                                f"{done.stdout}{done.stderr}")
        return done

    def stop(self, child: subprocess.Popen, sig: int = signal.SIGTERM, timeout: float = 5.0) -> int:
        """Signals the program's group and waits; SIGKILL when it does not go. A stopped process is woken, as
        it would otherwise never see a SIGTERM."""
        for each in (sig, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, each)
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            code = child.wait(timeout)
        self._wait_for_group(child.pid, timeout)
        self._forget(child)
        return code

    def _wait_for_group(self, group: int, timeout: float) -> None:
        """The leader's end is not its children's, and each of them may hold the sockets open for a while longer."""
        def members() -> list[int]:
            found = []
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    if os.getpgid(pid) == group:
                        found.append(pid)
            return found

        deadline = time.monotonic() + timeout
        while left := members():
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
                raise RuntimeError(f"{self.netns}: processes {left} of group {group} do not end")
            time.sleep(0.005)

    def _forget(self, child: subprocess.Popen) -> None:
        self._registry.discard(child.pid)
        if child in self._children:
            self._children.remove(child)

    def pids(self) -> list[int]:
        """Every process in this host, also those of other runs."""
        return netns.pids_in({netns.identity(netns.path_of(self.netns))})

    def reap(self) -> None:
        """Collects children that a teardown has killed, so that no zombie keeps a namespace alive."""
        for child in list(self._children):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1.0)
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
            self._forget(child)

    def scratch(self, name: str) -> Path:
        """A folder for configs and logs of a program in this host; it goes with the lab."""
        path = self._registry.path / f"{self.name}-{name}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    # -- sockets and settings ------------------------------------------------------------------------------

    def socket(self, family: int = socket.AF_INET, kind: int = socket.SOCK_DGRAM, protocol: int = 0) -> socket.socket:
        with self.entered():
            return socket.socket(family, kind, protocol)

    @contextlib.contextmanager
    def netlink(self) -> Iterator[IPRoute]:
        with self.entered():
            route = IPRoute()
        with route:
            yield route

    def sysctl(self, key: str, value: int | str | None = None) -> str:
        """Reads, or with a value writes, a setting of this namespace; `net.ipv4.ip_forward` and a path are one."""
        path = key if "/" in key else key.replace(".", "/")
        if value is not None:
            netns.write_sysctl(self.netns, path, value)
        return netns.read_sysctl(self.netns, path)

    # -- uplink --------------------------------------------------------------------------------------------

    def set_tx_checksum(self, on: bool, ifname: str = UPLINK) -> None:
        with self.entered():
            uplink_options.set_tx_checksum(ifname, on)

    def tx_checksum(self, ifname: str = UPLINK) -> bool:
        with self.entered():
            return uplink_options.get_tx_checksum(ifname)

    def set_mtu(self, mtu: int, ifname: str = UPLINK) -> None:
        with self.netlink() as route:
            route.link("set", index=route.link_lookup(ifname=ifname)[0], mtu=mtu)

    def shape(self, *, rate_kbit: int | None = None, delay_ms: float | None = None, burst_bytes: int = 3200,
              latency_ms: int = 400) -> None:
        """Limits (tbf) or delays (netem) what this host sends; no argument takes both away. Raises where the
        kernel lacks the qdisc, so that a test cannot silently run unshaped."""
        with self.netlink() as route:
            index = route.link_lookup(ifname=UPLINK)[0]
            if any(dict(q["attrs"]).get("TCA_KIND") in ("tbf", "netem")
                   for q in route.get_qdiscs(index) if q["parent"] == 0xFFFFFFFF):
                route.tc("del", index=index, root=True)
            if delay_ms is not None and rate_kbit is not None:
                raise ValueError("shape: give a rate or a delay, not both")
            if rate_kbit is not None:
                route.tc("add", "tbf", index, 0x10000, rate=f"{rate_kbit}kbit", burst=burst_bytes,
                         latency=f"{latency_ms}ms")
            if delay_ms is not None:
                route.tc("add", "netem", index, 0x10000, delay=int(delay_ms * 1000))

    def snmp(self, table: str) -> dict[str, int]:
        """One table of /proc/net/snmp (`Udp`, `Ip`, ...) or, for `Udp6` and `Ip6`, of /proc/net/snmp6."""
        with self.entered():
            if table.endswith("6"):
                lines = Path("/proc/thread-self/net/snmp6").read_text(encoding="ascii").split("\n")
                rows = [line.split() for line in lines if line.startswith(table)]
                return {key.removeprefix(table): int(value) for key, value in rows}
            lines = Path("/proc/thread-self/net/snmp").read_text(encoding="ascii").split("\n")
        keys, values = (line.split()[1:] for line in lines if line.startswith(f"{table}:"))
        return dict(zip(keys, map(int, values), strict=True))
