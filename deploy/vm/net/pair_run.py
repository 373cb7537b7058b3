# SPDX-License-Identifier: Apache-2.0
"""One pair of machines through its cells: what a record keeps of each."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from bench.manifest import commit
from deploy.dev import temporary
from deploy.vm import kernels, table
from deploy.vm.image import PROJECT
from deploy.vm.net import checks, emulator, guest_image, hosts, record
from deploy.vm.net.cells import Cell, Pair
from deploy.vm.net.checks import Failed, Trial
from deploy.vm.net.guest_machine import CommandFailed, GuestMachine, MachineDied
from deploy.vm.net.models import MODELS
from deploy.vm.net.network import Network

# Of `ethtool -k`, by the words of the table.
FEATURES = {"tx-checksumming": "tx csum", "rx-checksumming": "rx csum", "tcp-segmentation-offload": "tso",
            "tx-udp-segmentation": "uso", "generic-receive-offload": "gro", "large-receive-offload": "lro", "rx-gro-hw": "hw gro",
            "tx-vlan-offload": "vlan"}
CHECKS = {"udp": checks.udp, "hedge": checks.hedge, "big": checks.big, "tcp": checks.tcp,
          "checksums": checks.client_checksums}


class PairOfMachines:
    """Booted, with names, servers and drivers, until the end of the `with`."""

    def __init__(self, pair: Pair, build_dir: Path, folder: Path):
        self.pair, self._build_dir, self._folder = pair, build_dir, folder
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "PairOfMachines":
        with contextlib.ExitStack() as stack:
            self._boot(stack)
            self._stack = stack.pop_all()
        return self

    def _boot(self, stack: contextlib.ExitStack) -> None:
        model = MODELS[self.pair.model]
        kernel = kernels.get(self.pair.series, "full")
        self.release = kernel.release
        words = emulator.command(model.device)
        scratch = Path(stack.enter_context(temporary.folder("vm")))
        image = guest_image.make(kernel, self._build_dir, scratch)
        network = stack.enter_context(Network())
        machines = []
        for name, cards in (("client", hosts.CLIENT_CARDS), ("backends", hosts.BACKEND_CARDS)):
            machines.append(GuestMachine(name, kernel, image, words, network, model, list(cards), scratch))
            stack.callback(self._end, machines[-1])
        self.client = hosts.client_of(machines[0])
        self.backends = hosts.backends_of(machines[1])
        for machine in machines:
            hosts.boot(machine, model)
        hosts.name_cards(self.client)
        hosts.make_namespaces(self.backends, model)
        self.client.run("mkdir -p /run/node-key")
        self.client.machine.write("/run/node-key/config.yaml", hosts.node_config(1, self.backends, self.client, "auto"))
        self.key = self.client.out("hedgerow-node proxy-key --config /run/node-key/config.yaml net").strip()

    def _end(self, machine: GuestMachine) -> None:
        machine.end()
        (self._folder / f"{machine.name}.console.txt").write_text(machine.console(), encoding="utf-8")

    def __exit__(self, *_) -> None:
        self._stack.close()

    def up(self, cell: Cell) -> Trial:
        for host in (self.client, *self.backends):
            hosts.up(host, cell)
        self.client.machine.write("/run/hedgerow.yaml", hosts.proxy_config(cell, self.backends, self.key))
        self.client.run("hedgerow up --config /run/hedgerow.yaml --log /run/hedgerow.log", timeout_s=120)
        return Trial(cell, self.client, self.backends)

    def down(self, cell: Cell) -> str:
        """"yes", or what `hedgerow down` could not do. The uplinks are gone in any case."""
        status, text = self.client.run("hedgerow down", check=False)
        for host in (self.client, *self.backends):
            hosts.down(host, cell)
        return "yes" if status == 0 else f"FAILED: `hedgerow down` ended with {status}: {text.strip()[-600:]}"


def run_cell(machines: PairOfMachines, cell: Cell, say: Callable[[str], None], control: bool = False) -> dict:
    """A row of the record: what is on, and for each check "yes" or what went wrong. `control`: the last cell of a pair shows
    that its receivers would have noticed a wrong checksum."""
    started = time.monotonic()
    row = {"uplink": cell.uplink, "mtu": cell.mtu, "commit": _commit()}
    trial = machines.up(cell)
    try:
        row |= {"attach": _attach(trial), "offloads": _offloads(trial)}
        for name, check in CHECKS.items():
            row[name] = _result(check, trial)
            say(f"{cell.name}: {name} {row[name].splitlines()[0]}, {time.monotonic() - started:.0f} s")
        for mode in cell.xdp:
            row[mode] = _result(checks.nodes, trial, mode)
            say(f"{cell.name}: {mode} XDP {row[mode].splitlines()[0]}, {time.monotonic() - started:.0f} s")
        for check in (checks.no_wrong_checksum, *([checks.receivers_verify] if control else [])):
            if not row["checksums"].startswith("FAILED") and (found := _result(check, trial)) != "yes":
                row["checksums"] = found
                say(f"{cell.name}: checksums {found}")
    except MachineDied:
        raise  # it runs no command any more
    except BaseException:
        machines.down(cell)
        raise
    row["down"] = machines.down(cell)
    if row["down"] != "yes":
        say(f"{cell.name}: {row['down']}")
    return row


def _commit() -> str:
    """Hedgerow's, with a + where files have changed since. What --record itself writes does not count."""
    found = commit(apart_from=[str(path.relative_to(PROJECT)) for path in (record.FOLDER, table.TARGET)])
    return found["commit"][:8] + ("+" if found["uncommitted_changes"] else "")


def _result(check: Callable[..., str | None], *arguments) -> str:
    try:
        return check(*arguments) or "yes"
    except (Failed, CommandFailed) as why:
        return f"FAILED: {why}"


def _attach(trial: Trial) -> str:
    return json.loads(trial.client.out("hedgerow status --json"))["uplinks"][0]["attach"]


def _offloads(trial: Trial) -> list[str]:
    """What is on at the client's card."""
    on = {line.partition(":")[0].strip() for line in trial.client.out("ethtool -k eth0").splitlines()
          if line.partition(":")[2].split()[:1] == ["on"]}
    return [word for feature, word in FEATURES.items() if feature in on]
