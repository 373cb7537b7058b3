# SPDX-License-Identifier: Apache-2.0
"""A service that is asked at an address of this host (`in_place`, `also_at`): hosts of its network and its own programs ask the box itself, and
neither side needs a route or a masquerade rule. The servers know nothing of that network."""

import contextlib
import re
import signal

import pytest

from harness.containers import container
from harness.dns import UdpClient, query, who_answers
from harness.product import wait_until
from test_adoption import end, start
from test_in_place import Load

pytestmark = pytest.mark.own
LAN, BOX, ASKER = "10.78.0.0/24", "10.78.0.1", "10.78.0.7"


@pytest.fixture
def asker(lab):
    """A host of the box's network; the box is its gateway."""
    with container(lab, ASKER, BOX, bridge="lan0", name="ask") as host:
        yield host


@contextlib.contextmanager
def listener(lab, *options: str):
    server = lab.client.popen(["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=53", "--no-resolv", "--no-hosts", "--user=root",
                               "--address=/#/192.0.2.7", "--pid-file=", *options])
    try:
        wait_until(lambda: ":53 " in lab.client.run(["ss", "-lnu"]).stdout, what="the listener")
        yield server
    finally:
        lab.client.stop(server)


def services(product, **changes) -> list[dict]:
    return [product.service("dns4", **{"vip": BOX, "in_place": True, "clients": [LAN], **changes})]


def ends(product) -> None:
    """Before the LAN's links go."""
    product.check_identity()
    product.down()
    assert "hedgerow" not in product.lab.client.run(["nft", "list", "tables"]).stdout


@pytest.mark.parametrize("kind", ["lan", "host"])
def test_a_box_serves_its_network_at_its_own_address_and_a_stopped_leader_costs_nothing(lab, servers, product, asker, kind):
    netns = asker.netns if kind == "lan" else None
    assert asker.asks(BOX) == "['ConnectionRefusedError']", "the control: nothing listens there"
    product.up(services=services(product))
    assert not product.status()["problems"]
    load = Load(lab.client, netns, 60, address=BOX)
    servers["a"].stall()
    wait_until(lambda: product.figure("won_by_failover") + product.figure("won_by_hedge") > 20, timeout_s=20, what="answers of the standby")
    servers["a"].resume()
    wait_until(lambda: product.figure("requests") > 300, timeout_s=20, what="requests")
    assert load.end() == []
    assert who_answers(lab.client, BOX, "+tcp") in ("a", "b")
    assert f"at {BOX}" in product.admin("status").stdout
    ends(product)


def test_other_networks_are_not_served_and_the_address_is_the_hosts_again_after_down(lab, servers, product, asker):
    """The box is no open resolver: what is not listed finds what it found before."""
    product.up(services=services(product, clients=["10.79.0.0/24"]))
    assert asker.asks(BOX) == "['ConnectionRefusedError']"
    assert who_answers(lab.client, BOX) == "a"
    product.down()
    with listener(lab, f"--listen-address={BOX}", "--bind-interfaces"):
        assert asker.asks(BOX) == "[True]"


@pytest.mark.parametrize("options, place", [((), "0.0.0.0:53"), ((f"--listen-address={BOX}", "--bind-interfaces"), f"{BOX}:53")])
def test_what_listens_there_already_is_named_with_socket_and_process(lab, product, asker, options, place):
    config = product.write(product.config(services=services(product)))
    with listener(lab, *options) as server:
        for words in (["up", "--config", config], ["plan", "--config", config], ["doctor", "--config", config]):
            done = product.run(*words)
            assert done.returncode != 0, words
            assert re.search(rf"address_taken: service dns4: udp {re.escape(place)}.* is held by pid {server.pid} \(dnsmasq\)", done.stdout + done.stderr), done
    assert product.run("plan", "--config", config).returncode == 0


