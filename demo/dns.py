# SPDX-License-Identifier: Apache-2.0
"""The demo: a DNS service whose primary stops for a second now and then, queried without hedging, with hedging in the
client, and by an unmodified client through Hedgerow. `./dev demo dns` calls it.

Shows progress while it runs, a table at the end, and draws results/demo-dns/demo-dns.png. Exits 0 only when it worked,
and takes everything down, after Ctrl-C too; with --keep it leaves the lab up and says how to look around.
"""

import argparse
import contextlib
import csv
from pathlib import Path

from bench import experiment, product, series
from bench.client_run import MODES
from bench.dns_rig import DnsRig, Staller, Stalls
from bench.histogram import Histogram
from bench.manifest import binary
from bench.outcome import at_least, at_most
from demo import stage
from demo.terminal import Live
from deploy.lab import Lab
from plots import looks
from plots.charts import Charts, Tails, Waits

NAME = "demo-dns"
STAGE = stage.Stage(tag="demodns", instance="demo-dns")
RATE = 1000
SECONDS = 20
GIVEN_UP_MS = 2000.0  # the client's time-out in bench/dns_rig.py
_LABELS = {"baseline": "no hedging", "app-cc": "hedging in the client", "wheel": "Hedgerow, client unchanged"}
_BAR = 10  # All of a line fits 80 columns.
_PLAIN_EVERY = 5  # seconds
_SHORT_LABELS = {"baseline": "no hedging", "app-cc": "in the client", "wheel": "Hedgerow"}


def _series(folder: Path, summary: dict) -> tuple[dict, dict]:
    found = {}
    for row in summary["rows"]:
        with open(folder / "raw" / f"{row['mode']}.csv", encoding="ascii", newline="") as file:
            lines = [(float(line["intended_us"]) / 1e6, float(line["latency_us"]) / 1e3 if line["latency_us"] else None)
                     for line in csv.DictReader(file)]
        # The stalls count from the first measured request, which comes after the warm-up.
        origin_s, waits = min(at_s for at_s, _ in lines), Histogram()
        for _, wait_ms in lines:
            waits.record(int((GIVEN_UP_MS if wait_ms is None else wait_ms) * 1e6))
        first_s, every_s, for_s = summary["manifest"]["configs"][row["config_hash"]]["stall"]
        end_s = max(at_s for at_s, _ in lines) - origin_s
        stalls = [[first_s + number * every_s, first_s + number * every_s + for_s] for number in range(1000)
                  if first_s + number * every_s < end_s]
        found[row["mode"]] = {"kills_s": stalls, "tail_ms": series.tail(waits, 1e6),
                              "slots": series.slots_of(((at_s - origin_s, wait_ms) for at_s, wait_ms in lines), GIVEN_UP_MS)}
    return {}, found


def what_worked(rows: list[dict]) -> list:
    """The demo shows something only if the stall hurts without hedging and does not hurt with Hedgerow."""
    found = {row["mode"]: row for row in rows}
    baseline, wheel = found.get("baseline", {}), found.get("wheel", {})
    return [at_least("without hedging: slowest answer", baseline.get("max_ms"), 500, "ms"),
            at_most("Hedgerow: p99", wheel.get("p99_ms"), 25, "ms"),
            at_most("Hedgerow: answers lost", wheel.get("lost"), 0),
            at_most("Hedgerow: duplicates that reached the client", wheel.get("duplicates"), 0),
            at_least("Hedgerow: every request accounted for", int(wheel.get("identity_ok", False)), 1)]


