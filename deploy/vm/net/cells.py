# SPDX-License-Identifier: Apache-2.0
"""What is tried: every kernel and card, with each kind of uplink and both sizes of frames.

A lane boots one pair of machines for a kernel and a card, and goes through that pair's cells one after the other.
"""

import dataclasses
from collections.abc import Iterable

from deploy.vm.kernels import SUITES, UBUNTU_SUITES
from deploy.vm.net.models import MODELS

SERIES = sorted({*SUITES, *UBUNTU_SUITES}, key=lambda series: [int(word) for word in series.split(".")])
UPLINKS = ("plain", "vlan", "bond", "bridge")


@dataclasses.dataclass(frozen=True)
class Cell:
    uplink: str = "plain"  # what carries the addresses, on the card: itself, a VLAN, a bond, a bridge
    mtu: int = 1500
    attach: str = "auto"  # how the proxy's programs are attached
    xdp: tuple[str, ...] = ("auto",)  # the nodes' modes, one cluster each

    @property
    def name(self) -> str:
        return f"{self.uplink}-{self.mtu}" + ("" if self.attach == "auto" else f"-{self.attach}")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two machines of one kernel and one model of card."""

    series: str
    model: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return f"{self.series}-{self.model}"


def pairs(series: Iterable[str], models: Iterable[str], *, smoke: bool = False, only: Iterable[str] | None = None) -> list[Pair]:
    """`only`: names of cells; without, all of them."""
    found = SMOKE if smoke else [Pair(each, model, _cells(each)) for each in series for model in models
                                 if each in SUITES or model in _UBUNTU_MODELS]
    found = [dataclasses.replace(pair, cells=tuple(cell for cell in pair.cells if not only or cell.name in only))
             for pair in found if pair.series in series and pair.model in models]
    return [pair for pair in found if pair.cells]


# Ubuntu's machines are virtual ones first of all.
_UBUNTU_MODELS = ("virtio-net",)


def _cells(series: str) -> tuple[Cell, ...]:
    # TCX came with 6.6; what `auto` does not take is tried once.
    clsact = (Cell(attach="clsact", xdp=()),) if series != "6.1" else ()
    return (Cell(xdp=("native", "generic")), *clsact, Cell(mtu=9000), Cell("vlan", 9000), Cell("bond"), Cell("bridge", 9000))


# What ./dev test has: the card of most virtual machines, with native XDP. Each further pair costs a minute of a processor.
SMOKE = (Pair("6.12", "virtio-net", (Cell(xdp=("native",)),)),)
assert all(pair.model in MODELS for pair in SMOKE)
