# SPDX-License-Identifier: Apache-2.0
"""The systems under test: which store runs, what stands in front of it, and how its load is started. They differ here
and nowhere else.

| system | store | client |
|---|---|---|
| `hedgerow` | ours | one socket, one address (the proxy's), no retry |
| `hedgerow-no-announce` | ours, which tells the proxy nothing of its leader | as `hedgerow` |
| `hedgerow-no-resign` | ours, whose leaders die and stand still without a word | as `hedgerow` |
| `hedgerow-no-hedge` | ours | as `hedgerow`, but the proxy sends no second copy (a dry run) |
| `noproxy-noretry` | ours | the same, the address of one node |
| `noproxy-app` | ours | hedges by itself: all addresses, deadline, leader cache |
| `etcd-default`, `etcd-tuned` | etcd, its default timing or 10/100 ms | all addresses, as etcd's own client |
| `hashicorp-raft` | a map on hashicorp/raft (bench/baselines), in memory | for benchmarks: it knows no increments, for which loads of chaos ask |
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from bench import product
from bench.manifest import binary
from deploy.lab import VIP_KV, Lab
from deploy.lab.data_dirs import DataDirs
from deploy.lab.cluster import Cluster, etcd_cluster, hashicorp_cluster, hedgerow_cluster, joining_nodes
from deploy.lab.servers.hedgerow_node import ANNOUNCE_PORT, SERVE_PORT, HedgerowNode, NodeSettings
from deploy.lab.unsynced_disks import DiskSettings
from deploy.lab.waiting import until

SYSTEMS = ("hedgerow", "noproxy-noretry", "noproxy-app", "etcd-default", "etcd-tuned")
NO_ANNOUNCE, NO_RESIGN, NO_HEDGE = ABLATIONS = ("hedgerow-no-announce", "hedgerow-no-resign", "hedgerow-no-hedge")
HASHICORP = "hashicorp-raft"
CLIENT_TIMEOUT_S = 5.0
PROXY_NAME = "lab"
_ETCD_TIMING_MS = {"etcd-default": None, "etcd-tuned": (10, 100)}
_ANNOUNCED_WITHIN_S = 20.0
_SHORT_LOGS = (("tail_entries", 10),)


@dataclasses.dataclass(frozen=True)
class Settings:
    mode: str = "memory"  # memory | disk
    replicas: int = 3
    hedge_delay: str = "10ms"  # of the proxy and of the application alike
    disks: DiskSettings | None = None  # that lose what was not synced when a node is killed
    ballast_bytes: int = 0  # resident memory of the first node beyond what it needs
    own_clocks: bool = False  # wall clocks of the nodes' own, which can jump
    short_logs: bool = False  # a snapshot leaves so little of them that a node that was away needs it
    joining: int = 0  # of the lab's replicas, beyond `replicas`: no members at first
    offloads: tuple[tuple[str, str], ...] = ()  # of the kernel's part; what is not named is as the node ships
    spin: str | None = None  # of the leader
    reads: str = "verify"  # of hashicorp-raft
    key_files: bool = False  # keys stand in files, where they can be changed meanwhile
    election: tuple[str, str] | None = None  # floor, cap; None: the nodes' own defaults
    idle_copies: str = "0%"  # of the proxy: load up to which two copies leave at once
    named_client: tuple[str, str] | None = None  # name and key of the one client that nodes serve; the caller's load proves it


@dataclasses.dataclass
class Running:
    cluster: Cluster
    load: list[str]  # without the files and the duration
    final: list[str]  # reads what the store holds in the end; --of and --history are the caller's
    config: dict  # all that defines the system, for the manifest
    proxy: product.Product | None = None
    joining: list[HedgerowNode] = dataclasses.field(default_factory=list)  # not started
    stack: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    def keep(self) -> None:
        """Leaves store and proxy running when the block ends."""
        self.stack.pop_all()


def is_etcd(system: str) -> bool:
    return system in _ETCD_TIMING_MS


@contextlib.contextmanager
def running(system: str, lab: Lab, settings: Settings, data: Path | None = None) -> Iterator[Running]:
    """The store is ready, the proxy knows its leader, and nothing has been asked yet. The proxy's name on this machine
    is the lab's tag. `data`: where the logs are, if not in a folder of the mode's own."""
    with contextlib.ExitStack() as stack:
        data = data or stack.enter_context(DataDirs(lab.tag, settings.mode)).path
        joining: list[HedgerowNode] = []
        if is_etcd(system):
            cluster = stack.enter_context(etcd_cluster(lab, data, _ETCD_TIMING_MS[system]))
            store, mode, servers = "etcd", "etcd", cluster.endpoints
        elif system == HASHICORP:
            cluster = stack.enter_context(hashicorp_cluster(lab, settings.reads))
            store, mode, servers = "hkv", "noproxy-noretry", cluster.endpoints
        else:
            behind = system in ("hedgerow", *ABLATIONS)
            proxies = ((PROXY_NAME, lab.client.ipv4),) if behind and system != NO_ANNOUNCE else ()
            offloads = settings.offloads + ((("watchdog", "off"),) if system == NO_RESIGN else ())
            of_nodes = NodeSettings(durability=settings.mode, proxies=proxies, ballast_bytes=settings.ballast_bytes,
                                    own_clock=settings.own_clocks, offloads=offloads, spin=settings.spin,
                                    snapshots=_SHORT_LOGS if settings.short_logs else (), key_files=settings.key_files, election=settings.election,
                                    named_client=settings.named_client)
            cluster = stack.enter_context(hedgerow_cluster(lab, data, of_nodes, settings.joining))
            joining = joining_nodes(lab, data, of_nodes, settings.joining)
            store, mode = "hkv", "hedgerow" if behind else system
            servers = {"hedgerow": [f"{VIP_KV[0]}:{SERVE_PORT}"], "noproxy-noretry": cluster.endpoints[:1],
                       "noproxy-app": cluster.endpoints}[mode]
        cluster.wait_ready()
        program = [str(binary("hr-kv-chaos")), f"--store={store}"]
        load = [*program, f"--mode={mode}", f"--servers={','.join(servers)}",
                f"--timeout={CLIENT_TIMEOUT_S:g}s"]
        if system == "noproxy-app":
            load.append(f"--hedge_delay={settings.hedge_delay}")
        final = [*program, "--mode=final", f"--servers={','.join(cluster.endpoints)}"]
        proxy = None
        if mode == "hedgerow":
            service = kv_service(lab, cluster, bool(proxies), delay=settings.hedge_delay, idle_copies=settings.idle_copies,
                                 dry_run="on" if system == NO_HEDGE else "off")
            proxy = stack.enter_context(product.Product(lab.client, lab.tag, [service]))
            if proxies:
                _wait_until_announced(proxy)
        yield Running(cluster, load, final, _config(system, cluster, load, proxy, settings), proxy, joining,
                      stack)


def kv_service(lab: Lab, cluster: Cluster, announced: bool = True, **settings) -> dict:
    """Of a proxy that the nodes know as PROXY_NAME, if they announce their leader; backends are called as their hosts. `settings` as in a configuration."""
    service = product.service("kv", VIP_KV[0], SERVE_PORT, "hkv", {host.name: host.ipv4 for host in lab.replicas},
                              **{"deadline": f"{CLIENT_TIMEOUT_S:g}s", **settings})
    if announced:
        node = cluster.nodes[0]
        key = ({"key_file": str(node.write_proxy_key(PROXY_NAME))} if "announce_key_file" in node.config
               else {"key": node.proxy_key(PROXY_NAME)})
        service["cluster"] = {"id": node.config["cluster_id"], **key, "announce_port": ANNOUNCE_PORT}
        for number, backend in enumerate(service["backends"], start=1):
            backend["node"] = number
    return service


def _wait_until_announced(proxy: product.Product) -> None:
    until(lambda: proxy.status()["services"][0].get("leader_source") == "announced", _ANNOUNCED_WITHIN_S,
          lambda: f"no announcement has reached the proxy: {proxy.status()}")


def _config(system: str, cluster: Cluster, load: list[str], proxy: product.Product | None,
            settings: Settings) -> dict:
    """Without paths that differ from run to run, and without keys."""
    volatile = {"data_dir", "admin_socket", "cluster_key", "announce_key", "cluster_key_file", "announce_key_file", "named_clients"}
    node = cluster.nodes[0]
    if is_etcd(system):
        described = {"timing_ms": _ETCD_TIMING_MS[system], "options": "as packaged"}
    elif system == HASHICORP:
        described = {"timing": "hashicorp/raft's defaults", "stores": "raft.NewInmemStore"}
    else:
        described = {key: value for key, value in node.config.items() if key not in volatile}
    services = [{**service, "cluster": "with its key"} for service in proxy.config["services"]] if proxy else None
    return {"system": system, **dataclasses.asdict(settings), "node": described, "services": services,
            "load": [Path(load[0]).name, *load[1:]]}
