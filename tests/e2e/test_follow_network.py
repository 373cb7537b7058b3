# SPDX-License-Identifier: Apache-2.0
"""The machine's network changes under a running proxy: it follows, or `status` names the cause. Each test has its control: the
same question asked of the backend itself, by the same host and at the same time.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time

import pytest

from deploy.lab import names
from harness.dns import UdpClient, dig, query, who_answers
from harness.product import BIN, DNS4, DNS6, VIP4, VIP6, wait_until

pytestmark = pytest.mark.own
A4, A6 = names.replica_addresses("a")
B4, _ = names.replica_addresses("b")
SECOND = "10.77.0.2"  # of eth1, beside eth0's address in the same network
_FOLLOWED_S = 10.0  # ten times the second in which it should be


def ip(host, *words: str) -> str:
    return host.run(["ip", *" ".join(words).split()]).stdout


@pytest.fixture
def second(lab):
    """A second uplink of the client host, eth1, on the same switch. Its route counts less than eth0's."""
    return lab.add_second_uplink(SECOND)


def uplinks(product, service: str = DNS4) -> dict[str, str]:
    return {backend["name"]: backend["uplink"] for backend in product.service_status(service)["backends"]}


def codes(product) -> set[str]:
    return {problem.split(":")[0] for problem in product.status()["problems"]} - {"backend_suspect", "backend_down", "service_down"}


def wait_for_uplinks(product, **wanted: str) -> None:
    wait_until(lambda: uplinks(product) == wanted, timeout_s=_FOLLOWED_S, what=f"{wanted} in status")


def answers(lab, vip: str = VIP4, backend: str = A4) -> None:
    """The VIP answers, and the backend itself does, too."""
    assert dig(lab.client, backend, "www.example.test", "A").status == "NOERROR", "the control"
    wait_until(lambda: dig(lab.client, vip, "www.example.test", "A", timeout_s=1).status == "NOERROR", timeout_s=_FOLLOWED_S,
               what="an answer by the VIP")


def addresses_of(host, device: str) -> str:
    return host.run(["ip", "-o", "addr", "show", "dev", device]).stdout


_ASK_ARP = """
import socket, struct, sys
own, wanted = sys.argv[1:]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x806)); s.bind(("eth0", 0x806)); mac = s.getsockname()[4]
s.settimeout(1)
s.send(b"\\xff" * 6 + mac + b"\\x08\\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + mac + socket.inet_aton(own) + bytes(6) + socket.inet_aton(wanted))
try:
    while True:
        reply = s.recv(100)
        if reply[20:22] == b"\\0\\2" and reply[28:32] == socket.inet_aton(wanted): print("answered"); break
except TimeoutError: print("silence")
"""


def arp(host, address: str) -> str:
    return host.run([sys.executable, "-c", _ASK_ARP, host.ipv4, address]).stdout.strip()


def test_an_address_that_an_uplink_gave_up_is_gone_and_not_answered_for(lab, servers, product):
    product.up()
    answers(lab)
    assert arp(lab.replica("b"), names.CLIENT_IPV4) == "answered", "the control"
    ip(lab.client, "addr add 10.77.0.99/24 dev eth0")
    ip(lab.client, f"addr del {names.CLIENT_IPV4}/24 dev eth0")
    ip(lab.client, "addr replace 10.77.0.99/24 dev eth0")  # it was a secondary one, which may go with the first
    wait_until(lambda: product.service_status()["source"] == "10.77.0.99", timeout_s=_FOLLOWED_S, what="the new source")
    wait_until(lambda: names.CLIENT_IPV4 + "/" not in addresses_of(lab.client, "hr0"), timeout_s=_FOLLOWED_S, what="the old one's end")
    assert arp(lab.replica("b"), names.CLIENT_IPV4) == "silence"
    answers(lab)
    assert codes(product) == set()
    ip(lab.client, f"addr add {names.CLIENT_IPV4}/24 dev eth0")
    ip(lab.client, "addr del 10.77.0.99/24 dev eth0")
    ip(lab.client, f"addr replace {names.CLIENT_IPV4}/24 dev eth0")
    wait_until(lambda: product.service_status()["source"] == names.CLIENT_IPV4, timeout_s=_FOLLOWED_S)
    wait_until(lambda: "10.77.0.99" not in addresses_of(lab.client, "hr0"), timeout_s=_FOLLOWED_S)


