# SPDX-License-Identifier: Apache-2.0
"""Where clients live beside the host itself: a bridge with NAT as Docker makes it, a CNI chain, a routed veth as Calico makes it,
another host that routes through this one. Each is built of namespaces, and asks a backend directly, too: that is the control."""

import pytest

from harness.containers import ASK, container, rules
from harness.dns import query
from harness.product import VIP4, wait_until

DOCKER = """
table ip dockernat {
    chain POSTROUTING { type nat hook postrouting priority 100; ip saddr 172.18.0.0/24 oifname != "dk0" masquerade; }
}
table ip dockerfilter {
    chain FORWARD {
        type filter hook forward priority 0; policy drop;
        oifname "dk0" ct state related,established accept
        iifname "dk0" accept
    }
}"""
# bridge (ipMasq), portmap and firewall: a chain for each container, its own network and multicast left out.
CNI = """
table ip cninat {
    chain CNI-1234 { ip daddr 10.88.0.0/24 accept; ip daddr != 224.0.0.0/4 masquerade; }
    chain CNI-HOSTPORT-MASQ { meta mark & 0x2000 == 0x2000 masquerade; }
    chain CNI-DN-1234 { tcp dport 8080 dnat to 10.88.0.5:80; }
    chain CNI-HOSTPORT-DNAT { jump CNI-DN-1234; }
    chain PREROUTING { type nat hook prerouting priority -100; fib daddr type local jump CNI-HOSTPORT-DNAT; }
    chain OUTPUT { type nat hook output priority -100; fib daddr type local jump CNI-HOSTPORT-DNAT; }
    chain POSTROUTING { type nat hook postrouting priority 100; jump CNI-HOSTPORT-MASQ; ip saddr 10.88.0.5 jump CNI-1234; }
}
table ip cnifilter {
    chain CNI-FORWARD { ip daddr 10.88.0.5 ct state related,established accept; ip saddr 10.88.0.5 accept; }
    chain FORWARD { type filter hook forward priority 0; policy drop; jump CNI-FORWARD; }
}"""


GATEWAY_MAC = "ee:ee:ee:ee:ee:ee"


@pytest.mark.parametrize("bridge, net, text", [("dk0", "172.18.0", DOCKER), ("cni0", "10.88.0", CNI)], ids=["docker", "cni"])
def test_a_container_on_a_bridge_with_nat_is_served_and_hedged(lab, servers, product, bridge, net, text):
    services = product.services("dns")
    services[0]["clients"] = [lab.client.ipv4]  # what hides behind MASQUERADE comes from the host's own address
    product.up(services=services)
    with container(lab, f"{net}.5", f"{net}.1", bridge=bridge) as box, rules(lab.client, text):
        assert box.asks(lab.replica("a").ipv4) == "[True]", "the control"
        assert box.asks(VIP4, 5) == str([True] * 5)
        servers["a"].stall()
        assert box.asks(VIP4, 10) == str([True] * 10)
        servers["a"].resume()
    assert product.figure("won_by_hedge") + product.figure("won_by_failover") >= 10
    wait_until(lambda: product.figure("in_flight") == 0, what="the last request's end")


def test_a_pod_on_a_routed_veth_is_served_under_its_own_address(lab, servers, product):
    """As Calico has it: an address alone, a gateway that is no host's address, and routes on the other hosts."""
    services = product.services("dns")
    services[0]["clients"] = ["10.244.0.0/24"]
    product.up(services=services)
    pod, gateway = "10.244.0.5", "169.254.1.1"
    with container(lab, pod, gateway, bridge=None) as box:
        lab.client.run(["ip", "route", "add", pod, "dev", "box0"])
        lab.client.run(["ip", "link", "set", "box0", "address", GATEWAY_MAC])
        box.run("ip", "neigh", "add", gateway, "lladdr", GATEWAY_MAC, "dev", "eth0")
        for host in lab.replicas:
            host.run(["ip", "route", "add", "10.244.0.0/24", "via", lab.client.ipv4])
        try:
            assert box.asks(lab.replica("a").ipv4) == "[True]", "the control"
            assert box.asks(VIP4, 5) == str([True] * 5)
            servers["a"].stall()
            assert box.asks(VIP4, 10) == str([True] * 10)
            servers["a"].resume()
        finally:
            for host in lab.replicas:
                host.run(["ip", "route", "del", "10.244.0.0/24"])
    wait_until(lambda: product.figure("in_flight") == 0, what="the last request's end")


@pytest.mark.lab(replicas=3)
def test_another_host_of_the_backends_network_is_served_through_this_one_when_it_is_masqueraded(lab, servers, product):
    """Its answers would find the way past this host, which is why it needs the rule (docs/config.md, Who may use a VIP)."""
    services = product.services("dns")
    for service in services:
        service["backends"] = service["backends"][:2]
    services[0]["clients"] = ["10.77.0.0/24"]
    config = product.write(product.config(services=services))
    assert "masquerade` in nft" in product.run("doctor", "--config", config).stdout
    services[0]["clients"] = [lab.client.ipv4]
    config = product.write(product.config(services=services))
    assert "masquerade` in nft" not in product.run("doctor", "--config", config).stdout
    product.up(services=services)
    other = lab.replica("c")
    other.run(["ip", "route", "add", VIP4, "via", lab.client.ipv4])
    lab.client.sysctl("net/ipv4/ip_forward", 1)
    masquerade = 'table ip gateway {\n chain out { type nat hook postrouting priority 100; oifname "hr0" ip saddr 10.77.0.0/24 ' \
                 "ip saddr != 10.77.0.1 masquerade; }\n}"
    try:
        ask = ["/usr/bin/python3", "-c", ASK]
        question = query(0, "www.example.test").hex()
        assert other.run([*ask, lab.replica("a").ipv4, question, "1"]).stdout.strip() == "[True]", "the control"
        with rules(lab.client, masquerade):
            assert other.run([*ask, VIP4, question, "5"]).stdout.strip() == str([True] * 5)
    finally:
        lab.client.sysctl("net/ipv4/ip_forward", 0)
        other.run(["ip", "route", "del", VIP4])
    wait_until(lambda: product.figure("in_flight") == 0, what="the last request's end")
