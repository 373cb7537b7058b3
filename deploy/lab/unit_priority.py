# SPDX-License-Identifier: Apache-2.0
"""The priority that the shipped systemd unit gives a node, for nodes of the lab, which systemd does not start: what is
measured is what is shipped. A unit with a setting that cannot be had here is an error and not a default.
"""

from pathlib import Path

UNIT = Path(__file__).resolve().parents[1] / "systemd" / "hedgerow-node.service"
# They decide who gets a processor, and need a cgroup.
_NOT_HERE = ("CPUWeight", "StartupCPUWeight", "CPUQuota", "CPUShares", "AllowedCPUs", "Slice")
_POLICIES = {"other": "--other", "batch": "--batch", "fifo": "--fifo", "rr": "--rr"}


def command_prefix(unit: Path = UNIT) -> list[str]:
    """To stand before a command line: it is run with the unit's priority, under the same pid."""
    return _prefix(_service_of(unit.read_text(encoding="utf-8")), unit)


def _service_of(text: str) -> dict[str, str]:
    found, section = {}, ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
            key, value = line.split("=", 1)
            found[key.strip()] = value.strip()
    return found


def _prefix(service: dict[str, str], unit: Path) -> list[str]:
    for key in _NOT_HERE:
        if key in service:
            raise ValueError(f"{unit}: {key} cannot be had in the lab")
    prefix = []
    if policy := service.get("CPUSchedulingPolicy"):
        if policy not in _POLICIES:
            raise ValueError(f"{unit}: CPUSchedulingPolicy {policy} is not known here")
        default = "0" if policy in ("other", "batch") else "1"
        prefix += ["chrt", _POLICIES[policy], service.get("CPUSchedulingPriority", default)]
    if nice := service.get("Nice"):
        prefix += ["nice", "-n", str(int(nice))]
    return prefix
