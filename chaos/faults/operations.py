# SPDX-License-Identifier: Apache-2.0
"""Faults in the midst of an operator's work: the proxy's daemon is killed and another takes over; a node is killed while a
snapshot travels to a follower, or while a member is taken out of the cluster and brought back.
"""

import os
import signal
import subprocess
import time

from bench.manifest import binary
from chaos.faults.fault import Fault, World, number
from deploy.lab import CommandFailed
from deploy.lab.servers.hedgerow_node import PEER_PORT
from deploy.lab.servers.store_node import StoreNode
from deploy.lab.waiting import until

PROGRAM = "hedgerow"
COMMANDS = {
    "snapshot": ("cluster", "snapshot", "--socket", "{socket}"),
    "remove": ("cluster", "members", "remove", "{node}", "--socket", "{socket}"),
    "add": ("cluster", "members", "add", "{node}", "{peer}", "--socket", "{socket}"),
    "promote": ("cluster", "members", "promote", "{node}", "--socket", "{socket}"),
}
_COMMAND_WITHIN_S = 30.0


class DaemonKill(Fault):
    """SIGKILL to the proxy's daemon; the kernel part goes on alone until, at the end, the next daemon adopts it."""

    kind = "daemon-kill"
    targets = ("all",)
    needs = frozenset({"daemons"})
    shows = "adopted"

    def begin(self) -> None:
        self.world.daemons.end(signal.SIGKILL)

    def end(self) -> None:
        status = self.world.daemons.take_over()
        self.shown = int(status["adoption"]["how"] == "adopted")


def command(name: str, leader: StoreNode, about: StoreNode | None = None) -> list[str]:
    values = {"socket": str(leader.socket)}
    if about is not None:
        values |= {"node": str(about.number), "peer": f"{about.host.ipv4}:{PEER_PORT}"}
    return [str(binary(PROGRAM)), *(part.format(**values) for part in COMMANDS[name])]


def run_command(name: str, leader: StoreNode, about: StoreNode | None = None) -> None:
    argv = command(name, leader, about)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_COMMAND_WITHIN_S)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


class SnapshotKill(Fault):
    """A follower is away for `away_s`, the leader compacts its log meanwhile, and the follower comes back to a leader that has to
    send it a snapshot; while that travels, the targets are killed: the leader, which sends it, or the follower, which takes it."""

    kind = "snapshot-kill"
    keys = {"away_s": number(0.1, 30), "after_ms": number(0, 5000)}
    targets = ("leader", "follower")
    needs = frozenset({"short_logs", "our_commands"})
    shows = "snapshots_begun"

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        followers = [node for node in world.cluster.nodes if node is not world.leader]
        met = [node for node in world.targets if node in followers]
        self._late = met[0] if met else world.rng.choice(followers)

    def begin(self) -> None:
        late = self._late
        late.host.stop(late.process)
        time.sleep(self.away_s)
        # Of all that are there: on a busy machine another may lead by now.
        for node in self.world.cluster.nodes:
            if node is not late:
                run_command("snapshot", node)
        late.start()
        # Seen where it arrives: the sender may have begun before the receiver was there to take it.
        until(lambda: _snapshots_taken(late), _COMMAND_WITHIN_S, lambda: f"node {late.number} is sent no snapshot", 0.005)
        self.shown += 1
        time.sleep(self.world.rng.uniform(0, self.after_ms) / 1e3)
        for node in self.world.targets:
            os.killpg(node.process.pid, signal.SIGKILL)
            node.kill()

    def end(self) -> None:
        super().end()
        if not self._late.running:
            self._late.start()


class MembershipKill(Fault):
    """A follower is taken out of the cluster, and the leader is killed in the midst of that; in the end the member is brought back as
    a learner and promoted."""

    kind = "membership-kill"
    keys = {"after_ms": number(0, 1000)}
    targets = ("leader",)
    needs = frozenset({"our_commands"})
    shows = "changes"

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._member = world.rng.choice([node for node in world.cluster.nodes if node is not world.leader])

    def begin(self) -> None:
        leader = self.world.leader
        with subprocess.Popen(command("remove", leader, self._member), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as removal:
            time.sleep(self.world.rng.uniform(0, self.after_ms) / 1e3)
            os.killpg(leader.process.pid, signal.SIGKILL)
            leader.kill()
            removal.wait(_COMMAND_WITHIN_S)
        self.shown += 1

    def end(self) -> None:
        self.world.leader.start()
        # It may have been taken out, or not: the leader that ran the command has died.
        for name, role in (("remove", "left"), ("add", "learner"), ("promote", "voter")):
            self._change(name, role)
            self.shown += 1

    def _change(self, name: str, role: str) -> None:
        """Until it is done: what came before may still be under way, and a learner catches up first."""
        deadline = time.monotonic() + _COMMAND_WITHIN_S
        while _role(leader := self._leader(), self._member) != role:
            try:
                run_command(name, leader, self._member)
            except CommandFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _leader(self) -> StoreNode:
        deadline = time.monotonic() + _COMMAND_WITHIN_S
        while (leader := self.world.cluster.leader()) is None or leader is self._member:
            if leader is self._member:
                leader.transfer(next(node.number for node in self.world.cluster.nodes if node is not leader))
            if time.monotonic() > deadline:
                raise CommandFailed(f"no node leads: {self.world.cluster.states()}")
            time.sleep(0.05)
        return leader


def _snapshots_taken(node: StoreNode) -> int:
    """From others, in this life: begun."""
    return int((node.status() or {}).get("counters", {}).get("snapshot_transfers.receive_begun", 0))


def _role(node: StoreNode, member: StoreNode) -> str:
    """As the node sees it; a node that is no member has left. Nothing if the node does not answer."""
    if (status := node.status()) is None:
        return ""
    return next((said["role"] for said in status.get("members", []) if int(said["id"]) == member.number), "left")
