# SPDX-License-Identifier: Apache-2.0
"""Containers on the client host, as namespaces: on a bridge or on a routed veth, with the rules that their programs write."""

import contextlib
import dataclasses

from harness.dns import query

POD_NET = "10.244.0.0/24"
GATEWAY_MAC = "ee:ee:ee:ee:ee:ee"

ASK = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1.5)
s.connect((sys.argv[1], 53))
answers = []
for query_id in range(int(sys.argv[3])):
    s.send(query_id.to_bytes(2, "big") + bytes.fromhex(sys.argv[2])[2:])
    try:
        answers.append(int.from_bytes(s.recv(2048)[:2], "big") == query_id)
    except OSError as error:
        answers.append(type(error).__name__)
print(answers)
"""


@dataclasses.dataclass
class Container:
    lab: object
    netns: str

    def run(self, *words: str) -> str:
        return self.lab.client.run(["ip", "netns", "exec", self.netns, *words]).stdout

    def asks(self, address: str, count: int = 1) -> str:
        return self.run("/usr/bin/python3", "-c", ASK, address, query(0, "www.example.test").hex(), str(count)).strip()


@contextlib.contextmanager
def container(lab, address: str, gateway: str, *, bridge: str | None, name: str = "box"):
    """A namespace with eth0 on a veth, whose host's end `<name>0` is in a bridge, made where it is not there, or routed by itself."""
    host, netns = lab.client, f"{lab.client.netns}-{name}"
    makes_bridge = bridge is not None and host.run(["ip", "link", "show", bridge], check=False).returncode != 0
    host.run(["ip", "netns", "add", netns])
    try:
        host.run(["ip", "link", "add", f"{name}0", "type", "veth", "peer", "name", "eth0", "netns", netns])
        if makes_bridge:
            host.run(["ip", "link", "add", bridge, "type", "bridge"])
            host.run(["ip", "address", "add", f"{gateway}/24", "dev", bridge])
            host.run(["ip", "link", "set", bridge, "up"])
        if bridge is not None:
            host.run(["ip", "link", "set", f"{name}0", "master", bridge])
        host.run(["ip", "link", "set", f"{name}0", "up"])
        for words in (["address", "add", f"{address}/{24 if bridge else 32}", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      *([] if bridge else [["route", "add", gateway, "dev", "eth0", "scope", "link"]]),
                      ["route", "add", "default", "via", gateway, "dev", "eth0"]):
            host.run(["ip", "-n", netns, *words])
        host.sysctl("net/ipv4/ip_forward", 1)
        yield Container(lab, netns)
    finally:
        host.sysctl("net/ipv4/ip_forward", 0)
        host.run(["ip", "link", "del", f"{name}0"], check=False)  # the kernel takes its time with a namespace's links
        host.run(["ip", "netns", "del", netns])
        if makes_bridge:
            host.run(["ip", "link", "del", bridge])


@contextlib.contextmanager
def rules(host, text: str):
    """nftables in the way that iptables-nft writes what such programs ask for."""
    host.run(["nft", "-f", "-"], stdin=text)
    try:
        yield
    finally:
        for line in text.splitlines():
            if line.strip().startswith("table "):
                host.run(["nft", "delete", *line.split("{", maxsplit=1)[0].split()])


@contextlib.contextmanager
def pod_server(box, address: str):
    """A DNS server in a pod."""
    server = box.lab.client.popen(["ip", "netns", "exec", box.netns, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=53",
                                   f"--listen-address={address}", "--bind-interfaces", "--no-resolv", "--no-hosts", "--user=root",
                                   "--address=/#/192.0.2.1", "--pid-file="])
    try:
        yield server
    finally:
        box.lab.client.stop(server)


@contextlib.contextmanager
def pod_routes(lab):
    """What a network plugin writes on the other nodes: this node's pods are behind this node."""
    for host in lab.replicas:
        host.run(["ip", "route", "add", POD_NET, "via", lab.client.ipv4])
    try:
        yield
    finally:
        for host in lab.replicas:
            host.run(["ip", "route", "del", POD_NET])


@contextlib.contextmanager
def pod_of(lab, address: str, *, bridge: str | None, name: str = "box"):
    """As the bridge plugin makes it, or as Calico does: an address alone, and a gateway that is no host's address."""
    gateway = "10.244.0.1" if bridge else "169.254.1.1"
    with container(lab, address, gateway, bridge=bridge, name=name) as box:
        if bridge is None:
            lab.client.run(["ip", "route", "add", address, "dev", f"{name}0"])
            lab.client.run(["ip", "link", "set", f"{name}0", "address", GATEWAY_MAC])
            box.run("ip", "neigh", "add", gateway, "lladdr", GATEWAY_MAC, "dev", "eth0")
        yield box
