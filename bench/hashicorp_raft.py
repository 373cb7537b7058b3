# SPDX-License-Identifier: Apache-2.0
"""The system `hashicorp-raft` of the benchmarks: one node of bench/baselines/hashicorp_raft on each replica, loaded by
hr-kv-load as our own store is, in memory only. Called by bench/kv.py and bench/offload.py.

    with running(lab) as up:
        leader = up.cluster.wait_ready()
"""

import contextlib
from collections.abc import Collection, Iterator

from bench.manifest import binary
from chaos.systems import Running
from deploy.lab import Lab
from deploy.lab.cluster import hashicorp_cluster

SYSTEM, PROGRAM = "hashicorp-raft", "hr-hashicorp-raft"
MODES = ("memory",)


def require(asked: Collection[str]) -> None:
    """Ends the run where the program could not be built and `asked` names it: better before an hour of runs than in it."""
    if SYSTEM in asked:
        try:
            binary(PROGRAM)
        except FileNotFoundError as error:
            raise SystemExit(f"{error}\nWithout {SYSTEM} the others are measured") from error


@contextlib.contextmanager
def running(lab: Lab, reads: str = "verify") -> Iterator[Running]:
    """Every node knows the leader, who serves. The loads of chaos/ ask for increments, which it does not know."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(hashicorp_cluster(lab, reads))
        cluster.wait_ready()
        config = {"system": SYSTEM, "mode": MODES[0], "replicas": len(cluster.nodes), "reads": reads,
                  "timing": "hashicorp/raft's defaults", "stores": "raft.NewInmemStore"}
        yield Running(cluster, load=[], final=[], config=config, stack=stack)
