# SPDX-License-Identifier: Apache-2.0
"""A machine with network cards, and an agent in it that runs one command at a time (guest.sh)."""

import base64
import dataclasses
import socket
import subprocess
import threading
from pathlib import Path

from deploy.vm import machine
from deploy.vm.kernels import Kernel
from deploy.vm.net.models import Model
from deploy.vm.net.network import Network

_BOOT_S = 180.0


@dataclasses.dataclass(frozen=True)
class Card:
    mac: str
    plain_receiver: bool = False  # received checksums are the kernel's to verify


class CommandFailed(Exception):
    pass


class MachineDied(Exception):
    """The kernel panicked, or the emulator ended."""


class EmulatorFailed(MachineDied):
    """It did by a fault of the emulator's (machine.has_stale_int3)."""


class GuestMachine:
    """Boots at once; `run` waits for the agent first."""

    def __init__(self, name: str, kernel: Kernel, image: Path, emulator: list[str], network: Network, model: Model,
                 cards: list[Card], folder: Path):
        self.name = name
        self._console_file = folder / f"{name}.console.txt"
        agent = folder / f"{name}.agent"
        # Before the emulator connects: what the machine says while no process listens is lost.
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(agent))
        self._listener.listen()
        words = [*emulator, "-M", "q35", *machine.common_words(machine.Settings("mt", memory_mb=1024)), "-kernel",
                 str(kernel.image), "-initrd", str(image), "-append", machine.KERNEL_WORDS,
                 "-serial", f"file:{self._console_file}", "-serial", "null", "-serial", f"unix:{agent}"]
        for number, card in enumerate(cards):
            words += _card_words(number, card, model, network)
        self._process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *network.command(words)],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._agent: socket.socket | None = None
        self._rest = b""
        self._lock = threading.Lock()

    def run(self, command: str, *, check: bool = True, timeout_s: float = 60.0) -> tuple[int, str]:
        """The exit status and the output of a shell command in the machine."""
        with self._lock:
            if self._agent is None:
                self._connect()
            self._agent.settimeout(timeout_s)
            self._agent.sendall(base64.b64encode(command.encode()) + b"\n")
            status, _, output = self._line(f"`{_short(command)}` after {timeout_s:.0f} s").partition(" ")
        text = base64.b64decode(output).decode("utf-8", "replace")
        if check and status != "0":
            raise CommandFailed(f"{self.name}: `{_short(command)}` ended with {status}:\n{text.strip()[-2000:]}")
        return int(status), text

    def out(self, command: str, timeout_s: float = 60.0) -> str:
        return self.run(command, timeout_s=timeout_s)[1]

    def write(self, file: str, content: str) -> None:
        """Readable by root only: it may hold keys."""
        encoded = base64.b64encode(content.encode()).decode()
        self.run(f"umask 077; mkdir -p $(dirname {file}); echo {encoded} | base64 -d >{file}")

    def console(self) -> str:
        return self._console_file.read_text(encoding="utf-8", errors="replace") if self._console_file.exists() else ""

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._listener.close()
        if self._agent is not None:
            self._agent.close()

    def _connect(self) -> None:
        self._listener.settimeout(10.0)
        try:
            self._agent, _ = self._listener.accept()
        except TimeoutError:
            self._complain_if_dead()
            raise MachineDied(f"{self.name}: the emulator does not come up") from None
        self._agent.settimeout(_BOOT_S)
        while self._line(f"its start after {_BOOT_S:.0f} s") != "ready":
            pass

    def _complain_if_dead(self) -> None:
        if self._process.poll() is not None:
            died = EmulatorFailed if machine.has_stale_int3(self.console()) else MachineDied
            raise died(f"{self.name} ended: {self._process.stdout.read().strip()[-500:]}\n{self._last_lines()}")

    def _line(self, what: str) -> str:
        while b"\n" not in self._rest:
            try:
                more = self._agent.recv(65536)
            except TimeoutError:
                raise MachineDied(f"{self.name}: no end of {what}; its console:\n{self._last_lines()}") from None
            except ConnectionError:
                more = b""
            if not more:
                self._process.wait(10)
                self._complain_if_dead()
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("ascii", "replace").strip()

    def _last_lines(self) -> str:
        return "\n".join(self.console().splitlines()[-15:])


def _card_words(number: int, card: Card, model: Model, network: Network) -> list[str]:
    tap = network.add_tap(model.queues)
    queues = f",queues={model.queues}" if model.queues > 1 else ""
    port = f"port{number}" if model.own_port else ""
    options = [model.options, f"bus={port}" if port else "", model.plain_receiver if card.plain_receiver else ""]
    # Without a ROM to boot from, which this host may lack.
    device = ",".join([model.device, f"netdev=n{number}", f"mac={card.mac}", "romfile=", *filter(None, options)])
    root_port = ["-device", f"pcie-root-port,id={port},chassis={number + 1}"] if port else []
    return [*root_port, "-netdev", f"tap,id=n{number},ifname={tap},script=no,downscript=no{queues}", "-device", device]


def _short(command: str) -> str:
    return command if len(command) < 200 else command[:200] + "..."