def test_a_server_of_the_box_itself_is_a_backend_at_the_address_that_is_taken_over(lab, servers, product, asker):
    here = {"name": "here", "address": BOX, "port": 53}
    with listener(lab, f"--listen-address={BOX}", "--bind-interfaces") as server:
        product.up(services=services(product, primary="here",
                                     backends=[here, {"name": "a", "address": lab.replica("a").ipv4, "port": 53}]))
        assert asker.asks(BOX, 20) == str([True] * 20)
        sent = {each["name"]: int(each["sent"]) for each in product.service_status()["backends"]}
        assert sent["here"] >= 15
        lab.client.stop(server)
        assert asker.asks(BOX, 20) == str([True] * 20), "the other one"
        ends(product)


def test_a_daemon_that_dies_leaves_the_kernel_part_at_work_and_then_the_address(lab, servers, product, asker):
    product.up(services=services(product))
    load = Load(lab.client, asker.netns, 60, address=BOX)
    end(product, signal.SIGKILL)
    start(product)
    before = product.figure("requests")
    wait_until(lambda: product.figure("requests") > before + 100, timeout_s=20, what="requests")
    assert load.end() == []
    end(product, signal.SIGKILL)
    lab.client.run(["nft", "flush", "map", "inet", f"hedgerow-{product.instance}", "lent4"])  # as when its time is over
    # A port of its own that the load has had keeps its way.
    wait_until(lambda: asker.asks(BOX) == "['ConnectionRefusedError']", what="the host's own again")
    assert "nftables hedgerow-" in product.clean().stdout
    product.is_up = False


def test_a_socket_that_asked_the_proxy_finds_what_listens_after_down(lab, servers, product, asker):
    """Its entry in conntrack has gone with the proxy interface."""
    product.up(services=services(product))
    with UdpClient(lab.client, BOX) as client:
        assert client.ask(1, "www.example.test") is not None
        product.down()
        with listener(lab, f"--listen-address={BOX}", "--bind-interfaces"):
            client.send(query(2, "www.example.test"))
            answer = client.receive()
            assert answer is not None and answer.endswith(bytes([192, 0, 2, 7]))


def test_a_host_that_forwards_nothing_says_so(lab, servers, product, asker):
    lab.client.sysctl("net/ipv4/ip_forward", 0)
    product.up(services=services(product))
    assert any("not_forwarded" in text and "ip_forward=1" in text for text in product.status()["problems"])
    assert who_answers(lab.client, BOX) == "a", "its own programs need none"
    product.down()


def test_servers_addresses_are_asked_in_place_and_checks_go_to_the_servers_themselves(lab, servers, product):
    """As `hedgerow dns adopt` has it."""
    addresses = [host.ipv4 for host in lab.replicas]
    product.up(services=[product.service("dns4", also_at=addresses)])
    servers["a"].kill()
    for address in addresses:
        assert who_answers(lab.client, address) == "b"
    done = product.admin("check", check=False)
    assert re.search(r"^ +a, .* refuses ", done.stdout, re.M), done.stdout
    product.check_identity()
    product.down()
    assert who_answers(lab.client, addresses[0]) is None


def test_ipv6_is_served_as_well(lab, servers, product, asker):
    box, six = "fd78::1", ["ip", "-n", asker.netns, "-6"]
    lab.client.run(["ip", "addr", "add", f"{box}/64", "dev", "lan0", "nodad"])
    lab.client.run([*six, "addr", "add", "fd78::7/64", "dev", "eth0", "nodad"])
    lab.client.run([*six, "route", "add", "default", "via", box])
    before = lab.client.run(["sysctl", "-n", "net.ipv6.conf.all.forwarding"]).stdout.strip()
    lab.client.sysctl("net/ipv6/conf/all/forwarding", 1)
    try:
        product.up(services=[product.service("dns6", vip=box, in_place=True, clients=["fd78::/64"])])
        servers["a"].stall()
        for _ in range(10):
            assert "b" in asker.run("dig", f"@{box}", "+time=1", "+tries=1", "+short", "TXT", "whoami.example.test"), product.status()["services"]
        assert who_answers(lab.client, box) == "b"
        servers["a"].resume()
        product.down()
    finally:
        lab.client.sysctl("net/ipv6/conf/all/forwarding", before)
