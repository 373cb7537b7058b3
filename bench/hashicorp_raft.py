# SPDX-License-Identifier: Apache-2.0
"""The system `hashicorp-raft` of the benchmarks: one node of bench/baselines/hashicorp_raft on each replica, loaded by
hr-kv-load as our own store is, in memory only. Called by bench/kv.py and bench/offload.py.

    with running(lab) as up:
        leader = up.cluster.wait_ready()
"""

import contextlib
import sys
from collections.abc import Collection, Iterator

from bench.manifest import binary
from chaos.systems import Running
from deploy.lab import Lab
from deploy.lab.cluster import hashicorp_cluster

SYSTEM, PROGRAM = "hashicorp-raft", "hr-hashicorp-raft"
MODES = ("memory",)


def programs(experiment: str, option: str, asked: Collection[str]) -> list[str] | None:
    """What it adds to those that are measured, if `asked` names it. None where it could not be built, after saying why: better
    before an hour of runs than in it."""
    if SYSTEM not in asked:
        return []
    try:
        binary(PROGRAM)
    except FileNotFoundError as error:
        print(f"bench {experiment}: {error}\n{option} without {SYSTEM} measures the others", file=sys.stderr)
        return None
    return [PROGRAM]


@contextlib.contextmanager
def running(lab: Lab, reads: str = "verify") -> Iterator[Running]:
    """Every node knows the leader, who serves. The loads of chaos/ ask for increments, which it does not know."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(hashicorp_cluster(lab, reads))
        cluster.wait_ready()
        config = {"system": SYSTEM, "mode": MODES[0], "replicas": len(cluster.nodes), "reads": reads,
                  "timing": "hashicorp/raft's defaults", "stores": "raft.NewInmemStore"}
        yield Running(cluster, load=[], final=[], config=config, stack=stack)
