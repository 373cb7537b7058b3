# SPDX-License-Identifier: Apache-2.0
"""The routes to VIPs lead by the uplink where this host's rules are for the uplink, or where the operator says so: what holds for an
address behind it holds for a VIP then. The control of each test is a client that asks a backend directly under the same rules."""

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from deploy.lab.host import UPLINK, Host
from harness.dns import UdpClient, dig, finish_dnsperf, parse, query, start_dnsperf, who_answers
from harness.product import BIN, DNS4, DNS6, VIP4, VIP6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
SOL_UDP, UDP_SEGMENT = 17, 103

OUT = f"""table inet own {{
  chain out {{ type filter hook output priority 0; policy drop;
    oifname "lo" accept
    meta l4proto ipv6-icmp accept
    oifname "{UPLINK}" meta l4proto {{ tcp, udp }} th dport 53 accept
  }}
}}"""
IN = f"""table inet own {{
  chain in {{ type filter hook input priority 0; policy drop;
    iifname "lo" accept
    meta l4proto ipv6-icmp accept
    iifname "{UPLINK}" ct state established accept
  }}
}}"""
HIDE = f"""table inet own {{
  chain post {{ type nat hook postrouting priority 100;
    oifname "{UPLINK}" masquerade
  }}
}}"""
FORWARD = f"""table inet own {{
  chain fw {{ type filter hook forward priority 0; policy drop;
    oifname "{UPLINK}" accept
    ct state established,related accept
  }}
  chain post {{ type nat hook postrouting priority 100;
    oifname "{UPLINK}" masquerade
  }}
}}"""


@contextlib.contextmanager
def rules(host: Host, text: str) -> Iterator[None]:
    host.run(["nft", "-f", "-"], stdin=text)
    try:
        yield
    finally:
        host.run(["nft", "delete", "table", "inet", "own"], check=False)


def direct(lab, vip: str) -> str:
    return lab.replica("a").ipv6 if ":" in vip else lab.replica("a").ipv4


def route_of(product, service: str = DNS4) -> str:
    return product.service_status(service)["vip_route"]


def ask(host: Host, address: str, query_id: int = 7) -> bool:
    with UdpClient(host, address) as client:
        answer = client.ask(query_id, "www.example.test", timeout_s=0.5)
        return answer is not None and answer.id == query_id


@pytest.mark.own
@pytest.mark.parametrize("text", [OUT, IN], ids=["out", "in"])
def test_rules_that_name_the_uplink_alone_hold_for_vips(lab, servers, product, text):
    with rules(lab.client, text):
        product.up()
        for vip, service in ((VIP4, DNS4), (VIP6, DNS6)):
            assert ask(lab.client, direct(lab, vip)), "the control"
            assert route_of(product, service) == UPLINK
            assert all(ask(lab.client, vip, number) for number in range(5))
            assert who_answers(lab.client, vip, "+tcp") == "a"
            servers["a"].stall()
            with UdpClient(lab.client, vip) as client:
                assert all(client.ask(number, "www.example.test") is not None for number in range(20, 30))
                servers["a"].resume()
                wait_until(lambda name=service: product.figure("losers_dropped", name) > 0, what="the losers' arrival")
                assert client.receive(0.2) is None
        assert not product.status()["problems"]
        product.finish()


@pytest.mark.own
def test_pings_and_refusals_enter_by_the_uplink_too(lab, servers, product):
    """As the answers of a backend behind it, under the same rules: an echo, a reset, port unreachable."""
    text = IN.replace("meta l4proto ipv6-icmp accept", "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept").replace(
        "established accept", "{ established, related } accept")
    with rules(lab.client, text):
        product.up()
        for vip, service in ((VIP4, DNS4), (VIP6, DNS6)):
            assert route_of(product, service) == UPLINK
            for address in (direct(lab, vip), vip):  # the first is the control
                assert lab.client.run(["ping", "-c1", "-W1", address], check=False).returncode == 0, address
                with UdpClient(lab.client, address, 99) as client, pytest.raises(ConnectionRefusedError):
                    client.ask(1, "www.example.test")
                with lab.client.socket(socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_STREAM) as tcp:
                    tcp.settimeout(2)
                    with pytest.raises(ConnectionRefusedError):
                        tcp.connect((address, 99))
        product.finish()


