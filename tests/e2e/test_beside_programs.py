# SPDX-License-Identifier: Apache-2.0
"""Other owners' programs and rules on the host: the proxy works beside them, or names what ends its packets.

The control of each test is a client that asks a backend directly: it is served throughout.
"""

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from deploy.lab.host import UPLINK, Host
from harness import bpf_links
from harness.dns import UdpClient
from harness.product import VIP4, wait_until

TC_ACT_OK, TC_ACT_UNSPEC = 0, -1
NEEDS_TCX = pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 6), reason="TCX came with Linux 6.6")


@contextlib.contextmanager
def foreign_tcx(host: Host, verdict: int, *, before: bool) -> Iterator[None]:
    with host.entered():
        link = bpf_links.attach_verdict(socket.if_nametoindex(UPLINK), before, verdict)
    try:
        yield
    finally:
        os.close(link)


def is_served(lab, address: str) -> bool:
    with UdpClient(lab.client, address) as client:
        return client.ask(7, "www.example.test", timeout_s=0.5) is not None


def problems(product, code: str) -> list[str]:
    return [text for text in product.status()["problems"] if text.startswith(code + ":")]


@pytest.fixture
def clsact(lab) -> Iterator[None]:
    """An empty clsact qdisc of another owner."""
    lab.client.run(["tc", "qdisc", "add", "dev", UPLINK, "clsact"])
    yield
    lab.client.run(["tc", "qdisc", "del", "dev", UPLINK, "clsact"], check=False)


def add_filter_that_ends_packets(host: Host) -> None:
    """It matches all and has no action: the packet goes on to the stack, and to no filter behind it."""
    host.run(["tc", "filter", "add", "dev", UPLINK, "ingress", "prio", "1", "bpf", "bytecode", "1,6 0 0 4294967295", "flowid", "1:1"])


@NEEDS_TCX
@pytest.mark.own
@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("when", ["before up", "after up"])
def test_a_tcx_program_that_ends_packets_is_passed_by(lab, servers, product, order, when):
    with contextlib.ExitStack() as stack:
        if when == "before up":
            stack.enter_context(foreign_tcx(lab.client, TC_ACT_OK, before=False))
        product.up(tcx_order=order, services=[product.service("dns4")])
        if when == "after up":
            stack.enter_context(foreign_tcx(lab.client, TC_ACT_OK, before=True))
        assert is_served(lab, lab.replica("a").ipv4)
        wait_until(lambda: is_served(lab, VIP4), what="answers")
        assert not product.status()["problems"]
        product.finish()


@NEEDS_TCX
@pytest.mark.own
def test_a_tcx_program_that_lets_packets_go_on_keeps_its_place(lab, servers, product):
    with foreign_tcx(lab.client, TC_ACT_UNSPEC, before=True):
        product.up(services=[product.service("dns4")])
        assert is_served(lab, VIP4)
        before = wait_until(lambda: product.status()["uplinks"][0].get("before"), what="the program's name")
        assert len(before) == 1 and "tcx" in before[0]
        assert not product.status()["problems"]
        product.finish()


@pytest.mark.own
def test_a_filter_that_ends_packets_refuses_up_and_is_named(lab, servers, product, clsact):
    add_filter_that_ends_packets(lab.client)
    config = product.config(attach="clsact", services=[product.service("dns4")])
    refused = product.run("up", "--config", product.write(config))
    assert refused.returncode != 0
    assert "program_before:" in refused.stderr and "a bpf filter (priority 1" in refused.stderr, refused.stderr
    assert is_served(lab, lab.replica("a").ipv4)
    doctor = product.run("doctor", "--config", product.write(config))
    assert "a bpf filter (priority 1" in doctor.stdout, doctor.stdout


@pytest.mark.own
def test_a_filter_that_comes_later_and_ends_packets_is_a_problem_within_seconds(lab, servers, product, clsact):
    product.up(attach="clsact", services=[product.service("dns4")])
    assert is_served(lab, VIP4)
    add_filter_that_ends_packets(lab.client)
    found = wait_until(lambda: problems(product, "program_before"), what="the problem")
    assert "a bpf filter (priority 1" in found[0] and UPLINK in found[0]
    assert product.status()["state"] == "degraded"
    assert is_served(lab, lab.replica("a").ipv4)
    lab.client.run(["tc", "filter", "del", "dev", UPLINK, "ingress", "prio", "1"])
    wait_until(lambda: not product.status()["problems"], what="the problem's end")
    assert is_served(lab, VIP4)
    product.finish()


FIREWALL = """table inet beside {
  chain %s { type filter hook %s priority 0; policy drop;
    iifname "lo" accept
    oifname "lo" accept
    %s
  }
}
"""
OUT = FIREWALL % ("out", "output", f'oifname "{UPLINK}" udp dport 53 accept')
IN = FIREWALL % ("in", "input", f'iifname "{UPLINK}" ct state established accept')