def say_how_to_look_around(rig: DnsRig, proxy: product.Product) -> None:
    client, vip = rig.lab.client.netns, rig.service["vip"]
    hedgerow = binary("hedgerow")
    print(f"""
the lab is still up: client 10.77.0.1, servers a ({rig.to.primary}) and b ({rig.to.standby}), service {vip}
  ask:        sudo ip netns exec {client} dig @{vip} www.example.test +short
  look:       sudo {hedgerow} status --socket {proxy.socket}
  stall a:    sudo kill -STOP -{rig.primary.process.pid}     wake it: sudo kill -CONT -{rig.primary.process.pid}
  a shell:    sudo /usr/bin/python3 -m deploy.lab shell --tag {STAGE.tag}
  take down:  sudo ./dev demo dns --down""")


class ProgressLine:
    """One per mode, which updates itself on a terminal; plain lines now and then elsewhere."""

    def __init__(self, label: str):
        self._label = label
        self._screen = Live(_PLAIN_EVERY)
        self._ticks = 0
        self._screen.live(f"{label:15} starting")

    def on_tick(self, event: dict, staller: Staller) -> None:
        if event["event"] != "tick" or event["sent"] >= event["total"]:
            return
        self._ticks += 1
        share = event["sent"] / event["total"]
        bar = "#" * round(share * _BAR)
        state = "a STOPPED" if staller.stopped else "a runs   "
        self._screen.live(f"{self._label:15} [{bar:{_BAR}}] {self._ticks:2d} s  {state}  p50 {event['p50_ms']:5.1f}  "
                          f"slowest {event['max_ms']:6.1f} ms")

    def finish(self, row: dict) -> None:
        self._screen.stay(f"{self._label:15} done: p99 {row['p99_ms']:7.1f} ms, slowest {row['max_ms']:7.1f} ms, "
                          f"{row['lost']} lost")


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(STAGE.tag, replicas=2))
        rig = stack.enter_context(DnsRig(lab, STAGE.instance))
        print(f"lab up: a client, two DNS servers (nsd and knot); {len(MODES)} ways to ask, {arguments.seconds:g} s "
              "each\n", flush=True)
        for mode in MODES:
            proxy = stack.enter_context(rig.hedgerow()) if mode == "wheel" else None
            progress, turn = ProgressLine(_SHORT_LABELS[mode]), running.turn(1, mode=mode)
            done = rig.run(mode, rate=RATE, seconds=arguments.seconds, proxy=proxy, on_tick=progress.on_tick, csv=running.results.raw / f"{mode}.csv")
            row = {**done.figures(mode), "label": _LABELS[mode]}
            progress.finish(row)
            turn.done({"row": row, "argv": done.client.argv, "client": done.client.report, "cpu": done.client.spent.as_json(),
                       "replica_packets": done.replica_packets, "status": done.status, "config": rig.config(mode, RATE, arguments.seconds)})
        if arguments.keep:
            stack.pop_all()
            rig.keep()
            lab.keep()
            arguments.kept = (rig, proxy)
    print(f"\n{RATE:,} DNS queries/s to two servers; the first was stopped for {Stalls.for_s:.0f} s in every "
          f"{Stalls.every_s:.0f}; hedged after 10 ms. Times in ms.\n")


EXPERIMENT = experiment.Experiment(
    NAME, "Hedge a real DNS service while a server stalls.", ("mode",), what_worked, experiment.own_rows,
    {"label": "", "n": "queries", "lost": "lost", "p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "slowest", "hedges": "hedges",
     "extra_load": "extra load", "cpu_us_per_request": "CPU us/query"},
    Charts("DNS while a server stops: the longest wait of each moment, and the median", looks.MODES, "mode",
           (Waits(no_answer_ms=GIVEN_UP_MS), Tails("All queries", key=("mode",))), _series),
    # The first stall comes after 3 s.
    measure=measure, rounds=1, settle=stage.settle,
    options=(*stage.OPTIONS, experiment.number("--seconds", SECONDS, 5.0, 600, help="how long each way of asking is measured")))


def main(argv: list[str]) -> int:
    return stage.main(STAGE, EXPERIMENT.parse(argv), lambda arguments: STAGE.show(EXPERIMENT, arguments, say_how_to_look_around))