@pytest.mark.own
def test_answers_of_a_second_uplink_enter_by_the_one_that_leads(lab, servers, product):
    """Strict filters of sources on both, and input rules for these alone: by the proxy interface nothing comes in."""
    lab.add_second_uplink("10.76.0.1")
    b, host = "10.76.0.12", lab.replica("b")
    host.run(["ip", "addr", "add", f"{b}/24", "dev", "eth0"])
    host.run(["ip", "route", "add", f"{lab.client.ipv4}/32", "via", "10.76.0.1"])
    host.run(["nft", "-f", "-"], stdin=f"table ip own {{\n chain pre {{ type nat hook prerouting priority -100;\n ip daddr {b} dnat to {host.ipv4}\n }}\n}}")
    for name in ("all", UPLINK, "eth1"):
        lab.client.sysctl(f"net/ipv4/conf/{name}/rp_filter", 1)
    with rules(lab.client, IN.replace(f'iifname "{UPLINK}"', f'iifname {{ "{UPLINK}", "eth1" }}')):
        backends = [{"name": "a", "address": lab.replica("a").ipv4, "port": 53}, {"name": "b", "address": b, "port": 53}]
        product.up(services=[product.service("dns4", backends=backends)])
        assert route_of(product) == UPLINK and ask(lab.client, b), "the control"
        assert ask(lab.client, VIP4)
        before = product.won(DNS4).get("b", 0)  # on a busy machine a hedge has won
        servers["a"].stall()
        assert all(ask(lab.client, VIP4, number) for number in range(20, 40))
        servers["a"].resume()
        assert product.won(DNS4)["b"] == before + 20
        product.admin("leader", "set", "dns4", "b")
        assert all(ask(lab.client, VIP4, number) for number in range(40, 50)) and who_answers(lab.client, VIP4, "+tcp") == "b"
        assert len(dig(lab.client, VIP4, "big.example.test", "TXT", "+bufsize=4096", "+ignore").records) == 12, "of several fragments"
        assert not product.status()["problems"]
        product.finish()


@pytest.mark.own
@pytest.mark.parametrize("text", [OUT, IN], ids=["out", "in"])
def test_rules_that_come_later_move_the_routes_within_seconds(lab, servers, product, text):
    product.up()
    assert ask(lab.client, VIP4) and route_of(product) == "hr0"
    with rules(lab.client, text):
        wait_until(lambda: route_of(product) == UPLINK, what="the other route")
        for vip in (VIP4, VIP6):
            wait_until(lambda address=vip: ask(lab.client, address), what="answers")
        assert not product.status()["problems"]
        wait_until(lambda: f"are routed by {UPLINK} now" in product.log.read_text(encoding="utf-8"), what="the end of the trial")
    assert ask(lab.client, VIP4) and ask(lab.client, VIP6)
    product.finish()


@pytest.mark.own
def test_rules_that_no_way_passes_refuse_up_and_leave_nothing(lab, servers, product):
    neither = f"table inet own {{\n chain out {{ type filter hook output priority 0;\n ip daddr {VIP4} drop\n }}\n}}"
    with rules(lab.client, neither):
        refused = product.run("up", "--config", product.write(product.config()))
        assert refused.returncode != 0 and "rules_out:" in refused.stderr and "by hr0" in refused.stderr, refused.stderr
        for words in (["route", "show", "proto", "72"], ["-6", "route", "show", "proto", "72"], ["link", "show", "type", "veth"]):
            assert "hr0" not in lab.client.run(["ip", *words]).stdout


