# SPDX-License-Identifier: Apache-2.0
"""Hedgerow in front of two replicas, one of which is stopped at random times for random whiles.

Run in a `det` machine by parts/stalls.sh: the times come from the kernel's random numbers, and those from the machine's
seed alone. So one seed gives one history, printed to the microsecond, and another seed another. `--plan` only prints what is drawn.
"""

import os
import random
import signal
import sys
import threading
import time

from bench.client_run import Destinations, command, run_client
from bench.product import Product, service, service_figures
from bench.replicas import BenchServer
from deploy.lab import VIP_RAW, Lab

PORT = 9000
STALLS = 8
LOAD = ("--workload=raw", "--loop=open", "--rate=500", "--requests=2000", "--warmup=50", "--timeout=1s",
        "--linger=500ms")


def stall(pid: int, plan: list[tuple[float, float]], started: float) -> None:
    """Stops the process at each planned moment (seconds after `started`) and lets it go on after the while."""
    for at_s, while_s in plan:
        time.sleep(max(0.0, started + at_s - time.monotonic()))
        os.kill(pid, signal.SIGSTOP)
        print(f"stopped at {(time.monotonic() - started) * 1e6:.0f} us for {while_s * 1e6:.0f} us", flush=True)
        time.sleep(while_s)
        os.kill(pid, signal.SIGCONT)


def main() -> int:
    dice = random.Random(os.urandom(16))
    plan = sorted((dice.uniform(0.2, 3.8), dice.uniform(0.005, 0.12)) for _ in range(STALLS))
    print("drawn: " + ", ".join(f"{at_s * 1e6:.0f} us for {while_s * 1e6:.0f} us" for at_s, while_s in plan), flush=True)
    if sys.argv[1:] == ["--plan"]:
        return 0
    with Lab("stalls", replicas=2) as lab:
        a, b = lab.replica("a"), lab.replica("b")
        to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_RAW[0]}:{PORT}")
        entry = service("raw", VIP_RAW[0], PORT, "raw", {"a": a.ipv4, "b": b.ipv4}, delay="10ms")
        servers = [BenchServer(host, "hr-echo-server", [f"--listen={host.ipv4}:{PORT}"]) for host in (a, b)]
        with servers[0] as first, servers[1], Product(lab.client, "stalls", [entry]) as proxy:
            faults = threading.Thread(target=stall, args=(first.pid, plan, time.monotonic()))
            faults.start()
            client = run_client(lab.client, command("wheel", to, LOAD, "10ms"), None)
            faults.join()
            figures = service_figures(proxy.status_at_rest(), "raw")
    summary = client.summary
    print(" ".join(f"{key}={summary[key]}" for key in ("n", "lost", "p50_ms", "p99_ms", "p999_ms", "max_ms")))
    print(" ".join(f"{key}={figures[key]}" for key in ("hedges", "failover_sends", "fire_error_p50_us", "fire_error_p99_us",
                                                       "suspected", "identity_ok", "clock_laps")))
    # A stop that is noticed before the first of its requests falls due needs no hedge: they all go around it.
    hedged = figures["hedges"] + figures["failover_sends"] > 0
    healthy = summary["lost"] == 0 and figures["identity_ok"] and hedged
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