def test_an_address_without_a_successor_is_a_problem_and_not_held_either(lab, servers, product):
    product.up()
    ip(lab.client, f"addr del {names.CLIENT_IPV4}/24 dev eth0")
    wait_until(lambda: names.CLIENT_IPV4 + "/" not in addresses_of(lab.client, "hr0"), timeout_s=_FOLLOWED_S, what="the address's end")
    assert codes(product) & {"no_route", "no_source"}
    assert dig(lab.client, A4, "www.example.test", "A", timeout_s=1).status is None, "the control"
    answers(lab, VIP6, A6)
    ip(lab.client, f"addr add {names.CLIENT_IPV4}/24 dev eth0")
    answers(lab)
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")


@pytest.mark.parametrize("how", ["better-route", "down", "carrier"])
def test_a_way_that_moves_to_another_interface_is_followed(lab, servers, second, product, how):
    product.up()
    answers(lab)
    assert uplinks(product) == {"a": "eth0", "b": "eth0"}
    routes = [f"{host.ipv4}/32 dev eth1 src {SECOND}" for host in lab.replicas]
    if how == "down":
        ip(lab.client, "link set eth0 down")
    else:
        for route in routes:
            ip(lab.client, "route add", route)
    if how == "carrier":
        lab.switch_ip("link", "set", "client", "down")
    wait_for_uplinks(product, a="eth1", b="eth1")
    answers(lab)
    assert product.service_status()["source"] == SECOND
    # IPv6 has no other way.
    assert codes(product) == {"better-route": set(), "down": {"no_route", "uplink_down"}, "carrier": {"uplink_down"}}[how]
    if how == "carrier":
        lab.switch_ip("link", "set", "client", "up")
    if how == "down":
        ip(lab.client, "link set eth0 up")
        ip(lab.client, f"-6 addr replace {names.CLIENT_IPV6}/64 dev eth0 nodad")
    else:
        for route in routes:
            ip(lab.client, "route del", route)
    wait_for_uplinks(product, a="eth0", b="eth0")
    answers(lab)
    answers(lab, VIP6, A6)
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")


def test_backends_of_one_service_on_different_uplinks_are_hedged(lab, servers, second, product):
    for each in ("all", "eth0"):  # a strict filter refuses b's question for the address of eth0, also without a proxy
        lab.client.sysctl(f"net.ipv4.conf.{each}.rp_filter", 0)
    ip(lab.client, f"route add {B4}/32 dev eth1")
    product.up()
    assert uplinks(product) == {"a": "eth0", "b": "eth1"}
    servers["a"].stall()
    assert who_answers(lab.client, A4, "+timeout=1") is None, "the control"
    wait_until(lambda: who_answers(lab.client, VIP4) == "b", what="the standby's answer")
    servers["a"].resume()
    ip(lab.client, f"route del {B4}/32 dev eth1")
    wait_for_uplinks(product, a="eth0", b="eth0")
    ip(lab.client, f"route add {B4}/32 dev eth1")
    wait_for_uplinks(product, a="eth0", b="eth1")