@pytest.mark.own
def test_a_firewall_that_is_closed_for_a_moment_moves_no_route_for_longer(lab, servers, product):
    """It names the proxy's interface, so that the other way is worse, and is on trial for a moment only."""
    own = OUT.replace(f'oifname "{UPLINK}" meta', f'oifname "hr0" accept\n    ip daddr {lab.replica("a").ipv4} meta')
    with rules(lab.client, own):
        product.up(services=[product.service("dns4")])
        assert route_of(product) == "hr0" and ask(lab.client, direct(lab, VIP4)), "the control"
        lab.client.run(["nft", "flush", "chain", "inet", "own", "out"])
        wait_until(lambda: any(text.startswith("rules_out:") for text in product.status()["problems"]), what="the problem")
        lab.client.run(["nft", "delete", "table", "inet", "own"])
        lab.client.run(["nft", "-f", "-"], stdin=own)
        wait_until(lambda: ask(lab.client, VIP4), timeout_s=1.5, what="answers")
        wait_until(lambda: not product.status()["problems"], what="the problem's end")
        assert route_of(product) == "hr0"
        product.finish()


@pytest.mark.own
def test_a_vip_that_is_barred_moves_no_other(lab, servers, product):
    product.up()
    barred = f"table inet own {{\n chain out {{ type filter hook output priority 0;\n ip6 daddr {VIP6} drop\n }}\n}}"
    with rules(lab.client, barred):
        wait_until(lambda: any(text.startswith("rules_out: dns6") for text in product.status()["problems"]), what="the problem")
        with UdpClient(lab.client, VIP4) as client:
            assert all(client.ask(number, "www.example.test", timeout_s=0.5) is not None for number in range(20))
        assert route_of(product) == route_of(product, DNS6) == "hr0"
    product.finish()


@pytest.mark.own
@pytest.mark.lab(inner=True, nat=None)
def test_the_next_daemon_reads_the_rules_that_came_since(lab, servers, product):
    product.up()
    assert route_of(product) == "hr0"
    with rules(lab.client, FORWARD):
        assert not ask(lab.inner, VIP4)
        doctor = product.run("doctor", "--config", product.write(product.config())).stdout
        assert "restart the daemon" in doctor, doctor
        next_daemon(product)
        assert route_of(product) == UPLINK and ask(lab.inner, VIP4)
    product.finish()


@pytest.mark.own
@pytest.mark.lab(inner=True, nat=None)
@pytest.mark.parametrize("text", [HIDE, FORWARD], ids=["masquerade", "forward"])
def test_forwarded_clients_are_served_under_rules_that_name_the_uplink(lab, servers, product, text):
    with rules(lab.client, text):
        product.up()
        for vip, service in ((VIP4, DNS4), (VIP6, DNS6)):
            assert route_of(product, service) == UPLINK
            assert ask(lab.inner, direct(lab, vip)), "the control"
            assert all(ask(lab.inner, vip, number) for number in range(5))
            assert who_answers(lab.inner, vip, "+tcp") == "a"
            assert ask(lab.client, vip)
            assert lab.inner.run(["ping", "-c1", "-W1", vip], check=False).returncode == 0
            servers["a"].stall()
            assert all(ask(lab.inner, vip, number) for number in range(20, 25))
            servers["a"].resume()
            with UdpClient(lab.inner, vip, 99) as client, pytest.raises(ConnectionRefusedError):
                client.ask(1, "www.example.test")
        product.finish()


@pytest.mark.own
@pytest.mark.lab(inner=True, nat=None)
@pytest.mark.parametrize("text", [HIDE, FORWARD], ids=["masquerade", "forward"])
def test_what_this_host_hides_needs_no_list_under_such_rules(lab, servers, product, text):
    services = [product.service("dns4")]
    services[0].pop("clients")
    with rules(lab.client, text):
        product.up(services=services)
        assert route_of(product) == UPLINK
        assert all(ask(lab.inner, VIP4, number) for number in range(5))
        assert who_answers(lab.inner, VIP4, "+tcp") == "a"
        assert product.figure("not_a_client") == 0
        product.finish()


