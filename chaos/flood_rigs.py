# SPDX-License-Identifier: Apache-2.0
"""What `./dev chaos flood` floods: DNS behind the proxy, and a cluster with its proxy; for each hook, where frames are let loose, what
they are, and how many of them the hook's program has counted.
"""

import contextlib
import dataclasses
import struct
from collections.abc import Callable, Iterator

from bench import product, store_load
from bench.client_run import run_client
from bench.dns_rig import Staller, Stalls
from bench.manifest import binary
from bench.pinning import on_cpu, pin
from bench.replicas import BenchServer
from cluster.client import hkv
from deploy.lab import VIP_DNS, VIP_KV, VIP_RAW, Host, Lab
from deploy.lab.host import UPLINK
from deploy.lab.servers import Knot, Nsd
from deploy.lab.servers.hedgerow_node import ANNOUNCE_PORT, PEER_PORT, SERVE_PORT, NodeSettings
from deploy.lab.servers.zone import NAMES

HOOKS = ("splitter", "sink", "reply", "alive", "forged-vip", "announce", "clock", "node")
# The links of the proxy, and what an unprivileged user may send there: the proxy's interface, its far end, the clock's two ends.
LINKS = {"user-hr0": "hr0", "user-hr0p": "hr0p", "user-hr0c0": "hr0c0", "user-hr0c1": "hr0c1"}
# What becomes of a flooded service, beside one whose leader stalls all the time, so that it lives by its hedges: its backends are silent,
# take 800 ms, or refuse everything.
BESIDE = {"beside-silent": 9001, "beside-slow": 9002, "beside-refusing": 9003}
# What a flooded service's requests must meet there, and at least what share of them.
SHOWN = {"beside-silent": ("that found the service's share full", 0.25), "beside-slow": ("that found the service's share full", 0.25),
         "beside-refusing": ("that ended in a negative reply", 0.9)}
ROWS = (*HOOKS, *LINKS, *BESIDE)
BESIDE_RATE_PART = 5  # of the frames: each costs the backends' processors, which are this machine's, as much as the proxy's
# The honest client and the servers have one CPU, the sender and what its frames set off the other.
HONEST_CPU, FLOOD_CPU = 0, 1
_CLUSTER_ID, _CLUSTER_KEY = 9, "00112233445566778899aabbccddeeff"
PEER_VERSION = 4  # HR_PEER_VERSION of bpf/abi/peer_abi.h
_DNS_PORT, _DECOY_PORT = 53, 9000
_HONEST_RATE, _HONEST_SOCKETS = 1_000, 16
_CONTROL_LINKS = ("fl0", "fl1")
_SLOW = "800ms"
_REFUSED = {"offset": 8, "bytes": "ee"}  # of a reply, which echoes its request
_SPOOFED = "10.200.0.0/16"  # hr-flood's sources
_STALLS = Stalls(first_after_s=0.1, every_s=0.25, for_s=0.04)


@dataclasses.dataclass(frozen=True)
class Flood:
    """Where frames are let loose and what they are; `met` is how many of them the program has counted so far, `shown` how many of
    them met what the row is about: those of a flooded service that found its share full, or ended in a negative reply."""

    host: Host
    interface: str
    destination_mac: str
    flags: list[str]
    met: Callable[[], int]
    shown: Callable[[], int] | None = None

    def sender(self, rate: float, control_mac: str | None = None) -> BenchServer:
        """With `control_mac`, the same frames on a link without programs. An unprivileged sender's go there as spoofed ones, for no route
        leads there."""
        interface, mac = (_CONTROL_LINKS[0], control_mac) if control_mac else (self.interface, self.destination_mac)
        return BenchServer(self.host, "hr-flood", [f"--interface={interface}", f"--destination_mac={mac}",
                                                   f"--rate={rate}",
                                                   *(flag for flag in self.flags if not control_mac or flag != "--unprivileged")])


def mac_of(host: Host, interface: str) -> str:
    with host.netlink() as route:
        return dict(route.link("get", ifname=interface)[0]["attrs"])["IFLA_ADDRESS"]


