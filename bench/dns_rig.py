# SPDX-License-Identifier: Apache-2.0
"""A DNS service of two real servers (nsd is the primary, knot the standby), clients of every mode, and a primary that
is stopped now and then. Shared by the demo and by bench/dns_stall.py.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench import product
from bench.client_run import ClientRun, Destinations, command, run_client
from bench.replicas import packets_received
from deploy.lab import VIP_DNS, Lab
from deploy.lab.network_faults import NetworkFaults
from deploy.lab.servers import Knot, Nsd
from deploy.lab.servers.zone import NAMES

DELAY = "10ms"
PORT = 53
# Twice the longest stall: a client that waits the stall out is answered, and only what was dropped is lost.
_CLIENT_FLAGS = ("--workload=dns", f"--names={NAMES}", "--loop=open", "--timeout=2s", "--linger=500ms", "--warmup=200")


@dataclasses.dataclass(frozen=True)
class Stalls:
    """When a server stands still, from the first measured request on."""

    first_after_s: float = 3.0
    every_s: float = 10.0
    for_s: float = 1.0


class Staller:
    """Stops and wakes a server by the clock, in a thread. Started by the first measured request, so that every mode
    meets the stalls at the same requests; a stopped server is always woken at the end."""

    def __init__(self, server: Nsd, times: Stalls):
        self.server = server
        self.times = times
        self.stopped = False
        self.stalls = 0
        self._failed: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            self._stall_by_the_clock()
        except Exception as failed:  # whatever it was: a run whose stalls have ended shows nothing
            self._failed = failed

    def _stall_by_the_clock(self) -> None:
        next_s = time.monotonic() + self.times.first_after_s
        while not self._end.wait(max(0.0, next_s - time.monotonic())):
            try:
                self.server.stall()
                self.stopped = True
                self.stalls += 1
                self._end.wait(self.times.for_s)
            finally:
                self.server.resume()
                self.stopped = False
            next_s += self.times.every_s


@dataclasses.dataclass
class DnsRun:
    client: ClientRun
    stalls: int
    replica_packets: int
    status: dict | None
    not_held: int = 0  # answers that the delay line had no room for

    def figures(self, mode: str) -> dict:
        """What both experiments report of a run."""
        summary = self.client.summary
        figures = {key: summary[key] for key in (
            "n", "lost", "timeouts", "wrong", "duplicates", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms",
            "fire_error_p50_us", "fire_error_p99_us", "hedges")}
        figures["suspected"] = 0
        if self.status is not None:
            seen = product.service_figures(self.status, "dns")
            figures.update({key: seen[key] for key in ("fire_error_p50_us", "fire_error_p99_us", "hedges",
                                                       "suspected", "failover_sends", "identity_ok")})
        sent = summary["n"] + summary["warmup"]
        return {"mode": mode, **figures, "stalls": self.stalls, "not_held": self.not_held, "extra_load": (self.replica_packets - sent) / sent,
                "cpu_us_per_request": self.client.spent.experiment_us / summary["n"]}


class DnsRig:
    """Servers are up inside the `with` block. With `answer_delay_ms` every answer of both servers is held that long."""

    def __init__(self, lab: Lab, instance: str, answer_delay_ms: float = 0.0):
        self.lab = lab
        a, b = lab.replica("a"), lab.replica("b")
        self.primary, self.standby = Nsd(a, PORT), Knot(b, PORT)
        self.to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_DNS[0]}:{PORT}")
        self.service = product.service("dns", VIP_DNS[0], PORT, "dns", {"a": a.ipv4, "b": b.ipv4}, delay=DELAY)
        self.answer_delay_ms = answer_delay_ms
        self._held: NetworkFaults | None = None
        self._instance = instance
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "DnsRig":
        with contextlib.ExitStack() as stack:
            for server in (self.primary, self.standby):
                stack.enter_context(server)
            if self.answer_delay_ms:
                self._held = stack.enter_context(NetworkFaults(self.lab))
                self._held.change([(server.host.name, self.lab.client.name) for server in (self.primary, self.standby)], delayed=1.0,
                            delays_ms=(self.answer_delay_ms, self.answer_delay_ms))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc) -> None:
        self._stack.__exit__(*exc)

    def keep(self) -> None:
        """Leaves the servers running when the block ends."""
        self._stack.pop_all()

    def hedgerow(self) -> product.Product:
        return product.Product(self.lab.client, self._instance, [self.service])

    def config(self, mode: str, rate: int, seconds: float, stalls: Stalls | None = Stalls()) -> dict:
        """The settings of a run, for the manifest."""
        return {"mode": mode, "client": command(mode, self.to, self._flags(rate, seconds), DELAY)[1:],
                "answer_delay_ms": self.answer_delay_ms, "product": [self.service] if mode == "wheel" else None,
                "stall": list(dataclasses.astuple(stalls)) if stalls else None,
                "servers": [self.primary.name, self.standby.name]}

    def run(self, mode: str, *, rate: int, seconds: float, stalls: Stalls | None = Stalls(), csv: Path | None = None,
            proxy: product.Product | None = None,
            on_tick: Callable[[dict, Staller], None] | None = None) -> DnsRun:
        """One client run; mode `wheel` needs `proxy`, which must be up."""
        staller = Staller(self.primary, stalls or Stalls())

        def on_event(event: dict) -> None:
            if event["event"] == "measuring" and stalls:
                staller.start()
            if event["event"] == "measured":
                staller.end()
            if on_tick is not None:
                on_tick(event, staller)

        argv = command(mode, self.to, self._flags(rate, seconds), DELAY)
        if csv is not None:
            argv.append(f"--csv={csv}")
        replicas = [self.primary.host, self.standby.host]
        before, not_held = sum(packets_received(host) for host in replicas), self._not_held()
        try:
            client = run_client(self.lab.client, argv, self.lab,
                                on_event=on_event)
        finally:
            staller.end()
        received = sum(packets_received(host) for host in replicas) - before
        return DnsRun(client, staller.stalls, received, proxy.status_at_rest() if proxy is not None else None, self._not_held() - not_held)

    def _not_held(self) -> int:
        return sum(link.not_delayed for link in self._held.counted().values()) if self._held is not None else 0

    @staticmethod
    def _flags(rate: int, seconds: float) -> list[str]:
        return [*_CLIENT_FLAGS, f"--rate={rate}", f"--seconds={seconds}"]