def test_a_socket_that_connected_before_a_move_is_answered_after_it(lab, servers, second, product):
    """Its source is the former uplink's address, to which the backend answers by the former uplink."""
    ask = ("import socket, struct, sys\n"
           "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], 53)); s.settimeout(2)\n"
           "q = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + b'\\3www\\7example\\4test\\0\\0\\1\\0\\1'\n"
           "for line in sys.stdin:\n"
           "    s.send(q)\n"
           "    try: print(s.recv(512)[:2] == q[:2], flush=True)\n"
           "    except TimeoutError: print('timeout', flush=True)\n")

    def asker(address):
        return lab.client.popen([sys.executable, "-c", ask, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asked(process) -> str:
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    lab.client.sysctl("net.ipv4.conf.all.rp_filter", 0)
    lab.client.sysctl("net.ipv4.conf.eth0.rp_filter", 0)
    product.up()
    control, client = asker(A4), asker(VIP4)
    assert (asked(control), asked(client)) == ("True", "True")
    for host in lab.replicas:
        ip(lab.client, f"route add {host.ipv4}/32 dev eth1 src {SECOND}")
    wait_for_uplinks(product, a="eth1", b="eth1")
    assert asked(control) == "True", "the control"
    assert asked(client) == "True"
    for process in (control, client):
        process.stdin.close()
        process.wait(5)
    for host in lab.replicas:
        ip(lab.client, f"route del {host.ipv4}/32 dev eth1")


def test_an_uplink_made_again_under_its_name_is_followed(lab, servers, product):
    """A bridge is the uplink, as of a host with virtual machines. Deleted, it is a problem; the daemon waits for it."""
    def make():
        ip(lab.client, "link add br0 type bridge forward_delay 0")
        ip(lab.client, "link set br0 up")
        ip(lab.client, "link set eth0 master br0")
        ip(lab.client, f"addr add {names.CLIENT_IPV4}/24 dev br0")
        ip(lab.client, f"-6 addr add {names.CLIENT_IPV6}/64 dev br0 nodad")

    ip(lab.client, "addr flush dev eth0")
    make()
    product.up()
    answers(lab)
    pid = product.pid
    ip(lab.client, "link del br0")
    wait_until(lambda: "no_route" in codes(product), timeout_s=_FOLLOWED_S, what="the problem in status")
    make()
    answers(lab)
    answers(lab, VIP6, A6)
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    assert product.pid == pid and uplinks(product) == {"a": "br0", "b": "br0"}
    product.check_identity()
    product.down()  # what was there before `up` is not what is there now
    assert "hr0" not in ip(lab.client, "link show")


def test_an_uplink_that_becomes_a_bridges_port_is_followed(lab, servers, product):
    """As netplan and NetworkManager do it for virtual machines: the addresses move while the proxy runs."""
    product.up()
    answers(lab)
    ip(lab.client, "link add over0 type bridge forward_delay 0")
    ip(lab.client, "link set eth0 down")
    ip(lab.client, "addr flush dev eth0")
    ip(lab.client, "link set eth0 master over0")
    for device in ("eth0", "over0"):
        ip(lab.client, f"link set {device} up")
    ip(lab.client, f"addr add {names.CLIENT_IPV4}/24 dev over0")
    ip(lab.client, f"-6 addr add {names.CLIENT_IPV6}/64 dev over0 nodad")
    answers(lab)
    answers(lab, VIP6, A6)
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    assert uplinks(product) == {"a": "over0", "b": "over0"}
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    servers["a"].resume()
    product.check_identity()
    product.down()
    assert "hr0" not in ip(lab.client, "link show")


def test_without_any_uplink_the_daemon_waits_for_one(lab, servers, product):
    product.up()
    pid = product.pid
    lab.switch_ip("link", "set", "client", "down")
    wait_until(lambda: "uplink_down" in codes(product), timeout_s=_FOLLOWED_S, what="the problem in status")
    assert product.status()["state"] != "running"
    lab.switch_ip("link", "set", "client", "up")
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    answers(lab)
    assert product.pid == pid
    wait_until(lambda: re.search(r" info over, after \S+: uplink_down: ", product.log.read_text()), timeout_s=9, what="its end in the log")


@contextlib.contextmanager
def vpn_rule(lab, selector: str = "", network: str = "10.0.0.0/8", device: str = "eth0"):
    """As a VPN's: a table of its own for a network that covers the VIP, before the main table."""
    ip(lab.client, f"route add {network} dev {device} table 52")
    ip(lab.client, "rule add pref 5270", selector, "lookup 52")
    yield
    ip(lab.client, "rule del pref 5270")
    ip(lab.client, f"route del {network} dev {device} table 52")


@pytest.fixture
def vpn(lab):
    """An interface that is no uplink."""
    ip(lab.client, "link add vpn0 type veth peer name vpn1")
    ip(lab.client, "link set vpn0 up")
    return "vpn0"


@pytest.mark.parametrize("selector", ["", f"from {names.CLIENT_IPV4}"], ids=["all", "one-source"])
def test_a_rule_that_takes_a_vip_away_is_named_and_gone_with_the_rule(lab, servers, product, selector):
    product.up()
    answers(lab)
    with vpn_rule(lab, selector):
        wait_until(lambda: "vip_routed_elsewhere" in codes(product), timeout_s=_FOLLOWED_S, what="the problem in status")
        named = next(problem for problem in product.status()["problems"] if problem.startswith("vip_routed_elsewhere"))
        assert "5270: from" in named and "eth0" in named and "rule_priority" in named
        bound = ["-b", names.CLIENT_IPV4] if selector else []
        assert dig(lab.client, A4, "www.example.test", "A", *bound).status == "NOERROR", "the control"
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    answers(lab)


_ASK_AS = """
import os, socket, sys
vip, user, mark, query = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if mark: s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
if user: os.setuid(user)
s = s if mark else socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
s.sendto(query, (vip, 53))
try: print("answered" if s.recv(4096)[:2] == query[:2] else "another")
except TimeoutError: print("silence")
"""


def ask_as(host, address: str, *, user: int = 0, mark: int = 0) -> str:
    asked = query(7, "www.example.test").hex()
    return host.run(["/usr/bin/python3", "-c", _ASK_AS, address, str(user), str(mark), asked]).stdout.strip()


@pytest.mark.parametrize("selector, sender", [("uidrange 65534-65534", {"user": 65534}), ("fwmark 7", {"mark": 7})],
                         ids=["user", "mark"])
def test_a_rule_for_some_senders_is_named_refuses_no_start_and_a_rule_of_ours_stands_before_it(lab, servers, vpn, product, selector, sender):
    product.up()
    answers(lab)
    with vpn_rule(lab, selector, "10.99.0.0/16", vpn):
        wait_until(lambda: codes(product) == {"vip_routed_elsewhere"}, timeout_s=_FOLLOWED_S, what="the problem in status")
        named = product.status()["problems"][0]
        assert f"from all {selector.replace('fwmark 7', 'fwmark 0x7')} lookup 52" in named and "for packets of" in named
        assert ask_as(lab.client, A4, **sender) == "answered", "the control"
        assert ask_as(lab.client, VIP4, **sender) == "silence", "else there is no problem"
        answers(lab)
        product.down()
        product.up(product.config(rule_priority=5000))
        assert ask_as(lab.client, VIP4, **sender) == "answered"
        assert codes(product) == set()
        product.down()
        product.up()
        product.down()


def test_a_rule_for_some_senders_that_leads_by_the_uplink_takes_no_vip_away(lab, servers, product):
    with vpn_rule(lab, "uidrange 65534-65534"):
        product.up()
        assert ask_as(lab.client, A4, user=65534) == ask_as(lab.client, VIP4, user=65534) == "answered"
        looks = int(product.status()["network"]["looks"])
        ip(lab.client, "rule add pref 9999 from 203.0.113.9 lookup main")
        wait_until(lambda: int(product.status()["network"]["looks"]) > looks, timeout_s=_FOLLOWED_S, what="another look")
        ip(lab.client, "rule del pref 9999")
        assert codes(product) == set()
        assert ask_as(lab.client, VIP4, user=65534) == "answered"
        product.down()


@pytest.mark.lab(inner=True, nat=None)
def test_a_rule_for_a_network_of_clients_is_named_where_it_takes_a_vip_away(lab, servers, vpn, product):
    product.up(services=[product.service("dns4")])
    assert who_answers(lab.inner, VIP4) == "a"
    network = f"{lab.inner.ipv4}/32"
    with vpn_rule(lab, f"from {network}", "10.99.0.0/16", vpn):
        wait_until(lambda: codes(product) == {"vip_routed_elsewhere"}, timeout_s=_FOLLOWED_S, what="the problem in status")
        assert f"forwarded from {network}" in product.status()["problems"][0]
        assert who_answers(lab.inner, A4) == "a", "the control"
        assert dig(lab.inner, VIP4, "www.example.test", "A", timeout_s=1).status != "NOERROR", "else there is no problem"
        answers(lab)
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    assert who_answers(lab.inner, VIP4) == "a"
    product.down()


def test_a_rule_for_sockets_of_the_uplink_is_named_where_it_takes_a_vip_away(lab, servers, product):
    """Only IPv6 heeds such a rule: to a socket that is bound to an interface IPv4 takes all that it has no route for as that interface's neighbours."""
    product.up(services=[product.service("dns6")])

    def ask_bound(address: str) -> bool:
        with UdpClient(lab.client, address) as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
            with contextlib.suppress(OSError):
                return client.ask(1, "www.example.test", timeout_s=0.5) is not None
        return False

    wait_until(lambda: ask_bound(VIP6), what="the route of bound clients")
    ip(lab.client, f"-6 rule add pref 50 oif eth0 to {VIP6} prohibit")
    try:
        wait_until(lambda: codes(product) == {"vip_routed_elsewhere"}, timeout_s=_FOLLOWED_S, what="the problem in status")
        assert "sockets bound to eth0" in product.status()["problems"][0]
        assert ask_bound(A6), "the control"
        assert not ask_bound(VIP6), "else there is no problem"
        assert dig(lab.client, VIP6, "www.example.test", "A").status == "NOERROR"
    finally:
        ip(lab.client, "-6 rule del pref 50")
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    product.down()


def test_what_routing_explains_is_blamed_on_no_rule_of_a_firewall(lab, servers, vpn, product):
    product.up()
    answers(lab)

    def is_named(code: str) -> None:
        named = time.monotonic()
        wait_until(lambda: code in codes(product), timeout_s=_FOLLOWED_S, what=code)
        # The proxy's test of its own way judges after three lost datagrams, a tenth of a second apart, and once a second at least.
        wait_until(lambda: codes(product) - {code} or time.monotonic() > named + 3, timeout_s=_FOLLOWED_S)
        assert codes(product) == {code}, product.status()["problems"]

    ip(lab.client, f"addr add {VIP4}/32 dev lo")
    is_named("vip_local")
    ip(lab.client, f"addr del {VIP4}/32 dev lo")
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    ip(lab.client, f"rule add pref 50 to {VIP4} prohibit")
    is_named("vip_routed_elsewhere")
    assert "a 'prohibit' route" in product.status()["problems"][0]
    ip(lab.client, "rule del pref 50")
    wait_until(lambda: codes(product) == set(), timeout_s=_FOLLOWED_S, what="no problem")
    with vpn_rule(lab, "ipproto udp dport 53", "10.99.0.0/16", vpn):
        is_named("vip_routed_elsewhere")
        product.down()
        refused = product.run("up", "--config", product.write(product.config()))
        assert refused.returncode != 0 and "vip_routed_elsewhere" in refused.stderr and "dport 53 lookup 52" in refused.stderr, refused.stderr
        assert "rules_out" not in refused.stderr


def test_a_rule_of_ours_stands_before_the_others_and_goes_with_the_proxy(lab, servers, product):
    product.up(product.config(rule_priority=5000))
    assert f"5000:\tfrom all to {VIP4} lookup main proto 72" in ip(lab.client, "rule show")
    with vpn_rule(lab):
        answers(lab)
        ip(lab.client, "rule del pref 5000")
        wait_until(lambda: VIP4 in ip(lab.client, "rule show"), timeout_s=_FOLLOWED_S, what="the rule's return")
        answers(lab)
        assert codes(product) == set()


def test_a_temporary_ipv6_address_is_never_the_source(lab, servers, product):
    lab.client.sysctl("net.ipv6.conf.eth0.use_tempaddr", 2)
    ip(lab.client, "-6 addr add fd77::5/64 dev eth0 mngtmpaddr nodad")
    wait_until(lambda: "temporary" in addresses_of(lab.client, "eth0"), what="a temporary address")
    chosen = ip(lab.client, f"-6 route get {A6}").split("src ")[1].split()[0]
    assert chosen not in (names.CLIENT_IPV6, "fd77::5"), "the control: the kernel takes the temporary one"
    product.up()
    assert product.service_status(DNS6)["source"] in (names.CLIENT_IPV6, "fd77::5")
    answers(lab, VIP6, A6)


def test_where_new_interfaces_have_no_ipv6_the_proxy_interface_alone_gets_it(lab, servers, product):
    lab.client.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
    product.up()
    answers(lab, VIP6, A6)
    assert lab.client.sysctl("net.ipv6.conf.hr0.disable_ipv6") == "0"
    assert lab.client.sysctl("net.ipv6.conf.hr0c0.disable_ipv6") == "1"
    assert lab.client.sysctl("net.ipv6.conf.default.disable_ipv6") == "1"
    lab.client.sysctl("net.ipv6.conf.hr0.disable_ipv6", 1)
    answers(lab, VIP6, A6)


def test_a_vrf_is_refused_by_name_and_a_problem_while_the_proxy_runs(lab, servers, product):
    if lab.client.run(["ip", "link", "add", "blue", "type", "vrf", "table", "10"], check=False).returncode != 0:
        pytest.skip("the kernel has no VRFs")
    product.up()
    ip(lab.client, "link set blue up")
    ip(lab.client, "link set eth0 master blue")
    wait_until(lambda: "vrf" in codes(product), timeout_s=_FOLLOWED_S, what="the problem in status")
    assert "VRF blue" in " ".join(product.status()["problems"])
    product.down()
    refused = product.run("up", "--config", product.folder / "hedgerow.yaml")
    assert refused.returncode != 0 and "VRF blue" in refused.stderr
    doctor = product.run("doctor", "--config", product.folder / "hedgerow.yaml").stdout
    assert "vrf: service dns4" in doctor
    product.is_up = False


def test_mtu_and_mac_of_the_proxy_interface_are_kept_right(lab, servers, product):
    product.up()
    lab.client.set_mtu(1400)
    wait_until(lambda: "mtu 1400" in ip(lab.client, "link show hr0"), timeout_s=_FOLLOWED_S, what="the uplink's MTU")
    lab.client.set_mtu(1500)
    wait_until(lambda: "mtu 1500" in ip(lab.client, "link show hr0"), timeout_s=_FOLLOWED_S, what="the uplink's MTU")
    ip(lab.client, "link set hr0 address 02:00:00:00:00:01")
    wait_until(lambda: "02:00:00:00:00:01" not in ip(lab.client, "link show hr0"), timeout_s=_FOLLOWED_S, what="the own MAC's return")
    answers(lab)


def mtu_seen(lab, address: str) -> int:
    """Of a socket that is connected there."""
    six = ":" in address
    with lab.client.socket(socket.AF_INET6 if six else socket.AF_INET) as client:
        client.connect((address, 53))
        return client.getsockopt(*((socket.IPPROTO_IPV6, 24) if six else (socket.IPPROTO_IP, 14)))  # IPV6_MTU, IP_MTU


@pytest.mark.parametrize("way", ["interface", "uplink"])
def test_clients_of_each_vip_see_the_mtu_of_its_own_backends_paths(lab, servers, product, way):
    """A small path of one family takes nothing from the other, whose least may be more than it."""
    product.up(vip_route=way)
    assert mtu_seen(lab, VIP4) == mtu_seen(lab, VIP6) == 1500
    for small in (1400, 600):
        ip(lab.client, f"route replace {A4}/32 dev eth0 mtu {small}")
        assert mtu_seen(lab, A4) == small, "the control"
        wait_until(lambda mtu=small: mtu_seen(lab, VIP4) == mtu, timeout_s=_FOLLOWED_S, what=f"the MTU of {small}")
        assert mtu_seen(lab, VIP6) == mtu_seen(lab, A6) == 1500
        for vip, backend in ((VIP6, A6), (VIP4, A4)):
            assert dig(lab.client, backend, "www.example.test", "A").status == "NOERROR", "the control"
            assert dig(lab.client, vip, "www.example.test", "A").status == "NOERROR"
    assert codes(product) == set()
    ip(lab.client, f"route del {A4}/32 dev eth0")
    wait_until(lambda: mtu_seen(lab, VIP4) == 1500, timeout_s=_FOLLOWED_S, what="the uplink's MTU")
    ip(lab.client, f"-6 route add {A6}/128 dev eth0 mtu 1300")
    wait_until(lambda: mtu_seen(lab, VIP6) == 1300, timeout_s=_FOLLOWED_S, what="the path's MTU")
    assert mtu_seen(lab, VIP4) == 1500
    ip(lab.client, f"-6 route del {A6}/128 dev eth0")
    wait_until(lambda: mtu_seen(lab, VIP6) == 1500, timeout_s=_FOLLOWED_S, what="the uplink's MTU")


def test_a_backends_new_mac_is_followed_by_the_kernels_neighbours(lab, servers, product):
    product.up()
    answers(lab)
    replica = lab.replica("a")
    ip(replica, "link set eth0 address 02:00:00:00:00:0a")
    ip(lab.client, f"neigh flush to {A4}")
    answers(lab)
    assert codes(product) == set()


def test_a_daemon_that_starts_after_a_move_takes_the_kernel_part_over(lab, servers, second, product):
    product.up()
    answers(lab)
    os.kill(product.pid, 15)  # it leaves, and the kernel part works on
    wait_until(lambda: product.admin("status", check=False).returncode != 0, what="the daemon's end")
    for host in lab.replicas:
        ip(lab.client, f"route add {host.ipv4}/32 dev eth1 src {SECOND}")
    ip(lab.client, "link set eth0 down")
    product.run("up", "--config", product.folder / "hedgerow.yaml", check=True)
    assert product.status()["adoption"]["how"] == "adopted"
    wait_for_uplinks(product, a="eth1", b="eth1")
    answers(lab)
    ip(lab.client, "link set eth0 up")
    ip(lab.client, f"-6 addr replace {names.CLIENT_IPV6}/64 dev eth0 nodad")
    for host in lab.replicas:
        ip(lab.client, f"route del {host.ipv4}/32 dev eth1")
    wait_for_uplinks(product, a="eth0", b="eth0")


def test_a_daemon_killed_while_it_moves_backends_leaves_their_handover_to_the_next(lab, servers, second, product):
    """The way to them moved while no daemon lived, and a request waits that may have gone out by the former one."""
    product.up(services=[product.service("dns4", delay="10s", deadline="60s")])
    at = product.folder / "die-at"
    for server in servers.values():
        server.stall()
    with UdpClient(lab.client, VIP4) as client:
        client.send(query(7, "www.example.test"))
        wait_until(lambda: product.figure("requests") == 1, what="the request")
        os.kill(product.pid, 9)
        wait_until(lambda: product.admin("status", check=False).returncode != 0, what="the daemon's end")
        routes = [f"{host.ipv4}/32 dev eth1 src {SECOND}" for host in lab.replicas]
        for route in routes:
            ip(lab.client, "route add", route)
        for number in (1, 2):  # the writes of the two backends
            at.write_text(f"{number}\n", encoding="ascii")
            daemon = lab.client.popen(["env", f"LD_PRELOAD={BIN / 'hr-die.so'}", f"HEDGEROW_LAB_DIE_AT={at}", BIN / "hedgerowd",
                                       "--config", product.folder / "hedgerow.yaml"], log=product.log)
            wait_until(lambda: daemon.poll() is not None, timeout_s=20, what=f"the daemon's end at write {number}")
            assert daemon.returncode == -9, product.log.read_text()
        product.run("up", "--config", product.folder / "hedgerow.yaml", check=True)
        assert product.status()["adoption"]["how"] == "adopted"
        wait_until(lambda: product.figure("handed_over") == 1, what="the handover")
        for server in servers.values():
            server.resume()
        assert client.receive(timeout_s=10) is not None
    for route in routes:
        ip(lab.client, "route del", route)
    wait_for_uplinks(product, a="eth0", b="eth0")


def test_filters_on_an_uplink_that_was_left_go_with_the_next_daemon(lab, servers, second, product):
    product.up(attach="clsact", services=[product.service("dns4")])
    routes = [f"{host.ipv4}/32 dev eth1 src {SECOND}" for host in lab.replicas]
    for route in routes:
        ip(lab.client, "route add", route)
    wait_for_uplinks(product, a="eth1", b="eth1")
    os.kill(product.pid, 9)
    wait_until(lambda: product.admin("status", check=False).returncode != 0, what="the daemon's end")
    product.run("up", "--config", product.folder / "hedgerow.yaml", check=True)
    for direction in ("ingress", "egress"):
        assert "hedgerow" not in lab.client.run(["tc", "filter", "show", "dev", "eth0", direction], check=False).stdout
        assert "hedgerow" in lab.client.run(["tc", "filter", "show", "dev", "eth1", direction]).stdout, "the control"
    answers(lab)
    for route in routes:
        ip(lab.client, "route del", route)
    wait_for_uplinks(product, a="eth0", b="eth0")


def test_a_network_that_changes_without_end_is_bounded_and_still_followed(lab, servers, second, product):
    product.up()
    before = product.status()["network"]
    flapping = lab.client.popen(["sh", "-c", "while :; do printf '%s\\n' "
                                 f"'route replace {A4}/32 dev eth0 metric 77' 'route del {A4}/32 dev eth0 metric 77'; done | ip -batch -"])
    try:
        wait_until(lambda: int(product.status()["network"]["events"]) > int(before["events"]) + 20_000, timeout_s=60, what="20,000 events")
        for host in lab.replicas:
            ip(lab.client, f"route add {host.ipv4}/32 dev eth1 src {SECOND}")
        wait_for_uplinks(product, a="eth1", b="eth1")
        answers(lab)
        after = product.status()["network"]
        assert int(after["deferred"]) > int(before["deferred"])
        assert int(after["looks"]) - int(before["looks"]) < (int(after["events"]) - int(before["events"])) / 10
    finally:
        lab.client.stop(flapping)
    for host in lab.replicas:
        ip(lab.client, f"route del {host.ipv4}/32 dev eth1")
    lab.client.run(["ip", "route", "del", f"{A4}/32", "dev", "eth0", "metric", "77"], check=False)
    wait_for_uplinks(product, a="eth0", b="eth0")