@contextlib.contextmanager
def control_link(host: Host) -> Iterator[str]:
    """A veth of the host's own whose far end drops what is for another hardware address; an address that no host has."""
    with host.netlink() as route:
        route.link("add", kind="veth", ifname=_CONTROL_LINKS[0], peer={"ifname": _CONTROL_LINKS[1]})
        for name in _CONTROL_LINKS:
            route.link("set", index=route.link_lookup(ifname=name)[0], state="up", arp=False)
    try:
        yield "02:00:00:00:00:99"
    finally:
        with host.netlink() as route:
            route.link("del", ifname=_CONTROL_LINKS[0])


class ProxyRig:
    """DNS behind the proxy, and a decoy service beside it, whose requests no backend answers: what floods the splitter must end
    somewhere else than at the honest clients' servers, or those are measured."""

    def __init__(self, lab: Lab, tag: str):
        self.lab = lab
        backends = {host.name: host.ipv4 for host in lab.replicas}
        dns = product.service("dns", VIP_DNS[0], _DNS_PORT, "dns", backends,
                              cluster={"id": _CLUSTER_ID, "key": _CLUSTER_KEY, "announce_port": ANNOUNCE_PORT})
        decoy = product.service("decoy", VIP_RAW[0], _DECOY_PORT, "raw", backends)
        self.product = product.Product(lab.client, tag, [dns, decoy])
        self.servers = [Nsd(lab.replica("a"), _DNS_PORT), Knot(lab.replica("b"), _DNS_PORT)]

    @contextlib.contextmanager
    def up(self) -> Iterator["ProxyRig"]:
        with contextlib.ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
                for pid in server.host.pids():
                    pin(pid, HONEST_CPU)
                stack.enter_context(silent_port(server.host, _DECOY_PORT))
            stack.enter_context(self.product)
            yield self

    def config(self) -> dict:
        return {"services": [{**service, "cluster": None} for service in self.product.config["services"]]}

    def dry_run(self, switch: str) -> None:
        self.lab.client.run([binary("hedgerow"), "dry-run", "dns", switch, "--socket", self.product.socket])

    def reason(self, name: str) -> int:
        return product.number(self.product.status().get("reasons", {}).get(name))

    def service_requests(self, name: str) -> int:
        return product.service_figures(self.product.status(), name)["requests"]

    def pids(self) -> list[int]:
        return [int(self.product.status()["pid"])]

    def honest(self, seconds: float) -> dict:
        argv = [str(binary("hr-load")), f"--target={VIP_DNS[0]}:{_DNS_PORT}", "--workload=dns", f"--names={NAMES}",
                "--loop=open", f"--rate={_HONEST_RATE}", f"--seconds={seconds}", f"--sockets={_HONEST_SOCKETS}",
                "--warmup=200", "--timeout=1s", "--linger=200ms"]
        client = run_client(self.lab.client, on_cpu(argv, HONEST_CPU), self.lab)
        summary = client.summary
        # A forged answer to a request that is over comes to the client's socket as it would without a proxy.
        return {"n": summary["n"], "lost": summary["lost"], "wrong": summary["wrong_waiting"], "p50_us": summary["p50_ms"] * 1e3,
                "p99_us": summary["p99_ms"] * 1e3}

    def flood(self, hook: str) -> Flood:
        client, b, a = self.lab.client, self.lab.replica("b"), self.lab.replica("a").ipv4
        varied = [f"--payload={'00' * 40}", "--vary_bytes=8"]
        answer = [f"--destination={client.ipv4}", f"--payload={'0000' + '81800001000000000000' + '00' * 28}", "--vary_bytes=2"]

        def named(source: str) -> list[str]:
            return [f"--source={source}", "--sources=1", f"--source_port={_DNS_PORT}"]

        def to(address: str, port: int) -> list[str]:
            return [f"--destination={address}", f"--destination_port={port}", *varied]

        if hook in LINKS:
            # On the proxy's interface to a VIP's port without a service; on the other links wherever it goes, it ends there.
            address, reason = (VIP_DNS[0], "sink") if LINKS[hook] == "hr0" else ("198.51.100.7", "foreign_on_link")
            return Flood(client, LINKS[hook], mac_of(client, "hr0"), ["--unprivileged", *to(address, 9)], lambda: self.reason(reason))
        host, interface, receiver, flags, counted = {
            "splitter": (client, "hr0", "hr0", to(VIP_RAW[0], _DECOY_PORT), ""),
            "sink": (client, "hr0", "hr0", to(VIP_DNS[0], 9), "sink"),
            # The clock's own queueing discipline would let few of them through to its program.
            "clock": (client, "hr0c0", "hr0c1", [*to(VIP_DNS[0], 53), "--bypass_qdisc"], "foreign_on_link"),
            # In the leader's name, to any port of the client: what a host on the same network can guess.
            "reply": (b, UPLINK, UPLINK, [*named(a), *answer], "no_flow"),
            # What would keep a dead leader alive, if any datagram in its name were a sign of life.
            "alive": (b, UPLINK, UPLINK, [*named(a), f"--destination={client.ipv4}", "--payload=616263"], "no_flow"),
            "forged-vip": (b, UPLINK, UPLINK, [*named(VIP_DNS[0]), *answer], "forged_vip"),
            "announce": (b, UPLINK, UPLINK, [f"--destination={client.ipv4}", f"--destination_port={ANNOUNCE_PORT}",
                                             f"--payload={announcement().hex()}", "--vary_offset=8", "--vary_bytes=8"], "announce_tag")}[hook]
        return Flood(host, interface, mac_of(client, receiver), flags,
                     lambda: self.reason(counted) if counted else self.service_requests("decoy"))


