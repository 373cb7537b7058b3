# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: network namespaces on a bridge, up in a second, torn down whole.

Tests, the demo and the benchmarks import `Lab` from here; `./dev lab` reaches the same code through
`python3 -m deploy.lab`. README.md in this folder shows the addresses and a session.
"""

from deploy.lab.host import CommandFailed, Host
from deploy.lab.lab import Lab, LabInUse
from deploy.lab.names import VIP_DNS, VIP_KV, VIP_RAW
from deploy.lab.uplink import Uplink

__all__ = ["CommandFailed", "Host", "Lab", "LabInUse", "Uplink", "VIP_DNS", "VIP_KV", "VIP_RAW"]
