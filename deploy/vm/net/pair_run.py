# SPDX-License-Identifier: Apache-2.0
"""One pair of machines through its cells: what a record keeps of each."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deploy.vm import kernels
from deploy.vm.net import checks, emulator, guest_image, hosts
from deploy.vm.net.cells import Cell, Pair
from deploy.vm.net.checks import Failed, Trial
from deploy.vm.net.guest_machine import CommandFailed, GuestMachine
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
        self._scratch = tempfile.TemporaryDirectory(prefix="hedgerow-vm-net-")
        self._network = Network()
        self._machines: list[GuestMachine] = []

    def __enter__(self) -> "PairOfMachines":
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _boot(self) -> None:
        model = MODELS[self.pair.model]
        kernel = kernels.get(self.pair.series, "full")
        self.release = kernel.release
        words = emulator.command(model.device)
        scratch = Path(self._scratch.name)
        image = guest_image.make(kernel, self._build_dir, scratch)
        self._network.__enter__()
        for name, cards in (("client", hosts.CLIENT_CARDS), ("backends", hosts.BACKEND_CARDS)):
            self._machines.append(GuestMachine(name, kernel, image, words, self._network, model, list(cards), scratch))
        self.client = hosts.client_of(self._machines[0])
        self.backends = hosts.backends_of(self._machines[1])
        for machine in self._machines:
            hosts.boot(machine, model)
        hosts.name_cards(self.client)
        hosts.make_namespaces(self.backends, model)
        self.client.run("mkdir -p /run/node-key")
        self.client.machine.write("/run/node-key/config.yaml", hosts.node_config(1, self.backends, self.client, "auto"))
        self.key = self.client.out("hedgerow-node proxy-key --config /run/node-key/config.yaml net").strip()

    def __exit__(self, *_) -> None:
        for machine in self._machines:
            machine.end()
            (self._folder / f"{machine.name}.console.txt").write_text(machine.console(), encoding="utf-8")
        self._network.__exit__()
        self._scratch.cleanup()

    def up(self, cell: Cell) -> Trial:
        for host in (self.client, *self.backends):
            hosts.up(host, cell)
        self.client.machine.write("/run/hedgerow.yaml", hosts.proxy_config(cell, self.backends, self.key))
        self.client.run("hedgerow up --config /run/hedgerow.yaml --log /run/hedgerow.log", timeout_s=120)
        return Trial(cell, self.client, self.backends)

    def down(self, cell: Cell) -> None:
        self.client.run("hedgerow down", check=False)
        for host in (self.client, *self.backends):
            hosts.down(host, cell)


def run_cell(machines: PairOfMachines, cell: Cell, say: Callable[[str], None], control: bool = False) -> dict:
    """A row of the record: what is on, and for each check "yes" or what went wrong. `control`: the last cell of a pair shows
    that its receivers would have noticed a wrong checksum."""
    started = time.monotonic()
    row = {"uplink": cell.uplink, "mtu": cell.mtu}
    trial = machines.up(cell)
    try:
        row |= {"attach": _attach(trial), "offloads": _offloads(trial)}
        for name, check in CHECKS.items():
            row[name] = _result(check, trial)
            say(f"{cell.name}: {name} {row[name].splitlines()[0]}, {time.monotonic() - started:.0f} s")
        for mode in cell.xdp:
            row[mode] = _result(checks.nodes, trial, mode)
            say(f"{cell.name}: {mode} XDP {row[mode].splitlines()[0]}, {time.monotonic() - started:.0f} s")
        if row["checksums"] == "yes":
            row["checksums"] = _result(checks.no_wrong_checksum, trial)
            if control and row["checksums"] == "yes":
                row["checksums"] = _result(checks.receivers_verify, trial)
            if row["checksums"] != "yes":
                say(f"{cell.name}: checksums {row['checksums']}")
    finally:
        machines.down(cell)
    return row


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
