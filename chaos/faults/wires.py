# SPDX-License-Identifier: Apache-2.0
"""Faults of wires: a node's wire is cut, in one direction or both; the switch goes down; and network faults on chosen links, from a
lost packet here and there to a partition that leaves each node only its neighbours.
"""

from collections.abc import Sequence

from chaos.faults.fault import Fault, World, number, one_of
from deploy.lab import names
from deploy.lab.servers.hedgerow_node import PEER_PORT
from deploy.lab.network_faults import DELAYS_MS, Counted, Link


class Cut(Fault):
    """The targets' wires, both ways. They keep their carrier, as behind a dead switch."""

    kind = "cut"
    direction = "both"
    shows = "cut_packets"

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        for host in self._hosts():
            self._before[host] = self.world.lab.packets_sent_by(host)
            self.world.lab.cut(host, self.direction)

    def end(self) -> None:
        for host, before in self._before.items():
            self.shown += self._lost_by(host, before)
            self.world.lab.heal(host)

    def _lost_by(self, host: str, before: int) -> int:
        """What it has sent into a wire that leads nowhere."""
        return self.world.lab.packets_sent_by(host) - before

    def _hosts(self) -> list[str]:
        return [node.host.name for node in self.world.targets]


class CutOut(Cut):
    """No other node hears them."""

    kind, direction = "cut-out", "out"

    def _lost_by(self, host: str, before: int) -> int:
        return self.world.lab.packets_cut(host)


class CutIn(CutOut):
    """They hear no other node."""

    kind, direction = "cut-in", "in"


class SizeFilter(CutOut):
    """Of what they send to other nodes only short datagrams arrive: heartbeats pass, and entries do not."""

    kind = "size-filter"
    keys = {"longer_than_bytes": number(100, 1400)}

    def begin(self) -> None:
        for host in self._hosts():
            self._before[host] = 0
            self.world.lab.cut(host, self.direction, f"udp dport {PEER_PORT} udp length > {int(self.longer_than_bytes)}")


class SwitchDown(Fault):
    """No node reaches another."""

    kind = "switch-down"
    targets = ("all",)
    shows = "cut_packets"

    def begin(self) -> None:
        self._before = self._sent()
        self.world.lab.pull_down()

    def end(self) -> None:
        self.shown = self._sent() - self._before
        self.world.lab.pull_up()

    def _sent(self) -> int:
        return sum(self.world.lab.packets_sent_by(node.host.name) for node in self.world.cluster.nodes)


BETWEEN = ("nodes", "requests", "answers", "clients", "everybody", "ring", "leader-to-follower", "follower-to-leader")


def links(between: str, hosts: Sequence[str], leader: str, follower: str) -> list[Link]:
    """`hosts` are the nodes', in their order; `follower` is the one that is met where only one is."""
    nodes = [(a, b) for a in hosts for b in hosts if a != b]
    requests = [(names.CLIENT, host) for host in hosts]
    answers = [(host, names.CLIENT) for host in hosts]
    if between == "ring":
        far = range(2, len(hosts) - 1)  # steps round the ring to a node that is no neighbour
        return [(a, b) for a, b in nodes if (hosts.index(b) - hosts.index(a)) % len(hosts) in far]
    return {"nodes": nodes, "requests": requests, "answers": answers, "clients": requests + answers,
            "everybody": nodes + requests + answers, "leader-to-follower": [(leader, follower)],
            "follower-to-leader": [(follower, leader)]}[between]


class _NetworkFault(Fault):
    """On some links."""

    targets = ("leader", "follower", "all")
    needs = frozenset({"network_faults"})
    counts = ""  # which count shows it

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._seed = world.rng.getrandbits(63)
        hosts = [node.host.name for node in world.cluster.nodes]
        followers = [host for host in hosts if host != world.leader.host.name]
        self.links = links(self.between, hosts, world.leader.host.name, world.rng.choice(followers))

    def shares(self, share: float) -> dict:
        raise NotImplementedError

    def begin(self) -> None:
        self._before = self.world.network_faults.counted()
        self.world.network_faults.change(self.links, seed=self._seed, **self.shares(self.share))

    def end(self) -> None:
        after = self.world.network_faults.counted()
        self.shown = sum(getattr(after.get(link, Counted()) - self._before.get(link, Counted()), self.counts) for link in self.links)
        self.world.network_faults.change(self.links, **self.shares(0.0))


class Loss(_NetworkFault):
    """With share = 1 a partition."""

    kind = "loss"
    keys = {"between": one_of(*BETWEEN), "share": number(0.0001, 1)}
    shows, counts = "lost_packets", "lost"

    def shares(self, share: float) -> dict:
        return {"lost": share}


class Duplication(_NetworkFault):
    kind = "duplication"
    keys = {"between": one_of(*BETWEEN), "share": number(0.0001, 1)}
    shows, counts = "duplicated_packets", "duplicated"

    def shares(self, share: float) -> dict:
        return {"duplicated": share}


def _delay(value: object) -> float:
    if value not in DELAYS_MS or isinstance(value, bool):
        raise ValueError(f"must be one of {', '.join(f'{delay:g}' for delay in DELAYS_MS)}, not {value!r}")
    return value


class Delay(_NetworkFault):
    """A packet that is held back draws one of a row of delays, so packets overtake each other; those that are not delayed
    overtake them all."""

    kind = "delay"
    keys = {"between": one_of(*BETWEEN), "share": number(0.0001, 1), "from_ms": _delay, "to_ms": _delay}
    shows, counts = "delayed_packets", "delayed"

    def shares(self, share: float) -> dict:
        return {"delayed": share, "delays_ms": (self.from_ms, self.to_ms)}
