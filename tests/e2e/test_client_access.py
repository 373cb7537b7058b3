# SPDX-License-Identifier: Apache-2.0
"""Who may do what at a cluster of nodes: listed networks and named clients, asked directly and through the proxy."""

import os
import subprocess
import time

import pytest

from cluster.client import hkv
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import NodeSettings
from harness.product import BIN, Product, wait_until

TAG = f"acc{os.getpid()}"
WEB, OPS = hkv.Credentials("web", bytes(range(16, 32))), hkv.Credentials("ops", bytes(range(32, 48)))
READER = hkv.Credentials("reader", bytes(range(48, 64)))


@pytest.fixture(scope="module")
def lab():
    with Lab(TAG, replicas=3) as made:
        yield made


@pytest.fixture(scope="module")
def keys(lab):
    folder = lab.client.scratch("client-keys")
    paths = {}
    for credentials in (WEB, OPS, READER):
        path = paths[credentials.client] = folder / f"{credentials.client}.key"
        path.touch(mode=0o600)
        path.write_text(credentials.key.hex() + "\n")
    return paths


@pytest.fixture(scope="module")
def cluster(lab, keys):
    """It serves the client host and its own hosts, and named clients alone; node c serves only node b's host."""
    with DataDirs(TAG, "memory") as data:
        made = hedgerow_cluster(lab, data.path, NodeSettings())
        for node in made.nodes:
            node.config |= {
                "clients": ["10.77.0.0/24"],
                "anonymous": "off",
                "named_clients": [
                    {"name": "web", "key_file": str(keys["web"]), "read": ["app/"], "write": ["app/web/"]},
                    {"name": "reader", "key_file": str(keys["reader"]), "read": [""]},
                    {"name": "ops", "key_file": str(keys["ops"]), "read": [""], "write": [""]}]}
        made.nodes[2].config["clients"] = [f"{lab.replica('b').ipv4}/32"]
        with made:
            made.wait_ready()
            yield made


def client(lab: Lab, node, credentials: hkv.Credentials | None, host=None, timeout_s: float = 5.0) -> hkv.Client:
    return hkv.Client(node.host.ipv4, node.port, timeout_s, sock=(host or lab.client).socket(), credentials=credentials)


def counter(node, name: str) -> int:
    return int(node.status()["counters"].get(name, 0))


def test_what_no_list_names_gets_no_answer_and_is_counted(lab: Lab, cluster: Cluster):
    node = cluster.nodes[2]
    dropped = counter(node, "hkv_dropped.source")
    for credentials in (None, OPS):
        with client(lab, node, credentials, timeout_s=0.3) as stranger, pytest.raises(hkv.NoAnswer):
            stranger.get(b"x")
    wait_until(lambda: counter(node, "hkv_dropped.source") == dropped + 2, what="the count")
    assert any("none of the networks of `clients`" in note for note in node.status()["notes"]), "an operator is told why a client hears nothing"
    with client(lab, node, OPS, host=lab.replica("b")) as listed:
        assert listed.get(b"nothing") is None


@pytest.mark.parametrize("number", [1, 2], ids=["node a", "node b"])
def test_a_named_client_reads_and_writes_what_it_may_at_every_node(lab, cluster, number):
    node = cluster.nodes[number - 1]
    with client(lab, node, WEB) as web, client(lab, node, OPS) as ops:
        web.put(b"app/web/%d" % number, b"x")
        ops.put(b"app/%d" % number, b"y")
        web.open()
        assert web.incr(b"app/web/n%d" % number) == 1 and web.incr(b"app/web/n%d" % number) == 2
        assert web.get(b"app/%d" % number) == b"y" and ops.get(b"app/web/%d" % number) == b"x"
        for denied, name in ((lambda: web.get(b"ops/x"), "read b'ops/x'"), (lambda: web.put(b"app/x", b""), "write b'app/x'")):
            with pytest.raises(hkv.HkvError, match=name) as error:
                denied()
            assert error.value.status == hkv.DENIED
        assert ops.get(b"app/x") is None
        assert web.unproven == ops.unproven == 0


def test_who_does_not_prove_itself_is_denied(lab, cluster):
    node = cluster.nodes[0]
    with client(lab, node, None) as anonymous, pytest.raises(hkv.HkvError, match="DENIED: the server serves clients with a key"):
        anonymous.put(b"app/web/y", b"")
    with client(lab, node, hkv.Credentials("web", OPS.key), timeout_s=0.5) as thief:
        with pytest.raises(hkv.NoAnswer, match="one without says DENIED: the server knows no client of this name and key"):
            thief.get(b"app/x")
        assert thief.unproven == 1


