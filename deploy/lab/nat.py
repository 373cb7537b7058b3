# SPDX-License-Identifier: Apache-2.0
"""The container network: a host `inner` whose gateway is the client host, which hides it by MASQUERADE.

This is what Docker's default bridge does, so that a test with `inner` says whether a containerised client
works. Docker writes its rule with iptables; nft says the same where iptables is not installed.
"""

import shutil

from deploy.lab import names, netns
from deploy.lab.host import UPLINK, Host

_GATEWAY_LINK = "inner0"


def wire(client: Host, inner: Host, kind: str | None) -> None:
    with client.netlink() as route:
        route.link("add", ifname=_GATEWAY_LINK, kind="veth", peer={"ifname": UPLINK, "net_ns_fd": inner.netns})
        index = route.link_lookup(ifname=_GATEWAY_LINK)[0]
        route.link("set", index=index, state="up")
        netns.add_addresses(route, index, names.INNER_GATEWAY_IPV4, names.INNER_GATEWAY_IPV6)
    with inner.netlink() as route:
        index = route.link_lookup(ifname=UPLINK)[0]
        route.link("set", index=index, state="up")
        netns.add_addresses(route, index, inner.ipv4, inner.ipv6)
        route.route("add", dst="0.0.0.0/0", gateway=names.INNER_GATEWAY_IPV4)
        route.route("add", dst="::/0", gateway=names.INNER_GATEWAY_IPV6)
    client.sysctl("net/ipv4/ip_forward", 1)
    client.sysctl("net/ipv6/conf/all/forwarding", 1)
    if kind is not None:
        _masquerade(client, kind)


def _masquerade(client: Host, kind: str) -> None:
    if kind == "auto":
        kind = "iptables" if shutil.which("iptables") else "nft"
    if kind == "iptables":
        for program, net in (("iptables", names.INNER_NET_IPV4), ("ip6tables", names.INNER_NET_IPV6)):
            client.run([program, "-t", "nat", "-A", "POSTROUTING", "-s", net, "!", "-o", _GATEWAY_LINK,
                        "-j", "MASQUERADE"])
    elif kind == "nft":
        client.run(["nft", "-f", "-"], stdin=_nft_rules())
    else:
        raise ValueError(f"lab nat {kind!r}: expected iptables, nft, auto or None")


def _nft_rules() -> str:
    def table(family: str, net: str) -> str:
        return (f"table {family} lab {{\n chain out {{\n  type nat hook postrouting priority 100;\n"
                f'  {family} saddr {net} oifname != "{_GATEWAY_LINK}" masquerade\n }}\n}}\n')

    return table("ip", names.INNER_NET_IPV4) + table("ip6", names.INNER_NET_IPV6)