class BesideRig(ProxyRig):
    """The same DNS, whose leader stalls for 40 ms in every 250, beside services that are flooded. The tables are small enough to be
    full of a flooded service's requests."""

    def __init__(self, lab: Lab, tag: str):
        super().__init__(lab, tag)
        backends = {host.name: host.ipv4 for host in lab.replicas}
        dns = product.service("dns", VIP_DNS[0], _DNS_PORT, "dns", backends)
        flooded = [product.service(name, VIP_RAW[0], port, "raw", backends,
                                   raw={"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4,
                                        **({"negative_replies": [{"match": [_REFUSED]}]} if name == "beside-refusing" else {})})
                   for name, port in BESIDE.items()]
        self.product = product.Product(lab.client, tag, [dns, *flooded], limits={"requests": 16384, "parked": 16384})

    @contextlib.contextmanager
    def up(self) -> Iterator["BesideRig"]:
        with contextlib.ExitStack() as stack:
            for host in self.lab.replicas:
                # Answers to the addresses that no host has come back to the proxy.
                host.run(["ip", "route", "add", _SPOOFED, "via", self.lab.client.ipv4])
                stack.enter_context(silent_port(host, BESIDE["beside-silent"]))
                for name, service in (("beside-slow", _SLOW), ("beside-refusing", "0")):
                    server = stack.enter_context(BenchServer(host, "hr-echo-server", [
                        f"--listen={host.ipv4}:{BESIDE[name]}", f"--service={service}"]))
                    pin(server.pid, FLOOD_CPU)
            stack.enter_context(super().up())
            yield self

    def honest(self, seconds: float) -> dict:
        before = self._hedged()
        staller = Staller(self.servers[0], _STALLS)
        staller.start()
        try:
            done = super().honest(seconds)
        finally:
            staller.end()
        return {**done, "hedges": self._hedged() - before, "stalls": staller.stalls}

    def _hedged(self) -> int:
        figures = product.service_figures(self.product.status(), "dns")
        return figures["hedges"] + figures["failover_sends"]

    def flood(self, hook: str) -> Flood:
        payload = bytes(8) + bytes.fromhex(_REFUSED["bytes"]) + bytes(31)
        return Flood(self.lab.client, "hr0", mac_of(self.lab.client, "hr0"),
                     [f"--destination={VIP_RAW[0]}", f"--destination_port={BESIDE[hook]}", f"--payload={payload.hex()}",
                      "--vary_bytes=8"], lambda: self.service_requests(hook), lambda: self._shown(hook))

    def _shown(self, hook: str) -> int:
        entry = next(each for each in self.product.status()["services"] if each["name"] == hook)
        if hook == "beside-refusing":
            return product.number(entry.get("nacked"))
        return sum(product.number(entry.get("reasons", {}).get(name)) for name in ("service_share", "client_share"))


