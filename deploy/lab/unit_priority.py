# SPDX-License-Identifier: Apache-2.0
"""The priority that the shipped systemd unit gives a node, for nodes of the lab, which systemd does not start: what is
measured is what is shipped. A unit with a setting that cannot be had here is an error and not a default.
"""

from pathlib import Path

from deploy.lab.unit_file import UNITS, UnitFile

UNIT = UNITS / "hedgerow-node.service"
# They decide who gets a processor, and need a cgroup.
_NOT_HERE = ("CPUWeight", "StartupCPUWeight", "CPUQuota", "CPUShares", "AllowedCPUs", "Slice")
_POLICIES = {"other": "--other", "batch": "--batch", "fifo": "--fifo", "rr": "--rr"}


def command_prefix(unit: Path = UNIT) -> list[str]:
    """To stand before a command line: it is run with the unit's priority, under the same pid."""
    service = UnitFile(unit)
    for key in _NOT_HERE:
        if service.all(key):
            raise ValueError(f"{unit}: {key} cannot be had in the lab")
    prefix = []
    if policy := service.last("CPUSchedulingPolicy"):
        if policy not in _POLICIES:
            raise ValueError(f"{unit}: CPUSchedulingPolicy {policy} is not known here")
        default = "0" if policy in ("other", "batch") else "1"
        prefix += ["chrt", _POLICIES[policy], service.last("CPUSchedulingPriority", default)]
    if nice := service.last("Nice"):
        prefix += ["nice", "-n", str(int(nice))]
    return prefix
