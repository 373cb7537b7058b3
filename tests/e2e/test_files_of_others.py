# SPDX-License-Identifier: Apache-2.0
"""docs/development.md, "Configurations of others": what ten public files want, each between two servers of which one fails by half. After
the fault's first second nothing is lost that the other server would have answered."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from deploy.kubernetes import endpoints
from deploy.kubernetes.endpoints_dns_test import Registry
from harness import recipes
from harness.dns import UdpClient, dig
from harness.product import BIN, DNS4, RAW4, VIP4, VIP6, wait_until
from test_half_failures import KNOWN, LEFT, leaves_names, unanswered
from test_recipes import written

pytestmark = [pytest.mark.long, pytest.mark.own]
FETCH = r"""
import json, select, socket, sys, time
asked, lost, by, end = 0, [], {}, time.monotonic() + 120
while not select.select([sys.stdin], [], [], 0.03)[0] and time.monotonic() < end:
    asked, at = asked + 1, time.monotonic()
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            server = connection.makefile("rb").read().decode().split()[-1]
            by[server] = by.get(server, 0) + 1
    except (OSError, IndexError):
        lost.append(at)
    if asked == 30:
        print(json.dumps(by), flush=True)
print(json.dumps({"asked": asked, "lost": lost, "by": by}))
"""


def late(lost: list[float], fault: float = 0) -> list[float]:
    """Those of the fault's first second are left out."""
    return [at for at in lost if at > fault + 1]