class ClusterRig:
    """The store and its proxy as `./dev chaos leader-kill` runs them; the leader's XDP program is flooded."""

    def __init__(self, lab: Lab, up):
        self.lab, self._up = lab, up
        self.leader = up.cluster.wait_ready()
        self._follower = next(node for node in up.cluster.nodes if node is not self.leader)

    def config(self) -> dict:
        return self._up.config

    def pids(self) -> list[int]:
        return [node.process.pid for node in self._up.cluster.nodes] + [int(self._up.proxy.status()["pid"])]

    def honest(self, seconds: float) -> dict:
        argv = [str(binary("hr-kv-load")), f"--server={VIP_KV[0]}:{SERVE_PORT}", "--clients=4", "--operation=put",
                "--keys=100", "--warm_up=0.2s", f"--measured={seconds:g}s"]
        report = store_load.run_load(self.lab, on_cpu(argv, HONEST_CPU)).report
        latency = store_load.latency_of(report)
        return {"n": report["answered"], "lost": report["lost"] + report["failed"], "wrong": 0,
                "p50_us": latency.quantile(0.5) / 1e3, "p99_us": latency.quantile(0.99) / 1e3}

    def _met(self) -> int:
        return int(self.leader.status()["counters"]["kernel.dropped_tag"])

    def flood(self, _hook: str) -> Flood:
        """A follower's address and port, and an append of the right cluster and size whose tag is noise."""
        return Flood(self.lab.client, UPLINK, mac_of(self.leader.host, UPLINK),
                     [f"--source={self._follower.host.ipv4}", "--sources=1", f"--source_port={PEER_PORT}",
                      f"--destination={self.leader.host.ipv4}", f"--destination_port={PEER_PORT}",
                      f"--payload={peer_append(self._follower.number, self.leader.number).hex()}", "--vary_offset=8",
                      "--vary_bytes=8"], self._met)


def announcement() -> bytes:
    """bpf/abi/announce_abi.h, of the right cluster; the tag, at 8, is the sender's noise."""
    return struct.pack("<IBBHQQQQQ16sH6s32s", 0x31415248, 1, 1, 104, 0, _CLUSTER_ID, 0, 1, 1,
                       bytes(10) + b"\xff\xff\x0a\x4d\x00\x0b", 53, bytes(6), bytes(32))


def peer_append(sender: int, receiver: int) -> bytes:
    """bpf/abi/peer_abi.h: a whole header of the lab's cluster, kind APPEND, and 200 bytes that are never looked at. It
    names the key that the node has, as any host can that saw a datagram of the cluster."""
    size = 264
    key_id = hkv.siphash(bytes.fromhex(NodeSettings().cluster_key), b"hedgerow key id 1") & 0xFFFFFFFF or 1
    return struct.pack("<IBBHQQQQIIQII", 0x31505248, PEER_VERSION, 5, size, 0, 77, 1, 1, sender, receiver, 1, 0, key_id) + bytes(size - 64)


@contextlib.contextmanager
def silent_port(host: Host, port: int) -> Iterator[None]:
    """What comes to the port is thrown away as it comes in: no process, and no ICMP error, takes part."""
    table = f"flood_{port}"
    host.run(["nft", f"add table ip {table}; add chain ip {table} in {{ type filter hook prerouting priority raw; }}; "
                     f"add rule ip {table} in udp dport {port} drop"])
    try:
        yield
    finally:
        host.run(["nft", f"delete table ip {table}"], check=False)