@pytest.fixture(name="by_uplink")
def fixture_by_uplink(product):
    return product.up(vip_route="uplink")


@FAMILIES
def test_what_clients_do_is_served_by_the_uplink_too(lab, by_uplink, vip, service):
    assert route_of(by_uplink, service) == UPLINK
    assert len(dig(lab.client, vip, "big.example.test", "TXT", "+bufsize=4096", "+ignore").records) == 12
    assert len(dig(lab.client, vip, "big.example.test", "TXT", "+tcp").records) == 12
    assert "3 received" in lab.client.run(["ping", "-c3", "-i0.05", "-W1", vip]).stdout
    with UdpClient(lab.client, vip, 99) as client, pytest.raises(ConnectionRefusedError):
        client.ask(1, "www.example.test")
    with UdpClient(lab.client, vip) as bound, UdpClient(lab.client, vip, connected=False) as other:
        bound.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, UPLINK.encode())
        for number in range(5):
            assert bound.ask(number, f"n{number}.example.test").question == f"n{number}.example.test"
            assert other.ask(number, f"n{number + 40}.example.test").question == f"n{number + 40}.example.test"
    assert by_uplink.figure("not_a_client", service) == 0


@FAMILIES
def test_a_port_of_several_sockets_is_this_hosts_all_the_same(lab, by_uplink, vip, service):
    """The kernel would give an answer to any of them, so none is known by being found; their address is this host's."""
    family = socket.AF_INET6 if ":" in vip else socket.AF_INET
    with contextlib.ExitStack() as stack:
        group = [stack.enter_context(lab.client.socket(family)) for _ in range(4)]
        for each in group:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.settimeout(0.05)
            each.bind(("", 41234))
        for number, each in enumerate(group):
            each.sendto(query(number, "www.example.test"), (vip, 53))
        seen: set[int] = set()
        end = time.monotonic() + 5
        while len(seen) < len(group) and time.monotonic() < end:
            for each in group:
                with contextlib.suppress(TimeoutError):
                    seen.add(struct.unpack("!H", each.recv(2048)[:2])[0])
    assert seen == set(range(len(group)))
    assert by_uplink.figure("not_a_client", service) == 0


@FAMILIES
def test_datagrams_of_one_packet_are_hedged_one_by_one(lab, servers, by_uplink, vip, service):
    message = query(1, "www.example.test")
    servers["a"].stall()
    with UdpClient(lab.client, vip) as client:
        client.socket.setsockopt(SOL_UDP, UDP_SEGMENT, len(message))
        client.send(b"".join(query(number, "www.example.test") for number in range(8)))
        seen = {parse(client.receive(2.0)).id for _ in range(8)}
    servers["a"].resume()
    assert seen == set(range(8))
    assert by_uplink.figure("won_by_hedge", service) + by_uplink.figure("won_by_failover", service) == 8


def test_what_ends_a_connection_late_is_acknowledged(lab, by_uplink):
    """A socket in TIME_WAIT is found by no look-up that a program may do; its ACKs are this host's by their address."""
    for _ in range(5):
        assert who_answers(lab.client, VIP4, "+tcp") == "a"
    assert by_uplink.figure("not_a_client") == 0


@pytest.mark.own
def test_a_reload_moves_the_routes_there_and_back_and_loses_nothing(lab, servers, product):
    product.up()
    load = start_dnsperf(lab.client, VIP4, seconds=4, rate=500)
    for way, interface in (("uplink", UPLINK), ("interface", "hr0"), ("auto", "hr0"), ("uplink", UPLINK)):
        product.write(product.config(vip_route=way))
        product.admin("reload")
        wait_until(lambda wanted=interface: route_of(product) == wanted, what=f"the route of {way}")
        assert ask(lab.client, VIP6)
    report = finish_dnsperf(load)
    assert report.lost == 0, report.text
    product.finish()