def test_opens_without_proof_take_none_of_a_named_clients(lab, cluster):
    node = cluster.nodes[0]
    with lab.client.socket() as flood:  # from the address that the named client has
        flood.connect((node.host.ipv4, node.port))
        for number in range(1, 2000):
            flood.send(hkv.encode_request(hkv.OPEN, 1_000_000, 0, number))
    with client(lab, node, WEB, timeout_s=2.0) as web:
        web.open()
        web.put(b"app/web/o", b"x")


def test_a_client_that_may_write_nothing_opens_no_session(lab, cluster):
    with client(lab, cluster.nodes[0], READER) as reader:
        assert reader.get(b"app/web/nothing") is None
        for request in (reader.open, lambda: reader.write([])):
            with pytest.raises(hkv.HkvError) as error:
                request()
            assert error.value.status == hkv.DENIED


def test_a_replayed_request_does_nothing_new_and_soon_nothing(lab, cluster):
    node = cluster.nodes[0]
    request = hkv.encode_request(hkv.WRITE, 4_000_000, 0, 4711, operations=[hkv.incr_operation(b"app/web/once")])
    recorded = WEB.seal(request)

    def send(datagram: bytes) -> hkv.Answer:
        with lab.replica("b").socket() as sock:
            sock.settimeout(5)
            sock.connect((node.host.ipv4, node.port))
            sock.send(datagram)
            answer = sock.recv(2000)
            assert WEB.proves(answer) and len(answer) <= len(datagram)
            return hkv.parse_answer(answer)

    assert [send(recorded).values for _ in range(3)] == [[b"1"]] * 3
    old = send(WEB.seal(request, sent_ms=time.time_ns() // 10**6 - 21_000))
    assert (old.status, old.denial) == (hkv.DENIED, 3)
    assert any("clocks and this node's differ" in problem for problem in node.status()["problems"]), "as if the node's clock had jumped"
    with client(lab, node, WEB) as web:
        assert web.get(b"app/web/once") == b"1"
    assert not any("clocks" in problem for problem in node.status()["problems"]), "one client's clock is its own affair"
    assert any("clocks" in note for note in node.status()["notes"])


def command(lab: Lab, *words: object, **environment: str) -> subprocess.CompletedProcess:
    return lab.client.run(["env", *(f"{name}={value}" for name, value in environment.items()), str(BIN / "hkv"),
                           *map(str, words)], check=False)


def test_the_command_line_proves_itself_by_options_or_environment(lab, cluster, keys):
    server = f"{cluster.nodes[1].host.ipv4}:{cluster.nodes[1].port}"
    web = ("--server", server, "--timeout", "5s", "--client", "web", "--key-file", keys["web"])
    assert command(lab, *web, "put", "app/web/cli", "v").returncode == 0
    got = command(lab, "--server", server, "--timeout=5s", "get", "app/web/cli", HKV_CLIENT="ops", HKV_KEY_FILE=str(keys["ops"]))
    assert (got.returncode, got.stdout) == (0, "v\n")
    denied = command(lab, *web, "put", "app/x", "v")
    assert denied.returncode == 1 and "no right to write 'app/x'" in denied.stderr
    anonymous = command(lab, "--server", server, "get", "app/web/cli")
    assert anonymous.returncode == 1 and "give a client's name and key file" in anonymous.stderr
    assert command(lab, "--server", server, "--client", "web", "get", "x").returncode == 2


def test_a_named_client_is_proved_through_the_proxy_and_hedged(lab, cluster):
    product = Product(lab, TAG[:15])
    follower = next(node for node in cluster.nodes[:2] if node is not cluster.leader())
    service = {"name": "kv", "vip": VIP_KV[0], "port": 4801, "profile": "hkv", "budget": "100%", "budget_burst": 100,
               "primary": follower.host.name,
               "backends": [{"name": node.host.name, "address": node.host.ipv4, "port": node.port, "node": node.number}
                            for node in cluster.nodes[:2]]}
    try:
        product.up(services=[service])
        with hkv.Client(VIP_KV[0], 4801, 5.0, sock=lab.client.socket(), credentials=WEB) as web:
            web.open()
            assert [web.incr(b"app/web/proxied") for _ in range(20)] == list(range(1, 21))
            assert web.get(b"app/web/proxied") == b"20" and web.unproven == 0
        product.finish()
    finally:
        if product.is_up:
            product.sweep()
