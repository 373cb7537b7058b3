# SPDX-License-Identifier: Apache-2.0
"""A service that is asked at an address of this host (`in_place`, `also_at`): hosts of its network and its own programs ask the box itself, and
neither side needs a route or a masquerade rule. The servers know nothing of that network."""

import contextlib
import re
import shutil
import signal

import pytest

from harness.containers import container
from harness.dns import UdpClient, query, who_answers
from harness.other_users import open_folder
from harness.product import BIN, wait_until
from test_adoption import end, start
from test_in_place import Load

pytestmark = pytest.mark.own
LAN, BOX, ASKER, BOX6 = "10.78.0.0/24", "10.78.0.1", "10.78.0.7", "fd78::1"


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


def assert_hidden_vip_is_closed(lab, product, asker, service: str) -> None:
    """To a host that knows it and routes by the box."""
    hidden = product.service_status(service)["vip"]
    assert who_answers(lab.client, hidden) == "a", "the control: the box itself"
    before = product.figure("requests", service)
    assert asker.asks(hidden) != "[True]" and product.figure("requests", service) == before


@contextlib.contextmanager
def ipv6_of(lab, asker):
    six = ["ip", "-n", asker.netns, "-6"]
    lab.client.run(["ip", "addr", "add", f"{BOX6}/64", "dev", "lan0", "nodad"])
    lab.client.run([*six, "addr", "add", "fd78::7/64", "dev", "eth0", "nodad"])
    lab.client.run([*six, "route", "add", "default", "via", BOX6])
    before = lab.client.run(["sysctl", "-n", "net.ipv6.conf.all.forwarding"]).stdout.strip()
    lab.client.sysctl("net/ipv6/conf/all/forwarding", 1)
    try:
        yield
    finally:
        lab.client.sysctl("net/ipv6/conf/all/forwarding", before)


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
    assert_hidden_vip_is_closed(lab, product, asker, "dns4")
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
    with ipv6_of(lab, asker):
        product.up(services=[product.service("dns6", vip=BOX6, in_place=True, clients=["fd78::/64"])])
        servers["a"].stall()
        for _ in range(10):
            assert "b" in asker.run("dig", f"@{BOX6}", "+time=1", "+tries=1", "+short", "TXT", "whoami.example.test"), product.status()["services"]
        assert who_answers(lab.client, BOX6) == "b"
        servers["a"].resume()
        product.down()


def test_other_networks_are_not_served_by_ipv6_either(lab, servers, product, asker):
    with ipv6_of(lab, asker):
        product.up(services=[product.service("dns6", vip=BOX6, in_place=True, clients=["fd79::/64"])])
        assert asker.asks(BOX6) == "['ConnectionRefusedError']"
        assert_hidden_vip_is_closed(lab, product, asker, "dns6")
        product.down()


def test_a_reload_while_the_host_is_without_the_address_changes_the_rest(lab, servers, product, asker):
    """As while DHCP renews it."""
    product.up(services=services(product))
    lab.client.run(["ip", "addr", "del", f"{BOX}/24", "dev", "lan0"])
    try:
        product.write(product.config(services=services(product, delay="20ms")))
        assert "delay" in product.admin("reload").stdout
    finally:
        lab.client.run(["ip", "addr", "add", f"{BOX}/24", "dev", "lan0"])
    assert asker.asks(BOX) == "[True]"
    ends(product)


def test_a_check_without_privilege_asks_no_address_that_is_translated(lab, servers, product):
    """Translated, they would all answer."""
    product.up(services=[product.service("dns4", also_at=[host.ipv4 for host in lab.replicas])])
    servers["a"].kill()
    with open_folder() as folder:
        program, config = folder / "hedgerow", folder / "hedgerow.yaml"
        shutil.copy2(BIN / "hedgerow", program)
        config.write_text((product.folder / "hedgerow.yaml").read_text(encoding="utf-8"), encoding="utf-8")
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program]
        done = lab.client.run([*user, "check", "--config", config], check=False)
        plan = lab.client.run([*user, "dns", "adopt", "--dry-run", "--config", folder / "none.yaml",
                               "--servers", ",".join(host.ipv4 for host in lab.replicas)], check=False)
    assert len(re.findall(r"^ +[ab] .*was not asked: needs root", done.stdout, re.M)) == 2 and "answers directly" not in done.stdout, done
    assert plan.returncode == 1 and "was not asked, which needs root" in plan.stderr, plan
    product.down()