def test_the_leading_route_is_put_back_and_goes_with_the_proxy(lab, by_uplink):
    def leads() -> bool:
        return f"dev {UPLINK}" in lab.client.run(["ip", "route", "get", VIP4]).stdout

    assert leads()
    lab.client.run(["ip", "route", "del", VIP4, "dev", UPLINK, "metric", "71"])
    assert ask(lab.client, VIP4), "by the proxy interface meanwhile"
    wait_until(leads, what="the route's return")
    by_uplink.finish()
    for words in (["route", "show", "proto", "72"], ["-6", "route", "show", "proto", "72"], ["neigh", "show", "nud", "permanent"]):
        assert lab.client.run(["ip", *words]).stdout == ""


@pytest.mark.own
@pytest.mark.lab(inner=True, nat=None)
@pytest.mark.parametrize("way", ["auto", "uplink"])
def test_an_uplink_that_cannot_lead_refuses_up_only_where_it_must(lab, servers, product, way):
    """An `ingress` qdisc of another owner leaves no egress hook for the splitter."""
    lab.client.run(["tc", "qdisc", "add", "dev", UPLINK, "ingress"])
    try:
        with rules(lab.client, HIDE):
            if way == "uplink":
                config = product.write(product.config(vip_route=way, attach="clsact"))
                refused = product.run("up", "--config", config)
                assert refused.returncode != 0 and "attach_failed:" in refused.stderr, refused.stderr
                return
            product.up(attach="clsact")
            assert route_of(product) == "hr0" and ask(lab.client, VIP4)
            assert any(text.startswith("attach_failed:") for text in product.status()["problems"])
            product.finish()
    finally:
        lab.client.run(["tc", "qdisc", "del", "dev", UPLINK, "ingress"], check=False)


def next_daemon(product) -> None:
    daemon = product.pid
    os.kill(daemon, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(f"/proc/{daemon}"), what="its end")
    product.lab.client.popen([BIN / "hedgerowd", "--config", product.write(product.config())], log=product.log)
    wait_until(lambda: product.admin("status", check=False).returncode == 0, timeout_s=20, what="the next daemon")


@pytest.mark.own
def test_the_next_daemon_keeps_the_route_that_auto_has_found(lab, servers, product):
    with rules(lab.client, OUT):
        product.up()
        assert route_of(product) == UPLINK
        load = start_dnsperf(lab.client, VIP4, seconds=2, rate=300)
        next_daemon(product)
        report = finish_dnsperf(load)
        assert report.lost == 0, report.text
        assert route_of(product) == UPLINK
        product.finish()


@FAMILIES
def test_other_addresses_of_this_host_are_its_own_too(lab, by_uplink, vip, service):
    """Also those that netfilter gives a packet: no socket has them."""
    six = ":" in vip
    second, kind, prefix = ("fd77::40", "ip6", 64) if six else ("10.77.0.40", "ip", 24)
    lab.client.run(["ip", "address", "add", f"{second}/{prefix}", "dev", UPLINK, *(["nodad"] if six else [])])
    snat = (f'table inet own {{\n chain post {{ type nat hook postrouting priority 100;\n'
            f' oifname "{UPLINK}" {kind} daddr {vip} snat {kind} to {second}\n }}\n}}')
    try:
        wait_until(lambda: lab.client.run(["ping", "-c1", "-W1", "-I", second, vip], check=False).returncode == 0, what="its ping")
        with rules(lab.client, snat):
            assert all(ask(lab.client, vip, number) for number in range(3))
            assert who_answers(lab.client, vip, "+tcp") == "a"
    finally:
        lab.client.run(["ip", "address", "del", f"{second}/{prefix}", "dev", UPLINK])
    assert by_uplink.figure("not_a_client", service) <= 1, "the ping that came before the daemon's look"
