# SPDX-License-Identifier: Apache-2.0
"""The client and the three backends: addresses, uplinks and configurations.

The client has a machine of its own. The backends share one, each in a network namespace that owns a card: their
drivers are as real as in machines of their own, and an emulated machine costs 10 s of a processor to boot. Backend a has
the card as it comes; b and c verify every checksum that they receive.
"""

import dataclasses

import yaml

from deploy.lab.servers import hedgerow_node
from deploy.lab.servers.dns import nsd_config
from deploy.lab.servers.hedgerow_node import ANNOUNCE_PORT as ANNOUNCE, SERVE_PORT as SERVE
from deploy.lab.servers.zone import ORIGIN
from deploy.vm.net.cells import Cell
from deploy.vm.net.guest_machine import Card, GuestMachine
from deploy.vm.net.models import Model

DNS_VIP, DNS6_VIP, KV_VIP = "10.99.0.53", "fd99::53", "10.99.0.48"
_VLAN = 7
_CLUSTER = 77
# Of a cluster that lives for some seconds.
_CLUSTER_KEY, _ANNOUNCE_KEY = "6865646765726f772d6e65742d6e6f64", "6865646765726f772d6e65742d707879"
BIG_RECORDS, ZONE_NAMES = 12, 1500


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    number: int  # the last part of its addresses
    cards: tuple[Card, ...]
    machine: GuestMachine

    @property
    def ipv4(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def ipv6(self) -> str:
        return f"fd77::{self.number}"

    def run(self, command: str, *, check: bool = True, timeout_s: float = 60.0) -> tuple[int, str]:
        """A shell command in the host's namespace."""
        return self.machine.run(self._here(command), check=check, timeout_s=timeout_s)

    def out(self, command: str, timeout_s: float = 60.0) -> str:
        return self.run(command, timeout_s=timeout_s)[1]

    def _here(self, command: str) -> str:
        if self.name == "client":
            return command
        quoted = command.replace("'", "'\\''")
        return f"ip netns exec {self.name} sh -c '{quoted}'"


CLIENT_CARDS = (Card("02:00:00:00:00:01"), Card("02:00:00:00:00:02"))  # the second one for a bond
BACKEND_CARDS = tuple(Card(f"02:00:00:00:00:{number}", plain_receiver=number != 11) for number in (11, 12, 13))


def client_of(machine: GuestMachine) -> Host:
    return Host("client", 1, CLIENT_CARDS, machine)


def backends_of(machine: GuestMachine) -> list[Host]:
    return [Host(name, 11 + index, (BACKEND_CARDS[index],), machine) for index, name in enumerate("abc")]


def boot(machine: GuestMachine, model: Model) -> None:
    machine.run(f"""
echo 1 >/proc/sys/net/core/devconf_inherit_init_net
for scope in all default; do
  echo 1 >/proc/sys/net/ipv4/conf/$scope/rp_filter
  for key in accept_dad dad_transmits accept_ra router_solicitations; do echo 0 >/proc/sys/net/ipv6/conf/$scope/$key; done
done
modprobe -a {' '.join(model.modules)} 8021q bridge && modprobe bonding max_bonds=0
mkdir -p /run/hedgerow""")


def make_namespaces(hosts: list[Host], model: Model) -> None:
    """Each backend's card into its own, under the name eth0; then its DNS server."""
    machine = hosts[0].machine
    for host in hosts:
        card = host.cards[0]
        machine.run(f"ip netns add {host.name}; dev=$({_device_of(card)}); ip link set $dev netns {host.name} name eth0")
        host.run("ip link set lo up")
        if card.plain_receiver and not model.plain_receiver:
            host.run("ethtool -K eth0 rx off")
        _note_receive_offloads(host)
        _start_nsd(host)


def name_cards(client: Host) -> None:
    for number, card in enumerate(client.cards):
        client.run(f"dev=$({_device_of(card)}); [ $dev = eth{number} ] || ip link set $dev name eth{number}")
    _note_receive_offloads(client)


# What the kernel turns off for generic XDP, for a bridge's port or a card below a VLAN, and never on again: as `ethtool -k` and as
# `ethtool -K` name it.
_RECEIVE_OFFLOADS = {"large-receive-offload": "rx-lro", "rx-gro-hw": "rx-gro-hw"}


def _cards_of(host: Host) -> list[str]:
    return [f"eth{number}" for number in range(len(host.cards))]


def _noted(host: Host, card: str) -> str:
    return f"/run/{host.name}-{card}-came-with"


def _note_receive_offloads(host: Host) -> None:
    """Those that are on before the first cell."""
    edits = " ".join(f"-e 's/^{shown}: on$/{set_by}/p'" for shown, set_by in _RECEIVE_OFFLOADS.items())
    for card in _cards_of(host):
        host.run(f"ethtool -k {card} | sed -n {edits} >{_noted(host, card)}")


def _device_of(card: Card) -> str:
    return f"grep -l {card.mac} /sys/class/net/*/address | cut -d/ -f5"


def uplink_of(cell: Cell) -> str:
    return {"plain": "eth0", "vlan": f"eth0.{_VLAN}", "bond": "bond0", "bridge": "br0"}[cell.uplink]


def up(host: Host, cell: Cell) -> None:
    """The cell's uplink on the host's cards, which are as they came, with its addresses."""
    uplink = uplink_of(cell)
    cards = _cards_of(host) if cell.uplink == "bond" else ["eth0"]
    for card in cards:
        # Off first: vmxnet3 turns LRO off for native XDP, and the kernel, which still wants it on, would see nothing to do.
        host.run(f"for offload in $(cat {_noted(host, card)}); do ethtool -K {card} $offload off; ethtool -K {card} $offload on || exit 1; done")
    # The MTU of a VLAN or bond follows its card's. A card comes up before a VLAN or a bridge turns its LRO off: VMware's driver
    # states a greatest number of receive buffers (maxNumRxSG) with LRO only, and QEMU's vmxnet3 takes none for 1. It then drops
    # each frame of more than 3 kB, which takes several (hw/net/vmxnet3.c, max_rx_frags).
    cards_up = [f"link set {card} mtu {cell.mtu} up" for card in cards]
    lines = {"plain": cards_up,
             "vlan": [*cards_up, f"link add link eth0 name {uplink} type vlan id {_VLAN}"],
             "bond": [f"link add {uplink} type bond mode active-backup miimon 100",
                      *(f"link set {card} down master {uplink}" for card in cards), *cards_up],
             "bridge": [*cards_up, f"link add {uplink} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                        f"link set eth0 master {uplink}"]}[cell.uplink]
    lines = [*lines, f"link set {uplink} mtu {cell.mtu} up",
             f"addr add {host.ipv4}/24 dev {uplink}", f"addr add {host.ipv6}/64 dev {uplink} nodad"]
    host.run("ip -batch - <<END\n" + "\n".join(lines) + "\nEND")
    host.run(f"for i in $(seq 200); do grep -q 1 /sys/class/net/{uplink}/carrier && exit 0; sleep 0.05; done; exit 1")


def down(host: Host, cell: Cell) -> None:
    uplink = uplink_of(cell)
    gone = "" if uplink == "eth0" else f"link del {uplink}\n"
    host.run(f"ip -batch - <<END\n{gone}addr flush dev eth0\nlink set eth0 down\nEND")


def _start_nsd(host: Host) -> None:
    folder = f"/run/nsd-{host.name}"
    records = [f"{ORIGIN}. 300 IN SOA ns1.{ORIGIN}. hostmaster.{ORIGIN}. 1 3600 600 86400 60",
               f"{ORIGIN}. 300 IN NS ns1.{ORIGIN}.", f"ns1.{ORIGIN}. 300 IN A 192.0.2.53",
               f'whoami.{ORIGIN}. 300 IN TXT "{host.name}"',
               *(f'big.{ORIGIN}. 300 IN TXT "{number:02d}-{"x" * 220}"' for number in range(BIG_RECORDS))]
    host.machine.write(f"{folder}/zone", "\n".join(records) + "\n")
    # A zone transfer of some 100 kB: segments that the card makes and the receiver merges.
    host.machine.run(f"i=0; while [ $i -lt {ZONE_NAMES} ]; do echo n$i.{ORIGIN}. 300 IN TXT "
                     f"{'y' * 60}; i=$((i + 1)); done >>{folder}/zone")
    host.machine.write(f"{folder}/nsd.conf", nsd_config(folder, ("0.0.0.0", "::0")) + "".join(
        f"  provide-xfr: {anyone} NOKEY\n" for anyone in ("0.0.0.0/0", "::/0")))
    # A process group of its own, which stall() stops.
    host.run(f"setsid nsd -d -c {folder}/nsd.conf >{folder}/log 2>&1 & echo $! >{folder}/group")
    host.run(f"for i in $(seq 200); do [ -s {folder}/nsd.pid ] && exit 0; sleep 0.05; done; cat {folder}/log; exit 1")


def signal_nsd(host: Host, name: str) -> None:
    host.run(f"kill -{name} -$(cat /run/nsd-{host.name}/group)")


def proxy_config(cell: Cell, backends: list[Host], key: str) -> str:
    """Delays and timeouts are long: an emulated processor is slow, and nothing here is about time."""
    slow = {"delay": "400ms", "deadline": "10s", "budget": "100%", "suspect_min": "3s", "suspect_max": "3s",
            "election_timeout": "3s"}
    services = [{"name": name, "vip": vip, "port": 53, "profile": "dns", "retention": "16s", **slow,
                 "backends": [{"name": host.name, "address": address(host), "port": 53} for host in backends]}
                for name, vip, address in (("dns", DNS_VIP, lambda host: host.ipv4),
                                           ("dns6", DNS6_VIP, lambda host: host.ipv6))]
    services.append({"name": "kv", "vip": KV_VIP, "port": SERVE, "profile": "hkv", **slow,
                     "cluster": {"id": _CLUSTER, "key": key, "announce_port": ANNOUNCE},
                     "backends": [{"name": host.name, "address": host.ipv4, "port": SERVE, "node": node}
                                  for node, host in enumerate(backends, 1)]})
    # Small maps: the kernel clears them first.
    config = {"attach": cell.attach, "metrics": {"listen": ""}, "clock": {"tolerance": "1s"},
              "limits": {"requests": 4096, "parked": 1024, "flows": 4096, "connections": 1024, "fragments": 256},
              "services": services}
    return yaml.safe_dump(config, sort_keys=False)


def node_config(node: int, backends: list[Host], client: Host, xdp: str) -> str:
    host = backends[node - 1]
    config = hedgerow_node.config(
        node, host.ipv4, [each.ipv4 for each in backends], cluster_id=_CLUSTER, cluster_key=_CLUSTER_KEY, announce_key=_ANNOUNCE_KEY,
        durability="memory", data_dir=f"/run/node-{host.name}/log", admin_socket=f"/run/node-{host.name}/admin.sock",
        proxies=[{"name": "net", "address": f"{client.ipv4}:{ANNOUNCE}"}], offloads={"xdp": xdp}, election={"floor": "500ms", "cap": "2s"})
    return yaml.safe_dump(config, sort_keys=False)