def firewall(host: Host, rules: str) -> None:
    host.run(["nft", "-f", "-"], stdin=rules)


@pytest.fixture
def no_firewall(lab) -> Iterator[None]:
    yield
    lab.client.run(["nft", "delete", "table", "inet", "beside"], check=False)


# VIPs are routed by the proxy interface here, whatever it meets; that `auto` finds another way is tests/e2e/test_vip_route.py.


@pytest.mark.own
@pytest.mark.parametrize("rules, code, rule", [(OUT, "rules_out", "oifname"), (IN, "rules_in", "iifname")], ids=["out", "in"])
def test_rules_that_name_the_uplink_alone_refuse_up(lab, servers, product, no_firewall, rules, code, rule):
    firewall(lab.client, rules)
    assert is_served(lab, lab.replica("a").ipv4)
    config = product.write(product.config(vip_route="interface", services=[product.service("dns4")]))
    refused = product.run("up", "--config", config)
    assert refused.returncode != 0 and f"{code}:" in refused.stderr, refused.stderr
    doctor = product.run("doctor", "--config", config).stdout
    assert any(rule in line and "hr0" in line for line in doctor.splitlines() if line.startswith("warning  firewall")), doctor
    firewall(lab.client, rules.replace(f'"{UPLINK}"', f'{{ "{UPLINK}", "hr0" }}').replace("table", "flush table inet beside\ntable"))
    product.up(services=[product.service("dns4")])
    assert is_served(lab, VIP4)
    product.finish()


@pytest.mark.own
@pytest.mark.parametrize("rules, code", [(OUT, "rules_out"), (IN, "rules_in")], ids=["out", "in"])
def test_rules_that_come_later_are_a_problem_within_seconds(lab, servers, product, no_firewall, rules, code):
    product.up(vip_route="interface", services=[product.service("dns4")])
    assert is_served(lab, VIP4)
    firewall(lab.client, rules)
    wait_until(lambda: problems(product, code), what="the problem")
    lab.client.run(["nft", "delete", "table", "inet", "beside"])
    wait_until(lambda: not problems(product, code), what="the problem's end")
    assert is_served(lab, VIP4)
    product.finish()


@pytest.mark.own
def test_a_way_that_is_tested_no_longer_has_no_problem(lab, servers, product, no_firewall):
    lab.client.sysctl(f"net/ipv6/conf/{UPLINK}/keep_addr_on_down", "1")
    product.up(vip_route="interface", services=[product.service("dns4")])
    firewall(lab.client, OUT)
    wait_until(lambda: problems(product, "rules_out"), what="the problem")
    lab.client.run(["ip", "link", "set", UPLINK, "down"])
    wait_until(lambda: product.status()["problems"] and not problems(product, "rules_out"), what="another problem instead")
    lab.client.run(["ip", "link", "set", UPLINK, "up"])
    wait_until(lambda: problems(product, "rules_out"), what="the problem again")
    lab.client.run(["nft", "delete", "table", "inet", "beside"])
    product.finish()


IPSEC = ["src", "10.77.0.0/24", "dst", "10.77.0.0/24", "dir", "out"]


@pytest.fixture
def no_ipsec(lab) -> Iterator[None]:
    yield
    lab.client.run(["ip", "xfrm", "policy", "flush"])


@pytest.mark.own
def test_a_backend_that_an_ipsec_policy_names_is_refused_and_never_asked_in_clear(lab, servers, product, no_ipsec):
    lab.client.run(["ip", "xfrm", "policy", "add", *IPSEC, "tmpl", "src", "10.77.0.1", "dst", "10.77.0.11", "proto", "esp", "mode",
                    "transport"])
    direct = False
    with contextlib.suppress(OSError):
        direct = is_served(lab, lab.replica("a").ipv4)
    assert not direct, "the control: there is no key, so nothing may leave"
    config = product.write(product.config(services=[product.service("dns4")]))
    refused = product.run("up", "--config", config)
    assert refused.returncode != 0 and "ipsec: service dns4: backend a" in refused.stderr, refused.stderr
    assert "ipsec:" in product.run("doctor", "--config", config).stdout
    lab.client.run(["ip", "xfrm", "policy", "flush"])
    product.up(services=[product.service("dns4")])
    assert is_served(lab, VIP4)
    lab.client.run(["ip", "xfrm", "policy", "add", *IPSEC, "tmpl", "src", "10.77.0.1", "dst", "10.77.0.11", "proto", "esp", "mode",
                    "transport"])
    wait_until(lambda: problems(product, "ipsec"), timeout_s=15, what="the problem of one that came later")
    lab.client.run(["ip", "xfrm", "policy", "flush"])
    wait_until(lambda: not product.status()["problems"], what="the problem's end")
    product.finish()
