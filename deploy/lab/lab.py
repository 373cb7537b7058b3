# SPDX-License-Identifier: Apache-2.0
"""Builds and removes a lab: a switch namespace with a bridge, a client host and replicas, one veth each.

Bench, demo and tests call `with Lab(tag, replicas=2) as lab:`. The order of removal is processes, links,
namespaces, files; each step finds its work by the lab's tag and not by what this python remembers, so that the
same code removes what a killed run left.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from deploy.lab import data_dirs, names, netns, node_pins, proxy_pins
from deploy.lab import nat as container_nat
from deploy.lab.host import UPLINK, Host
from deploy.lab.registry import Registry
from deploy.lab.uplink import Uplink

_BRIDGE = "br0"


class LabInUse(RuntimeError):
    """Another living process owns a lab with this tag."""


class Lab:
    def __init__(self, tag: str, replicas: int = 2, *, inner: bool = False, nat: str | None = "auto",
                 clients: int = 1, strict_rp_filter: bool = True, client_uplink: Uplink = Uplink(),
                 replica_uplink: Uplink = Uplink()):
        """`inner` adds a container behind the client host; `nat` says how it is hidden: `iptables` (Docker's
        rule), `nft`, `auto` (the first of the two there is), or None for plain routing. `clients`: hosts that clients run on,
        `client` and further ones beside it."""
        if not 0 <= replicas <= len(names.REPLICAS):
            raise ValueError(f"lab: {replicas} replicas, expected 0 to {len(names.REPLICAS)}")
        if not 1 <= clients <= names.MOST_CLIENTS:
            raise ValueError(f"lab: {clients} client hosts, expected 1 to {names.MOST_CLIENTS}")
        self.tag = names.check_tag(tag)
        self.registry = Registry(tag)
        self.hosts: dict[str, Host] = {}
        self._strict_rp_filter = strict_rp_filter
        self._inner, self._nat = inner, nat
        self._cut_one_way: set[str] = set()
        self._uplinks = {}
        for number in range(1, clients + 1):
            self._uplinks[names.client_name(number)] = client_uplink
            self._add(names.client_name(number), *names.client_addresses(number))
        for name in names.REPLICAS[:replicas]:
            self._uplinks[name] = replica_uplink
            self._add(name, *names.replica_addresses(name))
        if inner:
            self._add(names.INNER, names.INNER_IPV4, names.INNER_IPV6)

    def _add(self, name: str, ipv4: str, ipv6: str) -> None:
        self.hosts[name] = Host(self.registry, name, ipv4, ipv6)

    # -- the hosts -----------------------------------------------------------------------------------------

    @property
    def client(self) -> Host:
        return self.hosts[names.CLIENT]

    @property
    def clients(self) -> list[Host]:
        """The client host and those beside it."""
        return [host for name, host in self.hosts.items() if names.is_client(name)]

    @property
    def inner(self) -> Host:
        return self.hosts[names.INNER]

    @property
    def replicas(self) -> list[Host]:
        return [host for name, host in self.hosts.items() if name in names.REPLICAS]

    def replica(self, name: str) -> Host:
        return self.hosts[name]

    def pids(self) -> list[int]:
        """Every process in its hosts."""
        return netns.pids_in({netns.identity(netns.path_of(host.netns)) for host in self.hosts.values()})

    # -- life ----------------------------------------------------------------------------------------------

    def __enter__(self) -> "Lab":
        return self.up()

    def __exit__(self, *_exc) -> None:
        self.down()

    def up(self) -> "Lab":
        if os.geteuid() != 0:
            raise PermissionError("the lab makes network namespaces: run it as root")
        if not self.registry.try_lock():
            raise LabInUse(f"lab {self.tag!r} belongs to a living process; use another tag")
        try:
            _remove(self.registry)  # what a killed run left under this tag
            self._build()
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        self.registry.kill_all()
        for host in self.hosts.values():
            host.reap()
        _remove(self.registry)
        self.registry.remove_files()
        self.registry.unlock()

    def keep(self) -> None:
        """Lets go of the lab without removing it: it stays until the next `up` or `clean` of its tag."""
        self.registry.unlock()

    @classmethod
    def clean(cls, tag: str) -> bool:
        """Removes whatever a lab with this tag left, its nodes' data and what its proxies and groups have pinned; True when there was
        something. A lab whose owner is alive is refused."""
        registry, found = Registry(names.check_tag(tag)), tag in names.tags()
        if not registry.try_lock():
            raise LabInUse(f"lab {tag!r} belongs to a living process")
        _remove(registry)
        # bench/product.py and bench/steer_systems.py name these; the links on which programs were are gone with the hosts.
        for folder in registry.path.glob("*-hedgerow-*"):
            proxy_pins.remove(folder.name.partition("-hedgerow-")[2])
        for path in node_pins.PINS.with_name("hedgerow-steer").glob(f"hr-{tag}-*"):
            shutil.rmtree(path, ignore_errors=True)
        data_dirs.remove_all(tag)
        registry.remove_files()
        registry.unlock()
        return found

    @classmethod
    def attach(cls, tag: str) -> "Lab":
        """A view of a lab that is up (kept, or another process's), without owning it."""
        present = {names.host_of_netns(tag, name) for name in netns.of_lab(tag)}
        if names.CLIENT not in present:
            raise LookupError(f"no lab {tag!r} is up")
        return cls(tag, replicas=len(present & set(names.REPLICAS)), inner=names.INNER in present,
                   clients=sum(names.is_client(name or "") for name in present))

    # -- links ---------------------------------------------------------------------------------------------

    def cut(self, host: str, direction: str = "both", only: str = "") -> None:
        """Silently drops everything on the host's wire, or only what it sends (`out`) or what is sent to it (`in`): the
        host keeps its carrier, as behind a dead switch. `only`: one way, and what matches this
        expression of nft(8); the rest passes."""
        if direction == "both":
            with self._switch_netlink() as route:
                route.link("set", index=route.link_lookup(ifname=host)[0], master=0)
            return
        # Seen from the switch, what a host sends comes in by its port.
        hook = {"out": "ingress", "in": "egress"}[direction]
        self._switch_nft(f"""table netdev cut_{host} {{
            chain wire {{
                type filter hook {hook} device "{host}" priority 0
                {only} counter drop
            }}
        }}""")
        self._cut_one_way.add(host)

    def packets_cut(self, host: str) -> int:
        """By a cut one way, since it began."""
        found = re.search(r"counter packets (\d+)", self._switch_nft(f"list table netdev cut_{host}"))
        return int(found[1])

    def packets_sent_by(self, host: str) -> int:
        """Into its wire, whatever becomes of them; seen from the switch, they come in there."""
        with self._switch_netlink() as route:
            link = route.link("get", index=route.link_lookup(ifname=host)[0])[0]
        return link.get_attr("IFLA_STATS64")["rx_packets"]

    def pull_down(self) -> None:
        """The switch itself: its bridge goes down. All hosts keep a carrier, and reach no other."""
        self.switch_ip("link", "set", "dev", _BRIDGE, "down")

    def pull_up(self) -> None:
        self.switch_ip("link", "set", "dev", _BRIDGE, "up")

    def heal(self, host: str) -> None:
        """Takes back any cut."""
        if host in self._cut_one_way:
            self._switch_nft(f"delete table netdev cut_{host}")
            self._cut_one_way.discard(host)
        with self._switch_netlink() as route:
            port, bridge = (route.link_lookup(ifname=name)[0] for name in (host, _BRIDGE))
            route.link("set", index=port, master=bridge)

    def add_second_uplink(self, address: str, metric: int = 500) -> str:
        """eth1 of the client's host on the same switch. `metric` makes its route count less than eth0's. Each interface speaks for its own
        address, as on any host with two in one network. Returns its wire's name in the switch."""
        port = f"{self.tag}e1"[-15:]
        self.client.run(["ip", "link", "add", "eth1", "type", "veth", "peer", "name", port])
        self.client.run(["ip", "link", "set", port, "netns", names.netns_name(self.tag, names.SWITCH)])
        bridge = self.switch(["ip", "-o", "link", "show", "type", "bridge"]).split(": ")[1]
        self.switch_ip("link", "set", port, "master", bridge, "up")
        self.client.sysctl("net.ipv4.conf.all.arp_ignore", 1)
        self.client.sysctl("net.ipv4.conf.all.arp_announce", 2)
        self.client.run(["ip", "link", "set", "eth1", "up"])
        self.client.run(["ip", "addr", "add", f"{address}/24", "dev", "eth1", "metric", str(metric)])
        return port

    def switch_ip(self, *arguments: str, check: bool = True) -> None:
        """Runs `ip` in the switch, where a host's wire has the host's name."""
        self.switch(["ip", *arguments], check=check)

    def switch(self, argv: Sequence[str], *, stdin: str | None = None, check: bool = True) -> str:
        """Runs a program in the switch to its end; what it said."""
        with netns.entered(names.netns_name(self.tag, names.SWITCH)):
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=30)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)} in the switch: {done.stderr or done.stdout}")
        return done.stdout

    def switch_index(self, name: str) -> int:
        """The number of an interface there."""
        with self._switch_netlink() as route:
            return route.link_lookup(ifname=name)[0]

    def _switch_nft(self, commands: str) -> str:
        return self.switch(["nft", "-f", "-"], stdin=commands)

    def unplug(self, host: str) -> None:
        """Deletes the host's uplink, as a driver that goes away does."""
        with self._switch_netlink() as route:
            route.link("del", index=route.link_lookup(ifname=host)[0])

    def plug(self, host: str) -> None:
        """A new uplink with the host's addresses, after `unplug`."""
        self._wire(self.hosts[host])

    @contextlib.contextmanager
    def _switch_netlink(self):
        with netns.entered(names.netns_name(self.tag, names.SWITCH)):
            route = IPRoute()
        with route:
            yield route

    # -- building ------------------------------------------------------------------------------------------

    def _build(self) -> None:
        switch = names.netns_name(self.tag, names.SWITCH)
        for name in [switch, *(host.netns for host in self.hosts.values())]:
            netns.create(name)
            _quiet_ipv6(name)
        # Filtering bridged packets through netfilter is on in a new namespace and costs more than the bridge.
        for key in ("iptables", "ip6tables", "arptables"):
            netns.write_sysctl(switch, f"net/bridge/bridge-nf-call-{key}", 0, optional=True)
        with self._switch_netlink() as route:
            route.link("add", ifname=_BRIDGE, kind="bridge", br_stp_state=0, br_forward_delay=0,
                       br_mcast_snooping=0)
            route.link("set", index=route.link_lookup(ifname=_BRIDGE)[0], state="up")
        for host in self.hosts.values():
            self._configure(host)

    def _configure(self, host: Host) -> None:
        strict = int(self._strict_rp_filter and (names.is_client(host.name) or host.name == names.INNER))
        for scope in ("all", "default"):
            host.sysctl(f"net/ipv4/conf/{scope}/rp_filter", strict)
        with host.netlink() as route:
            route.link("set", index=1, state="up")
        if host.name == names.INNER:
            container_nat.wire(self.client, host, self._nat)
        else:
            self._wire(host)

    def _wire(self, host: Host) -> None:
        options = self._uplinks[host.name]
        with self._switch_netlink() as route:
            route.link("add", ifname=host.name, kind="veth",
                       peer={"ifname": UPLINK, "net_ns_fd": host.netns})
            port, bridge = (route.link_lookup(ifname=name)[0] for name in (host.name, _BRIDGE))
            # A bridge's MTU is its smallest port's unless the ports can carry whatever a host is set to.
            route.link("set", index=port, master=bridge, state="up", mtu=max(1500, options.mtu))
        with host.netlink() as route:
            index = route.link_lookup(ifname=UPLINK)[0]
            route.link("set", index=index, mtu=options.mtu, state="up")
            netns.add_addresses(route, index, host.ipv4, host.ipv6)
            if self._inner and self._nat is None and host.name in names.REPLICAS:
                route.route("add", dst=names.INNER_NET_IPV4, gateway=names.CLIENT_IPV4)
                route.route("add", dst=names.INNER_NET_IPV6, gateway=names.CLIENT_IPV6)
        if not options.tx_checksum:
            host.set_tx_checksum(False)
        if options.rate_kbit is not None or options.delay_ms is not None:
            host.shape(rate_kbit=options.rate_kbit, delay_ms=options.delay_ms)


