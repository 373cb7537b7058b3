# SPDX-License-Identifier: Apache-2.0
"""The faults by the names that scenarios use (chaos/scenarios/*.toml). A new one is a class here or in a module beside, and a file there."""

import dataclasses
from collections.abc import Mapping, Sequence

from chaos.faults.fault import TARGETS, Fault, Several, World
from chaos.faults.folders import FolderRollback, OtherSettings
from chaos.faults.machines import ClockJump, FullDisk, HungDisk, SlowDisk, Starvation
from chaos.faults.operations import DaemonKill, MembershipKill, SnapshotKill
from chaos.faults.processes import Kill, Pause, PowerCut, RollingRestart
from chaos.faults.wires import Cut, CutIn, CutOut, Delay, Duplication, Loss, SizeFilter, SwitchDown

__all__ = ["KINDS", "TARGETS", "Fault", "FaultSpec", "Several", "World", "make"]

KINDS: dict[str, type[Fault]] = {fault.kind: fault for fault in (
    Kill, PowerCut, Pause, RollingRestart, Cut, CutOut, CutIn, SwitchDown, Loss, Duplication, Delay, ClockJump, Starvation,
    SlowDisk, FullDisk, HungDisk, SizeFilter, DaemonKill, SnapshotKill, MembershipKill, FolderRollback, OtherSettings)}


@dataclasses.dataclass(frozen=True)
class FaultSpec:
    """A fault as a scenario names it."""

    kind: str
    keys: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, content: Mapping) -> "FaultSpec":
        """ValueError for what is unknown, missing or out of bounds."""
        keys = dict(content)
        kind = keys.pop("kind", None)
        if kind not in KINDS:
            raise ValueError(f"fault '{kind}' is none of {', '.join(KINDS)}")
        wanted = KINDS[kind].keys
        for key in sorted(keys.keys() ^ wanted.keys()):
            raise ValueError(f"fault '{kind}' {'does not know' if key in keys else 'lacks'} the key '{key}'")
        for key, check in wanted.items():
            try:
                check(keys[key])
            except ValueError as error:
                raise ValueError(f"fault '{kind}': {key} {error}") from error
        return cls(kind, keys)

    @property
    def of(self) -> type[Fault]:
        return KINDS[self.kind]


def make(specs: Sequence[FaultSpec], world: World) -> Several:
    return Several([spec.of(world, **spec.keys) for spec in specs])
