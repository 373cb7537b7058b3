# SPDX-License-Identifier: Apache-2.0
"""A VIP that rules of others serve as well (`in_place`): taken over while the proxy serves, and theirs whenever it does not. The owner is
kube-proxy in miniature: rules that translate the VIP to one of the servers for each flow. Its loss without the proxy is the control."""

import contextlib
import json
import os
import signal
import time

import pytest

from deploy.kube import load
from harness.containers import POD_NET, pod_of, pod_routes, pod_server, rules
from harness.dns import who_answers
from harness.product import VIP4, wait_until
from test_adoption import end, start

pytestmark = pytest.mark.own
TIMEOUT_S = 1.0


class Load:
    def __init__(self, host, netns: str | None, seconds: float, *, rate: int = 200, sockets: int = 0, address: str = VIP4):
        self._log = host.scratch("load") / f"{time.monotonic_ns()}"
        enter = ["ip", "netns", "exec", netns] if netns else []
        self._child = host.popen([*enter, "/usr/bin/python3", load.__file__, address, str(rate), str(seconds), str(sockets), str(TIMEOUT_S),
                                  "www.example.test"], log=self._log)
        time.sleep(1)  # it has begun

    def end(self) -> list[float]:
        """Ends it now, and `lost`: what a test does meanwhile takes a busy machine longer."""
        self._child.send_signal(signal.SIGINT)
        return self.lost()

    def lost(self) -> list[float]:
        """When the lost ones were sent, in seconds."""
        assert self._child.wait(60) == 0, self._log.read_text(encoding="utf-8")
        said = json.loads(self._log.read_text(encoding="utf-8"))
        assert said["sent"] == said["answered"] + len(said["lost"]) and said["sent"] > 100
        return said["lost"]


@pytest.fixture
def owner(lab):
    """Each flow has one of the two servers in turn. Before its translation a packet needs a route; a host's default route is one."""
    servers = ", ".join(f"{number} : {host.ipv4}" for number, host in enumerate(lab.replicas))
    chain = f"ip daddr {VIP4} meta l4proto {{ tcp, udp }} th dport 53 counter dnat to numgen inc mod 2 map {{ {servers} }}"
    lab.client.run(["ip", "route", "add", "10.99.0.0/16", "via", lab.replica("a").ipv4])
    text = (f"table ip owner {{\n chain pre {{ type nat hook prerouting priority dstnat;\n {chain}\n }}\n"
            f" chain out {{ type nat hook output priority -100;\n {chain}\n }}\n}}")
    with rules(lab.client, text):
        yield
    lab.client.run(["ip", "route", "del", "10.99.0.0/16"])


@contextlib.contextmanager
def client_of(lab, kind: str):
    """The namespace that clients are in; None: the host itself."""
    if kind == "host":
        yield None
        return
    with pod_of(lab, "10.244.0.6", bridge="cni0" if kind == "bridge" else None, name="ask") as pod, pod_routes(lab):
        yield pod.netns


def up(product, **changes):
    return product.up(services=[product.service("dns4", in_place=True, clients=[POD_NET], **changes)])


def owner_serves(lab) -> int:
    """How many flows the owner has translated."""
    listed = lab.client.run(["nft", "-j", "list", "table", "ip", "owner"]).stdout
    return sum(part["counter"]["packets"] for each in json.loads(listed)["nftables"] if "rule" in each
               for part in each["rule"]["expr"] if "counter" in part)


def live(lab, product) -> bool:
    done = lab.client.run(["nft", "list", "set", "inet", f"hedgerow-{product.instance}", "live4"], check=False)
    return VIP4 in done.stdout


def tables(lab) -> str:
    return lab.client.run(["nft", "list", "tables"]).stdout


