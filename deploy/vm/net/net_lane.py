# SPDX-License-Identifier: Apache-2.0
"""`./dev vm net test` and `./dev vm net shell`."""

import resource
import sys
import time
from collections.abc import Collection
from pathlib import Path

from deploy.vm import lane, table
from deploy.vm.image import PROJECT
from deploy.vm.kernels import Broken, Unavailable
from deploy.vm.net import checks, record
from deploy.vm.net.cells import Pair, pairs
from deploy.vm.net.guest_machine import CommandFailed, EmulatorFailed, MachineDied
from deploy.vm.net.pair_run import PairOfMachines, run_cell


def test(series: Collection[str], models: Collection[str], *, smoke: bool, only: list[str] | None, keep_record: bool,
         reports: Path | None, build_dir: Path) -> int:
    """Every pair of machines; 0 when all did what the record says. One that cannot be had is a skip, said loudly."""
    folder = reports or PROJECT / "results" / "vm"
    ended_well = True
    if not (chosen := pairs(series, models, smoke=smoke, only=only)):
        raise Broken(f"no cell is of kernel {' or '.join(series)} with card {' or '.join(models)}"
                     f"{' and named ' + ' or '.join(only) if only else ''}: docs/KERNELS.md has all cells")
    for pair in chosen:
        into = folder / f"vm-net-{pair.name}"
        into.mkdir(parents=True, exist_ok=True)
        state, text = _run(pair, into, build_dir, keep_record)
        lane.report(into / "lane.xml" if state == "skipped" else into / "part-net.xml",
                     "lane" if state == "skipped" else "net", state, text)
        ended_well = ended_well and state != "failed"
    if keep_record:
        table.write_recorded()
    return 0 if ended_well or reports else 1


def _run(pair: Pair, folder: Path, build_dir: Path, keep_record: bool) -> tuple[str, str]:
    started = time.monotonic()
    rows: list[dict] = []

    def say(text: str) -> None:
        print(f"vm net {pair.name}: {text}", flush=True)

    def run_all() -> None:
        rows.clear()
        with PairOfMachines(pair, build_dir, folder) as machines:
            say(f"booted in {time.monotonic() - started:.0f} s")
            for cell in pair.cells:
                rows.append(run_cell(machines, cell, say, control=cell is pair.cells[-1]))
                if keep_record and not record.failures(pair, rows):
                    record.write(pair, machines.release, rows)

    try:
        try:
            run_all()
        except EmulatorFailed:
            say("the emulator failed (a stale int3), once more")
            run_all()
    except Unavailable as why:
        print(f"vm net: SKIPPED: {pair.name}: {why}", file=sys.stderr)
        return "skipped", str(why)
    except (Broken, MachineDied, CommandFailed, checks.Failed) as why:
        say(f"FAILED: {why}")
        return "failed", str(why)
    wrong = record.failures(pair, rows)
    if not keep_record:
        wrong += record.differences(pair, rows)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"{'FAILED' if wrong else 'passed'} in {time.monotonic() - started:.0f} s "
        f"(all machines so far: {used.ru_utime + used.ru_stime:.0f} s of a processor)")
    for line in wrong:
        say(line)
    return ("failed", "\n".join(wrong)) if wrong else ("passed", "")


def shell(pair: Pair, build_dir: Path) -> int:
    """The hosts of one cell with the proxy up, and a prompt that runs commands on them."""
    folder = PROJECT / "results" / "vm" / "vm-net-shell"
    folder.mkdir(parents=True, exist_ok=True)
    with PairOfMachines(pair, build_dir, folder) as machines:
        machines.up(pair.cells[0])
        everyone = {host.name: host for host in (machines.client, *machines.backends)}
        print("HOST COMMAND runs a command on one of client, a, b, c; an end of file ends it. Each backend's DNS server and the "
              "proxy run: client dig @10.99.0.53 whoami.example.test TXT")
        while True:
            try:
                name, _, command = input("> ").strip().partition(" ")
            except EOFError:
                return 0
            if name not in everyone:
                print(f"one of {', '.join(everyone)} comes first")
                continue
            print(everyone[name].run(command, check=False)[1], end="")