class XdpOnSwitch:
    """Inside the `with` block the switch's ends of these hosts' wires run an XDP program (an object's section `xdp.frags`).
    A veth silently loses what native XDP sends back (XDP_TX) unless its other end has a program, too. Only while it is
    needed, since it costs each packet of that port a little. Not a generator, which would end when python forgets it, also
    where the lab is kept."""

    def __init__(self, lab: Lab, hosts: Sequence[Host], program: Path):
        self._lab, self._hosts, self._program = lab, hosts, program

    def __enter__(self) -> None:
        for host in self._hosts:
            self._lab.switch_ip("link", "set", "dev", host.name, "xdpdrv", "object", str(self._program), "section",
                                "xdp.frags")

    def __exit__(self, *_exc) -> None:
        for host in self._hosts:
            # An uplink that was pulled out has taken its program along.
            self._lab.switch_ip("link", "set", "dev", host.name, "xdpdrv", "off", check=False)


def _quiet_ipv6(name: str) -> None:
    """No duplicate address detection, which would hold an address back for a second, and no router hunting."""
    for scope in ("all", "default"):
        for key, value in (("accept_dad", 0), ("dad_transmits", 0), ("accept_ra", 0), ("router_solicitations", 0)):
            netns.write_sysctl(name, f"net/ipv6/conf/{scope}/{key}", value)


def _remove(registry: Registry) -> None:
    registry.kill_all()
    switch = names.netns_name(registry.tag, names.SWITCH)
    found = netns.of_lab(registry.tag)
    # A name whose process had mounts of its own, and is dead, is a file and no namespace any more.
    if switch in found and netns.is_namespace(switch):
        # Freeing a namespace takes its links along, but later. Deleted here, they are gone when we return.
        with netns.entered(switch):
            route = IPRoute()
        with route, contextlib.suppress(NetlinkError):
            for link in route.get_links():
                if link["index"] != 1 and link.get_attr("IFLA_IFNAME") != _BRIDGE:
                    route.link("del", index=link["index"])
    for name in found:
        netns.remove(name)