def long(*values: object):
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.mark.parametrize("kind", ["host", "routed", long("bridge")])
def test_a_server_that_stops_or_dies_costs_clients_that_know_nothing_of_the_proxy_nothing(lab, servers, product, owner, kind):
    with client_of(lab, kind) as netns:
        servers["b"].stall()
        assert len(Load(lab.client, netns, 1).lost()) > 50, "the control: half of the flows are b's"
        servers["b"].resume()
        up(product)
        load = Load(lab.client, netns, 5)
        servers["a"].stall()
        time.sleep(1.5)
        servers["a"].resume()
        time.sleep(0.5)
        before = owner_serves(lab)
        servers["a"].kill()
        assert load.lost() == []
        assert owner_serves(lab) == before and product.figure("requests") > 900, "the proxy has served them"
        assert who_answers(lab.client, VIP4, "+tcp") == "b"
        assert not product.status()["problems"] or all(text.startswith("backend_") for text in product.status()["problems"])
        product.check_identity()
        product.down()  # before the pod's links go
        assert "hedgerow" not in tables(lab)


@pytest.mark.parametrize("kind, sockets", [("host", 0), ("host", 16), ("routed", 16), long("routed", 0), long("bridge", 0), long("bridge", 16)])
def test_what_ends_the_proxy_gives_the_address_back_and_nothing_is_lost(lab, servers, product, owner, kind, sockets):
    """`down`; a daemon that is killed, whose last word dies; the end of the interface."""
    with client_of(lab, kind) as netns:
        up(product)
        load = Load(lab.client, netns, 90, sockets=sockets)
        end(product, signal.SIGKILL)
        time.sleep(1)
        assert live(lab, product), "the kernel part serves alone for a while"
        before = owner_serves(lab)
        # As when 7 s are over, which another test waits for.
        lab.client.run(["nft", "flush", "set", "inet", f"hedgerow-{product.instance}", "live4"])
        wait_until(lambda: owner_serves(lab) > before, what="the owner")
        assert who_answers(lab.client, VIP4, "+tcp") in ("a", "b"), "a connection, too"
        time.sleep(1)
        start(product)
        wait_until(lambda: live(lab, product), what="the next daemon takes the address over")
        served = product.service_status()["counters"]["requests"]
        wait_until(lambda: product.service_status()["counters"]["requests"] > served, what="requests")
        time.sleep(0.5)
        product.down()
        time.sleep(0.5)
        assert load.end() == []
        if kind != "bridge":  # a bridge's timers change by themselves
            product.check_nothing_left()


def test_a_pod_of_the_clients_own_bridge_answers_by_the_host(lab, servers, product):
    """Otherwise its answer finds the way from port to port, under its own address."""
    pod, client = "10.244.0.5", "10.244.0.6"
    with pod_of(lab, pod, bridge="cni0") as box, pod_of(lab, client, bridge="cni0", name="ask") as ask, pod_routes(lab), pod_server(box, pod):
        up(product, primary="pod", attempts=1, backends=[{"name": "pod", "address": pod, "port": 53},
                                                         {"name": "a", "address": lab.replica("a").ipv4, "port": 53}])
        assert ask.asks(pod) == "[True]", "asked directly"
        assert ask.asks(VIP4, 20) == str([True] * 20)
        asked = {each["name"]: int(each["sent"]) for each in product.service_status()["backends"]}
        assert asked["pod"] >= 15 and not product.status()["problems"]
        pid = product.pid
        os.kill(pid, signal.SIGSTOP)  # it would renew them
        lab.client.run(["nft", "flush", "map", "bridge", f"hedgerow-{product.instance}", "live4"])
        assert ask.asks(VIP4) == "['TimeoutError']", "the control: past the host"
        os.kill(pid, signal.SIGCONT)
        product.check_identity()
        product.down()  # before the pod's links go
        assert "hedgerow" not in tables(lab)


def test_nothing_is_taken_over_any_more_when_no_daemon_has_lived_for_7_seconds(lab, servers, product, owner):
    up(product)
    load = Load(lab.client, None, 90, rate=50)
    time.sleep(11)
    assert live(lab, product), "renewed"
    end(product, signal.SIGKILL)
    wait_until(lambda: not live(lab, product), timeout_s=11, what="the end of what is not renewed")
    before = owner_serves(lab)
    wait_until(lambda: owner_serves(lab) > before, what="the owner")
    assert load.end() == []
    assert start(product)["how"] == "adopted", "no crash loop, though the owner serves"
    wait_until(lambda: live(lab, product), what="taken over again")
    product.finish()


