# SPDX-License-Identifier: Apache-2.0
"""Each engine with each way to attach: does it come up, and how well does it keep the hedge delay?

Run in a `det` machine by parts/engines.sh, one CPU and virtual time: the figures are a model of path lengths and
timers, without caches or contention, and repeat to the nanosecond. Writes a JSON list of rows; docs/KERNELS.md is
made of it.
"""

import json
import sys
from pathlib import Path

from bench.client_run import Destinations, command, run_client
from bench.delay_line import MODES, DelayLine
from bench.product import Product, service, service_figures
from bench.replicas import BenchServer
from deploy.lab import VIP_RAW, CommandFailed, Lab

PORT = 9000
DELAY_MS, SERVICE_MS = 10.0, 2.0
# A third of the ids stall, none so many in a row that the leader were suspect and got no hedge any more. Of some 400 hedges the p99 is
# the fifth from the top; of less than 100 it would be the one that happened to meet a timer's interrupt.
LOAD = ("--workload=raw", "--loop=closed", "--requests=1200", "--pause=1ms", "--warmup=50", "--timeout=1s",
        "--linger=500ms")
SERVER = ("--rule=hash", "--fraction=0.35", "--seed=1", f"--service={SERVICE_MS:.0f}ms", "--stall=100ms", "--ttl=1s")

# By its name in the table: a mode of benchmarks, and what it adds to the configuration. The last three are no engines of
# Hedgerow's: the published technique, by hr-delay-line.
ENGINES = {"wheel, htb clock": ("wheel", {"clock": {"kind": "htb"}}),
           "wheel, fq clock": ("wheel", {"clock": {"kind": "fq"}}),
           **{f"qdisc, {line}": (mode, {}) for mode, line in MODES.items()}}
ATTACH = ("tcx", "clsact")


def measure(lab: Lab, engine: str, attach: str) -> dict:
    a, b = lab.replica("a"), lab.replica("b")
    to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_RAW[0]}:{PORT}")
    entry = service("raw", VIP_RAW[0], PORT, "raw", {"a": a.ipv4, "b": b.ipv4}, delay=f"{DELAY_MS:.0f}ms",
                    budget="100%")
    shared = lab.client.scratch("seen") / "ids"
    shared.unlink(missing_ok=True)
    row = {"engine": engine, "attach": attach}
    mode, settings = ENGINES[engine]
    try:
        hedging = (DelayLine(lab.client, entry, MODES[mode], attach) if mode in MODES else
                   Product(lab.client, "engines", [entry], attach=attach, **settings))
        with (BenchServer(a, "hr-echo-server", [f"--listen={a.ipv4}:{PORT}", f"--shared={shared}", *SERVER]),
              BenchServer(b, "hr-echo-server", [f"--listen={b.ipv4}:{PORT}", f"--shared={shared}", *SERVER]),
              hedging as proxy):
            client = run_client(lab.client, command(mode, to, LOAD, f"{DELAY_MS:.0f}ms"), None)
            status = proxy.status_at_rest()
    except CommandFailed as why:
        return {**row, "offered": False, "why": str(why).strip().splitlines()[-1]}
    figures = service_figures(status, "raw")
    return {**row, "offered": True, "lost": client.summary["lost"], "identity_ok": figures["identity_ok"],
            "hedges": figures["hedges"], "laps": figures["clock_laps"], "p50_ms": client.summary["p50_ms"],
            "p99_ms": client.summary["p99_ms"], "fire_error_p50_us": figures["fire_error_p50_us"],
            "fire_error_p99_us": figures["fire_error_p99_us"]}


def main(argv: list[str]) -> int:
    rows = []
    with Lab("engines", replicas=2) as lab:
        for engine in ENGINES:
            for attach in ATTACH:
                rows.append(measure(lab, engine, attach))
                print(json.dumps(rows[-1]), flush=True)
    Path(argv[0]).write_text(json.dumps(rows, indent=1) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
