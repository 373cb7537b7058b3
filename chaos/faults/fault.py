# SPDX-License-Identifier: Apache-2.0
"""What every fault is: it begins, lasts, ends, and says what shows that it was one. A fault that nothing shows proves nothing,
so each counts something that only it can cause; a scenario says how much of it there must be at every event.
"""

import dataclasses
import random
import time
from collections.abc import Callable, Mapping, Sequence

from chaos.daemons import Daemons
from deploy.lab import Lab
from deploy.lab.cluster import Cluster
from deploy.lab.servers.store_node import StoreNode
from deploy.lab.unsynced_disks import UnsyncedDisks
from deploy.lab.network_faults import NetworkFaults

TARGETS = ("leader", "follower", "all")  # and "majority": the leader and as many followers as make one


@dataclasses.dataclass
class World:
    """Where a fault happens, and which nodes it meets. What a fault `needs` is not None."""

    lab: Lab
    cluster: Cluster
    leader: StoreNode  # when the fault begins
    targets: Sequence[StoreNode]
    rng: random.Random = dataclasses.field(default_factory=random.Random)
    disks: UnsyncedDisks | None = None
    forgets: bool = False  # a killed node loses what its disk has not synced
    network_faults: NetworkFaults | None = None
    daemons: Daemons | None = None  # of the proxy


def number(at_least: float, at_most: float) -> Callable[[object], float]:
    """For `Fault.keys`: a number within these bounds."""
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not at_least <= value <= at_most:
            raise ValueError(f"must be a number from {at_least:g} to {at_most:g}, not {value!r}")
        return value

    return check


def one_of(*known: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}, not {value!r}")
        return value

    return check


class Fault:
    """`end` may be called whatever became of `begin`."""

    kind = ""
    keys: Mapping[str, Callable[[object], object]] = {}  # all of them must be given
    targets: tuple[str, ...] = ("leader", "follower")
    needs: frozenset[str] = frozenset()  # fields of World: network_faults, disks, daemons; and own_clocks, short_logs, our_commands
    shows = ""  # what is counted, in `shown`
    lost: Mapping[int, dict] = {}  # by number of the node: what its disk has lost

    def __init__(self, world: World, **keys):
        self.world = world
        self.shown = 0.0
        for key, value in keys.items():
            setattr(self, key, value)

    def begin(self) -> None:
        """Nothing, where it is done while it lasts."""

    def hold(self, seconds: float) -> None:
        """As long as it lasts."""
        time.sleep(seconds)

    def end(self) -> None:
        """Starts those of the targets that have ended."""
        for node in self.world.targets:
            if not node.running:
                node.start()


class Several:
    """Faults that begin together and end together: what a scenario's file names. Instants are on the loads' clock
    (CLOCK_MONOTONIC, nanoseconds)."""

    def __init__(self, faults: Sequence[Fault]):
        self.faults = list(faults)
        self._begun: list[Fault] = []

    def begin(self) -> int:
        """Returns when."""
        at_ns = time.monotonic_ns()
        for fault in self.faults:
            self._begun.append(fault)
            fault.begin()
        return at_ns

    def hold(self, seconds: float) -> None:
        """One of them may take its own time, as long as it takes; the others last meanwhile."""
        begun_s = time.monotonic()
        for fault in self.faults:
            if type(fault).hold is not Fault.hold:
                fault.hold(seconds)
        time.sleep(max(0.0, seconds - (time.monotonic() - begun_s)))

    def end(self) -> int:
        """Every one, also when another does not end; returns when it began to."""
        at_ns = time.monotonic_ns()
        failed: Exception | None = None
        while self._begun:
            try:
                self._begun.pop().end()
            except Exception as error:  # the others must end as well
                failed = failed or error
        if failed is not None:
            raise failed
        return at_ns

    def evidence(self) -> dict[str, float]:
        """After their end."""
        found: dict[str, float] = {}
        for fault in self.faults:
            found[fault.shows] = found.get(fault.shows, 0) + fault.shown
        return found

    @property
    def lost(self) -> dict[int, dict]:
        """By number of the node: what disks that were cut have lost."""
        return {number: lost for fault in self.faults for number, lost in fault.lost.items()}
