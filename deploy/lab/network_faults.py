# SPDX-License-Identifier: Apache-2.0
"""Network faults between the hosts of a lab: packets are lost, doubled, held back and overtake each other, on chosen links in
chosen directions. A program of ours in the switch (bpf/lab/network_faults.bpf.c), on every kernel alike: netem is not on every
kernel, knows no pairs of hosts, and draws no lots that can be drawn again.

    with Lab("mine", replicas=3) as lab, NetworkFaults(lab) as network_faults:
        network_faults.change([("a", "b"), ("b", "a")], seed=7, lost=0.05, delayed=1.0, delays_ms=(0.5, 4))
        ...
        print(network_faults.counted()["a", "b"])      # since the beginning
        network_faults.clear()

The n-th packet of a link meets the same fate whenever the seed is the same (`lost_numbers`); which packet is the n-th, the hosts
decide. Packets meet it once, on their way out of the switch, before the receiving host's XDP programs.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping

from deploy.lab.host import CommandFailed
from deploy.lab.lab import Lab
from deploy.lab.programs import bpf_object

Link = tuple[str, str]  # names of hosts: from, to

# bpf/lab/network_faults_abi.h
_PAIR, _LINK = struct.Struct("=II"), struct.Struct("=QIIIHHQQQQQ")
_MILLION = 1_000_000
DELAYS_MS = tuple(0.5 * 2**index for index in range(8))
_LEAVES, _LEAF_BASE, _FRAME_BYTES = 256, 0x10, 1600

_BLOCK = 0x5EA  # the switch's ports share one filter
_NEAR, _FAR = "faults0", "faults1"  # the delay line's ends
_MAPS = {"faults_links": "links", "faults_line": "line"}
_GOLDEN, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1


@dataclasses.dataclass(frozen=True)
class Rule:
    """Shares of a link's packets, 0 to 1."""

    seed: int = 0
    lost: float = 0.0
    duplicated: float = 0.0
    delayed: float = 0.0
    delays_ms: tuple[float, float] = (DELAYS_MS[0], DELAYS_MS[0])  # each delayed packet draws one of DELAYS_MS within

    def __post_init__(self) -> None:
        for name in ("lost", "duplicated", "delayed"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"network faults: a share of {getattr(self, name)} of packets cannot be {name}")
        for delay in self.delays_ms:
            if delay not in DELAYS_MS:
                raise ValueError(f"network faults: a delay of {delay} ms is none of {', '.join(map(str, DELAYS_MS))}")
        if self.delays_ms[0] > self.delays_ms[1]:
            raise ValueError(f"network faults: delays from {self.delays_ms[0]} to {self.delays_ms[1]} ms")

    @property
    def fine(self) -> bool:
        return not (self.lost or self.duplicated or self.delayed)

    def packed(self) -> bytes:
        shares = (round(share * _MILLION) for share in (self.lost, self.duplicated, self.delayed))
        return _LINK.pack(self.seed, *shares, *map(DELAYS_MS.index, self.delays_ms), 0, 0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Counted:
    """Packets of a link."""

    met: int = 0
    lost: int = 0
    duplicated: int = 0
    delayed: int = 0
    not_delayed: int = 0  # that should have been: the line was full, or the frame too large for it

    @classmethod
    def of(cls, value: bytes) -> "Counted":
        return cls(*_LINK.unpack(value)[-5:])

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(*(mine + yours for mine, yours in zip(dataclasses.astuple(self), dataclasses.astuple(other),
                                                             strict=True)))

    def __sub__(self, other: "Counted") -> "Counted":
        return Counted(*(mine - yours for mine, yours in zip(dataclasses.astuple(self), dataclasses.astuple(other),
                                                             strict=True)))


def draw(seed: int, number: int, purpose: int, below: int) -> int:
    """What the program draws for a link's packet of that number, counted from 0."""
    z = (seed + (number * 4 + purpose + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return ((z >> 32) * below) >> 32


def lost_numbers(rule: Rule, count: int) -> list[int]:
    """Of a link's first `count` packets, those that are lost."""
    return [number for number in range(count) if draw(rule.seed, number, 0, _MILLION) < round(rule.lost * _MILLION)]


def seed_of(seed: int, link: Link) -> int:
    """Links of one seed draw lots of their own."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {link[0]} {link[1]}".encode(), digest_size=8).digest(), "little")


class NetworkFaults:
    """Fine at first; inside the `with` block, which ends before the lab's. One in a lab at a time."""

    def __init__(self, lab: Lab):
        self._lab = lab
        self._rules: dict[Link, Rule] = {}
        self._before: dict[Link, Counted] = {}  # counted by entries that were replaced since
        self._maps: dict[str, int] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> "NetworkFaults":
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove)
            self._install()
            stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._remove()

    @property
    def rules(self) -> Mapping[Link, Rule]:
        return dict(self._rules)

    def change(self, links: Iterable[Link], *, seed: int | None = None, **shares) -> None:
        """What is not named stays as it is. A change begins a link's count of packets, and so its lots, anew."""
        changed = {}
        for link in links:
            rule = dataclasses.replace(self._rules.get(link, Rule()), **shares)
            changed[link] = rule if seed is None else dataclasses.replace(rule, seed=seed_of(seed, link))
        self._put(changed)

    def clear(self) -> None:
        """No faults from now on; what is held back still comes."""
        self._put({link: Rule() for link in self._rules})

    def counted(self) -> dict[Link, Counted]:
        """Of all links that had a fault at any time, since the beginning."""
        now = self._dump()
        return {link: self._before.get(link, Counted()) + now.get(link, Counted()) for link in {*self._before, *now}}

    # -- the maps ------------------------------------------------------------------------------------------

    def _put(self, rules: Mapping[Link, Rule]) -> None:
        """What their entries have counted so far is kept."""
        now = self._dump()
        table, commands = f"id {self._maps['links']}", []
        for link, rule in rules.items():
            if link in now:
                self._before[link] = self._before.get(link, Counted()) + now[link]
            key = _words(self._key(link))
            if not rule.fine:
                commands.append(f"map update {table} key {key} value {_words(rule.packed())}")
            elif link in self._rules:
                commands.append(f"map delete {table} key {key}")
        _bpftool(*commands)
        self._rules = {link: rule for link, rule in {**self._rules, **rules}.items() if not rule.fine}

    def _dump(self) -> dict[Link, Counted]:
        if not self._rules:
            return {}
        names = {index: name for name, index in self._ports.items()}
        entries = json.loads(_run(["bpftool", "-j", "map", "dump", "id", str(self._maps["links"])]))
        found = {}
        for entry in entries:
            source, destination = _PAIR.unpack(_bytes(entry["key"]))
            found[names[source], names[destination]] = Counted.of(_bytes(entry["value"]))
        return found

    def _key(self, link: Link) -> bytes:
        return _PAIR.pack(*(self._ports[host] for host in link))

    # -- the switch ----------------------------------------------------------------------------------------

    def _install(self) -> None:
        lab = self._lab
        self._remove()  # what an earlier one left
        lab.switch_ip("link", "add", _NEAR, "type", "veth", "peer", "name", _FAR)
        for end in (_NEAR, _FAR):
            # Without addresses of its own the kernel sends nothing there.
            lab.switch_ip("link", "set", "dev", end, "addrgenmode", "none")
            lab.switch_ip("link", "set", "dev", end, "up")
        lab.switch(["tc", "-batch", "-"], stdin="\n".join(_delay_line(_NEAR)) + "\n")
        lab.switch(["tc", "qdisc", "add", "dev", _FAR, "ingress_block", str(_BLOCK), "clsact"])
        hosts = [name for name, host in lab.hosts.items() if host.has_port]
        for name in hosts:
            lab.switch(["tc", "qdisc", "add", "dev", name, "egress_block", str(_BLOCK), "clsact"])
        lab.switch(["tc", "filter", "add", "block", str(_BLOCK), "bpf", "da", "obj", str(bpf_object("lab_network_faults")), "sec",
                    "tc"])
        self._ports = {name: lab.switch_index(name) for name in hosts}
        self._maps = _maps_of(_program_of(lab.switch(["tc", "filter", "show", "block", str(_BLOCK)])))
        _bpftool(f"map update id {self._maps['line']} key 0 0 0 0 value "
                 f"{_words(struct.pack('=I', lab.switch_index(_NEAR)))}")

    def _remove(self) -> None:
        for name, host in self._lab.hosts.items():
            if host.has_port:
                self._lab.switch(["tc", "qdisc", "del", "dev", name, "clsact"], check=False)
        self._lab.switch_ip("link", "del", _NEAR, check=False)


def _delay_line(device: str) -> Iterator[str]:
    """Of each class as many leaves as packets can wait in it; a leaf lets one frame pass in each period."""
    yield f"qdisc add dev {device} root handle 1: htb default 0"
    for index, delay_ms in enumerate(DELAYS_MS):
        rate_bytes = round(_FRAME_BYTES * 1000 / delay_ms)
        for leaf in range(_LEAVES):
            minor = _LEAF_BASE + index * _LEAVES + leaf
            # The smallest burst: tokens left over from a rest would let the next packet through early.
            yield (f"class add dev {device} parent 1: classid 1:{minor:x} htb rate {rate_bytes}bps ceil {rate_bytes}bps "
                   f"burst 1b cburst 1b mpu {_FRAME_BYTES} quantum {_FRAME_BYTES}")


def _program_of(shown: str) -> int:
    """Of `tc filter show`; its JSON has no number of a program on the floor."""
    if not (found := re.search(r"\bid (\d+)", shown)):
        raise CommandFailed(f"tc shows no program in the switch:\n{shown}")
    return int(found[1])


def _maps_of(program: int) -> dict[str, int]:
    shown = json.loads(_run(["bpftool", "-j", "prog", "show", "id", str(program)]))
    found = {}
    for number in shown["map_ids"]:
        name = json.loads(_run(["bpftool", "-j", "map", "show", "id", str(number)])).get("name", "")
        if name in _MAPS:
            found[_MAPS[name]] = number
    return found


def _bpftool(*lines: str) -> None:
    """Several commands at the price of one process."""
    if lines:
        _run(["bpftool", "batch", "file", "-"], stdin="\n".join(lines) + "\n")


def _run(argv: list[str], stdin: str | None = None) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=10)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(argv)}: exit {done.returncode}\n{stdin or ''}{done.stderr}{done.stdout}")
    return done.stdout


def _words(value: bytes) -> str:
    return " ".join(map(str, value))


def _bytes(words: list[str]) -> bytes:
    return bytes(int(word, 16) for word in words)