def test_the_end_of_the_interface_gives_back_too_and_a_reload_takes_over_and_gives_back(lab, servers, product, owner):
    product.up(services=[product.service("dns4", vip="10.99.0.54")])
    config = product.config(services=[product.service("dns4", vip="10.99.0.54"),
                                      {**product.service("second4", in_place=True), "vip": VIP4, "backends": [
                                          {**each, "port": 5300} for each in product.service("dns4")["backends"]]}])
    load = Load(lab.client, None, 90)
    with contextlib.ExitStack() as also:
        for host in lab.replicas:  # the same servers by another port: a backend is of one service
            also.enter_context(rules(host, f"table ip second {{\n chain pre {{ type nat hook prerouting priority dstnat;\n udp dport 5300 redirect to :53\n }}\n}}"))
        product.write(config)
        product.admin("reload")
        assert live(lab, product)
        time.sleep(1)
        lab.client.run(["ip", "link", "del", "hr0"])
        wait_until(lambda: "whole again" in product.log.read_text(encoding="utf-8"), what="the interface")
        time.sleep(0.5)
        config["services"].pop()
        product.write(config)
        product.admin("reload")
        assert not live(lab, product)
        assert load.end() == []
    product.finish()


def test_an_address_whose_answers_reach_no_client_is_given_back_though_the_daemon_lives(lab, servers, product, owner):
    up(product)
    barred = f"table inet barred {{\n chain in {{ type filter hook input priority 0;\n iifname \"hr0\" ip saddr {VIP4} drop\n }}\n}}"
    with rules(lab.client, barred):
        wait_until(lambda: not live(lab, product), timeout_s=12, what="given back")
        assert who_answers(lab.client, VIP4) is not None, "the owner's"
        time.sleep(6)
        assert not live(lab, product), "not renewed"
        assert any("in_place_lost" in text and "given back" in text for text in product.status()["problems"])
    product.finish()


def test_rules_that_others_take_away_are_made_again(lab, servers, product, owner):
    up(product)
    lab.client.run(["nft", "delete", "table", "inet", f"hedgerow-{product.instance}"])
    assert who_answers(lab.client, VIP4) is not None, "the owner's"
    wait_until(lambda: live(lab, product), timeout_s=8, what="the rules")
    wait_until(lambda: not product.status()["problems"], what="the end of what the test said meanwhile")
    product.finish()


def test_a_refused_start_leaves_the_owner_its_address(lab, servers, product, owner):
    neither = f"table inet barred {{\n chain out {{ type filter hook output priority 0;\n oifname \"hr0\" ip daddr {VIP4} drop\n }}\n}}"
    with rules(lab.client, neither):
        config = product.config(services=[product.service("dns4", in_place=True)])
        refused = product.run("up", "--config", product.write(config))
        assert refused.returncode != 0 and "rules_out:" in refused.stderr, refused.stderr
        assert "hedgerow" not in tables(lab)
        assert who_answers(lab.client, VIP4) is not None


def test_clean_after_a_kill_gives_back(lab, servers, product, owner):
    up(product)
    end(product, signal.SIGKILL)
    load = Load(lab.client, None, 2)
    assert f"nftables hedgerow-{product.instance}" in product.clean().stdout
    assert load.lost() == []
    product.is_up = False
    product.check_nothing_left()


def test_an_address_of_the_host_is_refused_by_the_name_of_what_has_it(lab, servers, product):
    """As kube-proxy's mode ipvs has ClusterIPs on an interface of its own."""
    lab.client.run(["ip", "link", "add", "kube-ipvs0", "type", "bridge"])
    try:
        lab.client.run(["ip", "addr", "add", f"{VIP4}/32", "dev", "kube-ipvs0"])
        config = product.write(product.config(services=[product.service("dns4", in_place=True)]))
        for words in (["up", "--config", config], ["plan", "--config", config], ["doctor", "--config", config]):
            done = product.run(*words)
            assert done.returncode != 0 and "kube-proxy's mode ipvs" in done.stdout + done.stderr, words
    finally:
        lab.client.run(["ip", "link", "del", "kube-ipvs0"])
    doctor = json.loads(product.run("doctor", "--json", "--config", config).stdout)
    assert {"check": "in_place", "result": "ok", "detail": "the kernel takes the rules that VIPs in place need"} in doctor["findings"]
