# SPDX-License-Identifier: Apache-2.0
"""From a seed to what happens: the configuration, the load, and each fault's time, kind and target.

Everything is drawn here, on the host; the machine plays it (driver/) and draws nothing but what the programs under test
draw from its kernel, whose generator has the seed, too. A draw that is added or moved changes what every seed means.
"""

import dataclasses
import random
from collections.abc import Callable

# By how often; durations in milliseconds.
_KINDS = (("kill", 24, (20, 800)), ("stop", 14, (10, 600)), ("cut", 8, (20, 800)), ("cut-out", 6, (20, 800)),
          ("cut-in", 6, (20, 800)), ("network-fault", 18, (200, 1500)), ("disk-full", 4, (50, 400)),
          ("proxy-kill", 8, (20, 400)), ("clock-jump", 4, (50, 1000)), ("hog", 4, (50, 200)))
_TARGETS = (("leader", 60), ("follower", 25), ("any", 15))
_OFFLOADS = (("on", 60), ("generic", 15), ("off", 15), ("no-append", 10))
_PROTOCOL = ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog")
# Booting and starting everything costs as much as 30 s of such a load: short runs would be mostly that.
_LOAD_US, _FAULTS = (10_000_000, 18_000_000), (10, 22)
_FIRST_US = 200_000
# The last fault ends, and clients see the end of it.
_CALM_END_US = 1_000_000
# Some faults come on the heels of the one before: what one does to the recovery from another.
_TOGETHER = 0.35
_TOGETHER_WITHIN_US = 60_000
# Of those on disks: whose disks forget. Of kills and power cuts: those that meet all nodes at once.
_UNSYNCED, _ALL = 0.5, 0.15


@dataclasses.dataclass(frozen=True)
class Fault:
    at_us: int
    for_us: int
    kind: str
    target: str
    draw: int  # which of several that the target allows
    argument: str = ""

    def line(self) -> str:
        return f"fault {self.at_us} {self.for_us} {self.kind} {self.target} {self.draw} {self.argument}".rstrip()


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int
    durability: str    # memory | disk
    offloads: str      # of _OFFLOADS
    hedge_delay: str
    budget: str        # for hedges, of the load
    load_us: int
    sessions: int      # of each client
    interval_us: int   # between two requests of a client
    timeout_us: int
    unsynced: bool     # nodes' disks forget what was not synced when their power is cut
    faults: tuple[Fault, ...]

    def text(self, bug: str = "") -> str:
        """As the driver reads it."""
        lines = [f"seed {self.seed}", f"load_us {self.load_us}", "clients 2", f"sessions {self.sessions}",
                 f"interval_us {self.interval_us}", f"timeout_us {self.timeout_us}"]
        lines += ["disks unsynced"] if self.unsynced else []
        lines += [f"bug {bug}"] if bug else []
        lines += [fault.line() for fault in self.faults]
        return f"# {self.durability}, offloads {self.offloads}\n" + "\n".join(lines) + "\n"

    def native_xdp(self) -> bool:
        return self.offloads in ("on", "no-append")

    def offload_settings(self) -> dict:
        return {"on": {}, "generic": {"xdp": "generic"}, "off": dict.fromkeys(_PROTOCOL, "off"),
                "no-append": {"append": "off"}}[self.offloads]


def draw(seed: int) -> Plan:
    # random() of a seeded generator gives the same numbers in every version of Python; what is made of it is ours.
    dice = _Dice(random.Random(seed).random)
    load_us = dice.between(*_LOAD_US)
    durability = dice.weighed((("memory", 55), ("disk", 45)))
    unsynced = dice.random() < _UNSYNCED and durability == "disk"
    return Plan(seed=seed, durability=durability, offloads=dice.weighed(_OFFLOADS), hedge_delay=dice.one_of(("3ms", "10ms")),
                budget=dice.one_of(("5%", "100%")), load_us=load_us, sessions=dice.one_of((1, 2, 4)),
                interval_us=dice.one_of((2000, 3000, 4000, 6000)), timeout_us=dice.one_of((800_000, 1_500_000)),
                unsynced=unsynced, faults=_draw_faults(dice, load_us, unsynced))


def _draw_faults(dice: "_Dice", load_us: int, unsynced: bool) -> tuple[Fault, ...]:
    faults = []
    last_us = load_us - _CALM_END_US
    for _ in range(dice.between(*_FAULTS)):
        kind, length_ms = dice.kind()
        for_us = dice.between(length_ms[0] * 1000, length_ms[1] * 1000)
        at_us = dice.between(_FIRST_US, last_us - for_us)
        if faults and dice.random() < _TOGETHER:
            at_us = min(faults[-1].at_us + dice.between(0, _TOGETHER_WITHIN_US), last_us - for_us)
        # A host whose disk can lose its power dies with it.
        if unsynced and kind in ("kill", "disk-full"):
            kind = "power-cut"
        faults.append(Fault(at_us, for_us, kind, *_draw_target(dice, kind)))
    return tuple(sorted(faults, key=lambda fault: fault.at_us))


def _draw_target(dice: "_Dice", kind: str) -> tuple[str, int, str]:
    number = dice.between(0, 5)
    if kind in ("proxy-kill", "hog"):
        return "nobody", number, ""
    if kind == "clock-jump":
        return "nobody", number, str(dice.between(-3_600_000, 3_600_000))
    if kind == "network-fault":
        return dice.one_of(("all", "all", "any", "leader")), number, _draw_network_fault(dice)
    target = dice.weighed(_TARGETS)
    if kind in ("kill", "power-cut") and dice.random() < _ALL:
        target = "all"
    torn = str(dice.between(1, 1 << 30)) if kind == "power-cut" and dice.random() < 0.5 else ""
    return target, number, torn


def _draw_network_fault(dice: "_Dice") -> str:
    """netem's words. A jitter as long as the delay lets datagrams overtake each other."""
    delay_us = dice.between(100, 8000)
    kinds = {"loss": f"loss,{dice.between(1, 30)}%", "delay": f"delay,{delay_us}us,{dice.between(0, delay_us)}us",
             "duplicate": f"duplicate,{dice.between(1, 20)}%"}
    chosen = [words for words in kinds.values() if dice.random() < 0.5]
    return ",".join(chosen or [kinds["loss"]])


@dataclasses.dataclass(frozen=True)
class _Dice:
    random: Callable[[], float]  # 0 <= x < 1

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def one_of(self, values: tuple):
        return values[self.between(0, len(values) - 1)]

    def weighed(self, choices: tuple[tuple[str, int], ...]) -> str:
        left = self.random() * sum(weight for _, weight in choices)
        for value, weight in choices:
            left -= weight
            if left < 0:
                return value
        return choices[-1][0]

    def kind(self) -> tuple[str, tuple[int, int]]:
        name = self.weighed(tuple((kind, weight) for kind, weight, _ in _KINDS))
        return name, next(length for kind, _, length in _KINDS if kind == name)