@contextlib.contextmanager
def fetches(lab, port: int) -> Iterator[tuple[dict, Callable[[], dict]]]:
    """Connections in turn, 30 a second at most, each of which asks for a page that names its server. Gives what the first 30 found, by server, and
    what ends the load and returns all that it found."""
    with subprocess.Popen(["ip", "netns", "exec", lab.client.netns, "/usr/bin/python3", "-c", FETCH, RAW4, str(port)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:

        def end() -> dict:
            assert load.poll() is None, "the load ran until here"
            return json.loads(load.communicate(timeout=60)[0])

        try:
            yield json.loads(load.stdout.readline()), end
        finally:
            load.kill()


def after_a_fault(end: Callable[[], dict], seconds: float) -> tuple[list[float], dict]:
    """Called once the fault is there: what is lost after its first second, and all pages by server."""
    fault = time.monotonic()
    time.sleep(seconds)
    found = end()
    return late(found["lost"], fault), found["by"]


@contextlib.contextmanager
def websites(lab) -> Iterator[list]:
    """nginx at port 80 of each replica."""
    with contextlib.ExitStack() as stack:
        running = []
        for host in lab.replicas:
            folder = host.scratch("nginx")
            (folder / "conf").write_text(f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}} http {{ access_log off; "
                                         f"server {{ listen {host.ipv4}:80; return 200 '{host.name}\\n'; }} }}", encoding="ascii")
            running.append(host.popen(["nginx", "-c", str(folder / "conf"), "-p", str(folder)], log=folder / "out"))
            stack.callback(host.stop, running[-1])
        for host in lab.replicas:
            wait_until(lambda address=host.ipv4: lab.client.run(["bash", "-c", f"exec 3<>/dev/tcp/{address}/80"], check=False).returncode == 0, 20, "nginx")
        yield running


@contextlib.contextmanager
def rule(host, *, incoming: str = "", outgoing: str = "") -> Iterator[None]:
    host.run(["nft", "-f", "-"], stdin="table inet part {\n" + "".join(
        f"chain {name} {{\n type filter hook {name}put priority 0\n {text}\n}}\n" for name, text in (("in", incoming), ("out", outgoing))) + "}\n")
    try:
        yield
    finally:
        host.run(["nft", "delete", "table", "inet", "part"])


def up_by_tcp(product, lab, port: int, profile: str, **more) -> None:
    product.up(services=[{"name": "tcp", "vip": RAW4, "port": port, "profile": profile, **more,
                          "backends": [{"name": host.name, "address": host.ipv4, "port": 80} for host in lab.replicas]}])


def down(product) -> None:
    """Not `finish`, which compares the machine: what listens first in a namespace, or connects, makes a key of tcp_fastopen."""
    product.check_identity()
    product.down()


def answered(ask: Callable[[str], str | None]) -> None:
    states = [ask(f"n{number}.example.test") for number in range(10, 70)]
    assert states == ["NOERROR"] * 60


def test_coredns_has_two_forwarders_at_random_and_one_leaves_some_names(lab, servers, product):
    product.up(services=[product.service(DNS4, prefer="each", check={"every": "5s"})])
    unanswered(lab.client, 2, 60, (KNOWN,))
    with leaves_names(lab.replica("a")):
        assert late(unanswered(lab.client, 6, 60, (LEFT, KNOWN))[1]) == []
    product.finish()


def test_dnsdist_has_resolvers_of_both_families_and_one_hears_no_udp(lab, servers, product):
    product.up(services=product.services("dns", prefer="fastest"))
    unanswered(lab.client, 1, 60, (KNOWN,))
    with rule(lab.replica("a"), incoming="udp dport 53 drop"):
        assert late(unanswered(lab.client, 5, 60, (LEFT, KNOWN))[1]) == []
        assert [dig(lab.client, VIP6, KNOWN).status for _ in range(20)] == ["NOERROR"] * 20
        assert [dig(lab.client, VIP4, KNOWN, "A", "+tcp").status for _ in range(5)] == ["NOERROR"] * 5
    product.finish()


def test_rsyslog_sends_by_tcp_to_servers_in_order_and_the_first_ones_process_ends(lab, servers, product):
    with websites(lab) as running:
        up_by_tcp(product, lab, 10514, "one-way", check={"tcp": "on"})
        with fetches(lab, 10514) as (_, end):
            lab.replica("a").stop(running[0])
            lost, by = after_a_fault(end, 6)
        assert lost == [] and by["b"] > by["a"] > 0, (lost, by)
        down(product)


@pytest.mark.servers(a="sip", b="sip")
def test_kamailio_has_a_backup_and_the_answers_of_the_first_are_lost(lab, servers, product):
    product.up(services=yaml.safe_load(written("sip.md"))["services"])
    lost = []
    with UdpClient(lab.client, RAW4, 5060) as client, rule(lab.replica("a"), outgoing="udp sport 5060 drop"):
        began = time.monotonic()
        for number in range(100):
            client.send(recipes.options("call@host", number))
            if client.receive(2.0) is None:
                lost.append(time.monotonic() - began)
    assert late(lost) == []
    product.finish()


def test_nginx_asks_servers_by_name_and_the_registry_goes_before_the_leader_leaves_names(lab, servers, product, tmp_path):
    service = product.service(DNS4)
    del service["primary"]
    product.up(services=[service])
    template, out = tmp_path / "template.yaml", product.folder / "hedgerow.yaml"
    template.write_text(out.read_text(encoding="utf-8"), encoding="utf-8")
    registry = Registry(tmp_path / "registry")
    registry.serve(*(f"dns A {lab.replica(name).ipv4}" for name in "ab"))
    follower = subprocess.Popen([sys.executable, endpoints.__file__, "--config", template, "--out", out, "--dns", f"{DNS4}=dns.example.test:53",
                                 "--resolver", f"{registry.address}:{registry.port}", "--hedgerow", BIN / "hedgerow", "--socket", product.socket])
    try:
        wait_until(lambda: product.status()["reloads"]["applied"] + product.status()["reloads"]["unchanged"] > 0, 30, "the first reload")
        registry.stop()
        leader = product.service_status()["backends"][0]["address"]
        unanswered(lab.client, 1, 60, (KNOWN,))
        with leaves_names(next(host for host in lab.replicas if host.ipv4 == leader)):
            assert late(unanswered(lab.client, 5, 60, (LEFT, KNOWN))[1]) == []
    finally:
        registry.stop()
        follower.terminate()
        follower.wait(timeout=10)
    product.finish()


def test_dnsmasq_keeps_its_cache_before_the_vip(lab, servers, product):
    product.up(services=[product.service(DNS4)])
    folder = lab.client.scratch("dnsmasq")
    (folder / "conf").write_text(f"server={VIP4}\nno-resolv\nlisten-address=127.0.0.1\nbind-interfaces\nport=5301\nno-hosts\ncache-size=1500\n"
                                 f"dns-forward-max=2048\nuser=root\npid-file={folder}/pid\n", encoding="ascii")
    forwarder = lab.client.popen(["/usr/sbin/dnsmasq", "--keep-in-foreground", f"--conf-file={folder}/conf"])

    def ask(name: str) -> str | None:
        return dig(lab.client, "127.0.0.1", name, "A", "-p", "5301").status

    try:
        wait_until(lambda: ask(KNOWN) == "NOERROR", 20, "dnsmasq")
        with leaves_names(lab.replica("a")):
            answered(ask)
    finally:
        lab.client.stop(forwarder)
    down(product)


def test_keepalived_checks_by_tcp_and_keeps_a_client_at_a_server_that_begins_to_reset(lab, servers, product):
    with websites(lab):
        up_by_tcp(product, lab, 80, "flow", prefer="source", check={"tcp": "on", "every": "6s"})
        with fetches(lab, 80) as (before, end):
            (own,) = before
            with rule(lab.replica(own), incoming="tcp dport 80 reject with tcp reset"):
                lost, by = after_a_fault(end, 5)
        assert lost == [] and len(by) == 2, (lost, by)
        down(product)


@pytest.mark.parametrize("incoming, check", [pytest.param("tcp dport 80 tcp flags & syn == syn drop", {}, id="envoy"),
                                             pytest.param("tcp dport 80 drop", {"check": {"tcp": "on"}}, id="haproxy")])
def test_envoy_and_haproxy_share_by_tcp_and_a_servers_connections_are_not_answered(lab, servers, product, incoming, check):
    with websites(lab):
        up_by_tcp(product, lab, 10000, "flow", prefer="each", **check)
        with fetches(lab, 10000) as (_, end), rule(lab.replica("a"), incoming=incoming):
            lost, by = after_a_fault(end, 8)
        assert lost == [] and by["b"] > by["a"] > 0, (lost, by)
        down(product)


def test_resolv_conf_has_two_servers_and_one_attempt(lab, servers, product):
    product.up(services=[product.service(DNS4)])
    unanswered(lab.client, 1, 30, (KNOWN,))
    with leaves_names(lab.replica("a")):
        answered(lambda name: dig(lab.client, VIP4, name).status)
    product.finish()
