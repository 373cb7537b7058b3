# SPDX-License-Identifier: Apache-2.0
"""The benchmark's own servers: an echo, and one that stalls on chosen requests (bench/serve).

They serve one address each, so a replica that answers on both families runs two.
"""

import os
from pathlib import Path

from deploy.lab.host import Host
from deploy.lab.programs import noted
from deploy.lab.servers.server import Server, round_trip

PROJECT = Path(__file__).resolve().parents[3]


def binary(name: str) -> Path:
    """A program of the build; HEDGEROW_BIN names another build's folder."""
    path = Path(os.environ.get("HEDGEROW_BIN", PROJECT / "build" / "release" / "bin")) / name
    if not path.exists():
        raise FileNotFoundError(f"{path}: run `./dev build` first")
    return noted(path)


def bpf_object(name: str) -> Path:
    """One of the build's kernel programs, for whoever loads it by hand."""
    path = binary("hedgerow-node").parent.parent / "bpf" / f"{name}.bpf.o"
    if not path.exists():
        raise FileNotFoundError(f"{path}: run `./dev build` first")
    return noted(path)


class LoadServer(Server):
    """`options` are the program's flags by name: service="2ms", rule="hash", fraction=0.02."""

    program = ""

    def __init__(self, host: Host, port: int = 9000, *, ipv6: bool = False, **options: object):
        self.name = f"{self.program}-{'v6' if ipv6 else 'v4'}"
        super().__init__(host, port)
        self.address = host.ipv6 if ipv6 else host.ipv4
        self.options = options

    @property
    def addresses(self) -> list[str]:
        return [self.address]

    def command(self) -> list[str]:
        listen = f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        flags = [f"--{name}={value}" for name, value in self.options.items()]
        return [str(binary(self.program)), f"--listen={listen}", *flags]

    def answers(self, address: str) -> bool:
        # An id no workload comes to (they count from 0), and one that does not stall by the default rule.
        return round_trip(self.host, address, self.port, (0xFFFFFFFF).to_bytes(4, "little"), 1.0) is not None


class EchoLoadServer(LoadServer):
    program = "hr-echo-server"


class StallServer(LoadServer):
    program = "hr-stall-server"
