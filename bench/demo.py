# SPDX-License-Identifier: Apache-2.0
"""The demo: a DNS service whose primary stops for a second now and then, queried without hedging, with hedging in the
client (C++, Python), and by an unmodified client through Hedgerow. `./dev demo` calls it.

Shows progress while it runs, a table at the end, and draws results/demo/demo.png. Exits 0 only when it worked, and
takes everything down, after Ctrl-C too; with --keep it leaves the lab up and says how to look around.
"""

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path

from bench import product, stopping
from bench.client_run import MODES
from bench.demo_progress import ProgressLine
from bench.dns_rig import DnsRig, DnsRun, Staller
from bench.manifest import ROOT, binary, config_hash, manifest
from bench.outcome import Results, at_least, at_most, print_checks, print_table
from deploy.lab import Lab, LabInUse
from deploy.lab import netns as lab_netns

NAME = TAG = INSTANCE = "demo"
RATE = 1000
SECONDS = 20
_PINS = Path("/sys/fs/bpf/hedgerow") / INSTANCE
_LABELS = {"baseline": "no hedging", "app-cc": "hedging in the client, C++", "app-py": "hedging in the client, Python",
           "wheel": "Hedgerow, client unchanged"}
_SHORT_LABELS = {"baseline": "no hedging", "app-cc": "in C++", "app-py": "in Python", "wheel": "Hedgerow"}


def run_modes(rig: DnsRig, results: Results, seconds: float, proxy_of: contextlib.ExitStack) -> list[dict]:
    rows = []
    for mode in MODES:
        proxy = proxy_of.enter_context(rig.hedgerow()) if mode == "wheel" else None
        line = ProgressLine(_SHORT_LABELS[mode], seconds)
        done = rig.run(mode, rate=RATE, seconds=seconds, stall=True, proxy=proxy, on_tick=line.on_tick,
                       csv=results.raw / f"{mode}.csv")
        row = done.figures(mode)
        row["label"], row["config_hash"] = _LABELS[mode], config_hash(rig.config(mode, RATE, seconds, True))
        rows.append(row)
        line.finish(row)
        _write_raw(results, mode, row, done)
    return rows


def _write_raw(results: Results, mode: str, row: dict, done: DnsRun) -> None:
    results.write_raw(mode, {**row, "argv": done.client.argv, "client": done.client.report,
                             "cpu": done.client.spent.as_json(), "replica_packets": done.replica_packets,
                             "status": done.status})


def what_worked(rows: list[dict]) -> list:
    """The demo shows something only if the stall hurts without hedging and does not hurt with Hedgerow."""
    found = {row["mode"]: row for row in rows}
    baseline, wheel = found.get("baseline", {}), found.get("wheel", {})
    return [at_least("without hedging: slowest answer", baseline.get("max_ms"), 500, "ms"),
            at_most("Hedgerow: p99", wheel.get("p99_ms"), 25, "ms"),
            at_most("Hedgerow: answers lost", wheel.get("lost"), 0),
            at_most("Hedgerow: duplicates that reached the client", wheel.get("duplicates"), 0),
            at_least("Hedgerow: every request accounted for", int(wheel.get("identity_ok", False)), 1)]


def take_down() -> None:
    """Everything a demo may have left, whoever started it and however it ended; a running demo is left alone."""
    registry = Lab(TAG).registry
    if not registry.try_lock():
        raise LabInUse(TAG)
    try:
        with contextlib.suppress(LookupError):
            client = Lab.attach(TAG).client
            socket = client.scratch(f"hedgerow-{INSTANCE}") / "admin.sock"
            if socket.exists():
                client.run([binary("hedgerow"), "down", "--socket", socket], check=False, timeout=60)
            client.run([binary("hedgerow"), "clean", "--instance", INSTANCE], check=False, timeout=60)
    finally:
        registry.unlock()
    Lab.clean(TAG)


def leftovers() -> list[str]:
    return [*lab_netns.of_lab(TAG), *([str(_PINS)] if _PINS.exists() else [])]


def show(rows: list[dict], results: Results, rig_configs: dict) -> bool:
    checks = what_worked(rows)
    results.write_summary(manifest(rig_configs, load_average=os.getloadavg()), rows, checks)
    print(f"\n{RATE:,} DNS queries/s to two servers; the first was stopped for {Staller.for_s:.0f} s in every "
          f"{Staller.every_s:.0f}; hedged after 10 ms. Times in ms.\n")
    print_table(rows, {"label": "", "n": "queries", "lost": "lost", "p50_ms": "p50", "p99_ms": "p99",
                       "p999_ms": "p99.9", "max_ms": "slowest", "hedges": "hedges", "extra_load": "extra load",
                       "cpu_us_per_request": "CPU us/query"})
    worked = print_checks(checks)
    from plots import demo as plot  # matplotlib is slow to load and not needed before
    print(f"\nplot: {plot.draw(results.folder).relative_to(ROOT)}")
    return worked


def say_how_to_look_around(rig: DnsRig, proxy: product.Product) -> None:
    client, vip = rig.lab.client.netns, rig.service["vip"]
    hedgerow = binary("hedgerow")
    print(f"""
the lab is still up: client 10.77.0.1, servers a ({rig.to.primary}) and b ({rig.to.standby}), service {vip}
  ask:        sudo ip netns exec {client} dig @{vip} www.example.test +short
  look:       sudo {hedgerow} status --socket {proxy.socket}
  stall a:    sudo kill -STOP -{rig.primary.process.pid}     wake it: sudo kill -CONT -{rig.primary.process.pid}
  a shell:    sudo /usr/bin/python3 -m deploy.lab shell --tag {TAG}
  take down:  sudo ./dev demo --down""")


def demo(arguments: argparse.Namespace) -> int:
    results = Results(NAME)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(TAG, replicas=2))
        rig = stack.enter_context(DnsRig(lab, INSTANCE))
        print(f"lab up: a client, two DNS servers (nsd and knot); {len(MODES)} ways to ask, {arguments.seconds:g} s "
              "each\n", flush=True)
        proxy_of = stack.enter_context(contextlib.ExitStack())
        rows = run_modes(rig, results, arguments.seconds, proxy_of)
        configs = {row["config_hash"]: rig.config(row["mode"], RATE, arguments.seconds, True) for row in rows}
        worked = show(rows, results, configs)
        if arguments.keep:
            proxy = rig.hedgerow()
            stack.pop_all()
            proxy_of.pop_all()
            rig.keep()
            lab.keep()
            say_how_to_look_around(rig, proxy)
            return 0 if worked else 1
    left = leftovers()
    print(f"took everything down; {time.monotonic() - started:.0f} s in all" if not left
          else f"LEFT BEHIND: {', '.join(left)}")
    return 0 if worked and not left else 1


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo", description="Hedge a real DNS service while a server stalls.")
    parser.add_argument("--keep", action="store_true", help="leave the lab up and say how to look around")
    parser.add_argument("--down", action="store_true", help="take down what --keep left, and do nothing else")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each way of asking is measured")
    arguments = parser.parse_args(argv)
    if not 5 <= arguments.seconds <= 600:
        parser.error("--seconds must be 5 to 600: the first stall comes after 3 s")
    return arguments


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    kept = False
    try:
        take_down()
        if arguments.down:
            print("the demo's lab is down")
            return 0
        code = demo(arguments)
        kept = arguments.keep
        return code
    except LabInUse:
        print("demo: another demo is running", file=sys.stderr)
        kept = True  # It is that one's, not ours to take down.
        return 1
    finally:
        if not kept:
            stopping.ignore_further_signals()
            take_down()


if __name__ == "__main__":
    stopping.run(main)
