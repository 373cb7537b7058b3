# SPDX-License-Identifier: Apache-2.0
"""The cluster that `./dev demo --keep` leaves up: how to look around in it, and `--kill-leader`, which kills the
leader and starts it again 2 s later. Finds everything by the lab's tag: the process that built the lab has ended.
"""

import os
import signal
import sys
import time
from pathlib import Path

from bench.manifest import ROOT, binary
from chaos.systems import Running
from deploy.lab import VIP_KV, Lab
from deploy.lab.names import RUN_DIR
from deploy.lab.servers.hedgerow_node import SERVE_PORT, HedgerowNode
from deploy.lab.waiting import until

_AWAY_S = 2.0
_ELECTED_WITHIN_S = 5.0


def say_how_to_look_around(lab: Lab, up: Running) -> None:
    folder = RUN_DIR / lab.tag
    servers = ", ".join(f"{node.host.name} ({node.host.ipv4})" for node in up.cluster.nodes)
    print(f"""
The last cluster is still up: servers {servers},
and the client's host ({lab.client.ipv4}), where Hedgerow answers for them at {VIP_KV[0]}:{SERVE_PORT}.
Write and read there, by a client that asks once:

  hkv() {{ sudo ip netns exec {lab.client.netns} {_short('hkv')} --server {VIP_KV[0]}:{SERVE_PORT} "$@"; }}
  hkv put greeting hello; hkv get greeting
  while hkv incr hits; do sleep 0.1; done       # while, in another terminal, you kill the leader:
  sudo ./dev demo --kill-leader                 # it comes back 2 s later

  sudo {_short('hedgerow')} status --socket {up.proxy.socket}
  for s in {folder}/?-*/admin.sock; do sudo {_short('hedgerow-node')} status --socket $s; done
  sudo /usr/bin/python3 -m deploy.lab shell --tag {lab.tag}      # a shell on the client's host

  sudo ./dev demo --down                        # takes all of it down""")


def kill_leader(tag: str) -> int:
    try:
        lab = Lab.attach(tag)
    except LookupError:
        print("no demo is up: sudo ./dev demo --keep leaves one", file=sys.stderr)
        return 1
    # Their data is named in the configurations that they already have.
    nodes = [HedgerowNode(host, number, lab.replicas, Path()) for number, host in enumerate(lab.replicas, start=1)]
    leader, pid = _leader(nodes)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    print(f"server {leader.host.name}, the leader, is killed (SIGKILL, pid {pid})", flush=True)
    try:
        successor, _ = _leader([node for node in nodes if node is not leader])
        print(f"server {successor.host.name} leads now", flush=True)
        time.sleep(max(0.0, killed + _AWAY_S - time.monotonic()))
    finally:
        leader.host.popen([binary("hedgerow-node"), "run", "--config", leader.file], log=leader.log)
        print(f"server {leader.host.name} is started again")
    return 0


def _leader(nodes: list[HedgerowNode]) -> tuple[HedgerowNode, int]:
    """Who says that it leads, and its pid; of several, the one with the highest term."""
    def leading() -> list[tuple]:
        return [(int(status["term"]), node.number, node, int(status["pid"])) for node in nodes
                if (status := node.status()) is not None and status["role"] == "leader"]

    return max(until(leading, _ELECTED_WITHIN_S, lambda: "no server leads; sudo ./dev demo --down takes the lab down", 0.05))[2:]


def _short(program: str) -> str:
    return os.path.relpath(binary(program), ROOT)
