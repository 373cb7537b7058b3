# SPDX-License-Identifier: Apache-2.0
"""Sources and a collector's host for the experiments on steering: each source has an address of its own, which lives on the client host
by a local route and reaches the collector over the lab's switch. Used by bench/steer.py and chaos/.
"""

import dataclasses
import json
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from bench.client_run import ClientRun, EventHook, run_client
from bench.manifest import binary
from bench.pinning import CLIENT_CPU, on_cpu
from deploy.lab import Host, Lab

PORT = 2055
NETWORKS = {4: ("10.79.0.0/16", "10.79.0.1"), 6: ("fd79::/64", "fd79::1")}  # of the sources, and the first one's address
MESSAGE_BYTES = 256  # a NetFlow datagram of four flows
_COUNT = struct.Struct("<QQ")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of one source, at one worker."""

    udp: int
    tcp: int


def route_sources(lab: Lab, server: Host) -> None:
    """Every address of the networks is the client host's own, and the server reaches it there."""
    for family, (network, _) in NETWORKS.items():
        version = f"-{family}"
        lab.client.run(["ip", version, "route", "replace", "local", network, "dev", "lo"])
        gateway = lab.client.ipv4 if family == 4 else lab.client.ipv6
        server.run(["ip", version, "route", "replace", network, "via", gateway])
    for host in (lab.client, server):  # bursts of 10,000 connects are to be the systems' limits, not the kernel's defaults
        host.sysctl("net/core/somaxconn", 16_384)
        host.sysctl("net/ipv4/tcp_max_syn_backlog", 16_384)


def target(host: Host, family: int = 4, port: int = PORT) -> str:
    return f"{host.ipv4}:{port}" if family == 4 else f"[{host.ipv6}]:{port}"


def load_command(to: str, sources: int, transport: str, first_source: str = "", **flags) -> list[str]:
    first = first_source or NETWORKS[6 if to.startswith("[") else 4][1]
    return [str(binary("hr-steer-load")), f"--target={to}", f"--first_source={first}", f"--sources={sources}", f"--transport={transport}",
            f"--bytes={MESSAGE_BYTES}", *(f"--{name}={value}" for name, value in flags.items())]


def stream(lab: Lab, argv: Sequence[str], on_event: EventHook | None = None) -> ClientRun:
    """A run of the sources to its end, with the processor time of all processes in the lab."""
    return run_client(lab.client, on_cpu(list(argv), CLIENT_CPU), lab, on_event=on_event)


def visit(lab: Lab, argv: Sequence[str], folder: Path, timeout_s: float = 120) -> dict:
    out = folder / "visits.json"
    lab.client.run([*argv, f"--out={out}"], timeout=timeout_s)
    return json.loads(out.read_text(encoding="ascii"))


def counts_of(file: Path) -> list[Counts]:
    """By source, as a worker keeps them; empty where no worker began."""
    return [Counts(*pair) for pair in _COUNT.iter_unpack(file.read_bytes())] if file.exists() else []


def counted(by_slot: Sequence[Sequence[Counts]]) -> int:
    return sum(each.udp + each.tcp for slot in by_slot for each in slot)


def counted_when_settled(read, at_least: int, within_s: float = 2.0) -> int:
    """The count once it reaches `at_least` or has not grown for the time: a worker may still have a queue."""
    deadline, last = time.monotonic() + within_s, -1
    while True:
        now = counted(read())
        if now >= at_least or time.monotonic() > deadline:
            return now
        if now != last:
            last, deadline = now, time.monotonic() + within_s
        time.sleep(0.02)


def workers_met(by_slot: Sequence[Sequence[Counts]], sources: int) -> list[set[int]]:
    """Of each source, the slots that counted a message of it, by either transport."""
    met = [set() for _ in range(sources)]
    for slot, counts in enumerate(by_slot):
        for source, each in enumerate(counts):
            if each.udp or each.tcp:
                met[source].add(slot)
    return met


def worst_over_mean(by_slot: Sequence[Sequence[Counts]]) -> float | None:
    """The share of the worker with most messages, of an even one."""
    totals = [sum(each.udp + each.tcp for each in slot) for slot in by_slot]
    return max(totals) * len(totals) / sum(totals) if sum(totals) else None
