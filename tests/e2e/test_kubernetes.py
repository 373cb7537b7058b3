# SPDX-License-Identifier: Apache-2.0
"""What docs/kubernetes.md says of a proxy on a node of a cluster, without a cluster: the node is the lab's client host, pods are
namespaces on it, and the API server is one that says what the test wants."""

import contextlib
import subprocess
import sys
import time

import pytest

from deploy.kubernetes import endpoints
from deploy.kubernetes import manifests_test as manifests
from deploy.kubernetes.endpoints_test import FakeApi, endpoint, piece
from harness.containers import POD_NET, pod_of, pod_routes, pod_server, rules
from harness.dns import finish_dnsperf, start_dnsperf
from harness.product import BIN, METRICS, VIP4, wait_until

# ipMasq of the bridge plugin: what goes to another network than the pods' has the node's address.
MASQUERADE = "table ip cninat {\n chain out { type nat hook postrouting priority 100; ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/24 masquerade; }\n}"


@pytest.mark.parametrize("bridge", [pytest.param("cni0", id="bridge"), pytest.param(None, id="routed", marks=pytest.mark.long)])
def test_a_pod_of_this_node_is_a_backend_beside_one_of_another_node(lab, servers, product, bridge):
    address = "10.244.0.5"
    with pod_of(lab, address, bridge=bridge) as box, pod_routes(lab):
        with pod_server(box, address) as pod:
            service = product.service("dns4", primary="pod", backends=[
                {"name": "pod", "address": address, "port": 53}, {"name": "a", "address": lab.replica("a").ipv4, "port": 53}])
            product.up(services=[service])
            assert finish_dnsperf(start_dnsperf(lab.client, VIP4, seconds=0.5, rate=200)).lost == 0
            # On a busy machine a hedge wins now and then. Nothing else comes from the other node.
            assert product.won("dns4")["pod"] >= 90
            assert product.won("dns4").get("a", 0) == product.figure("won_by_hedge", "dns4")
            lab.client.stop(pod)
            assert finish_dnsperf(start_dnsperf(lab.client, VIP4, seconds=0.5, rate=200)).lost == 0
            assert product.won("dns4")["a"] >= 90
        product.check_identity()
        product.down()  # before the pod's links go


@pytest.mark.parametrize("bridge, masquerade, served", [
    pytest.param("cni0", True, True, id="bridge-masquerade", marks=pytest.mark.long), pytest.param("cni0", False, False, id="bridge", marks=pytest.mark.long),
    pytest.param(None, False, True, id="routed")])
def test_a_pod_asks_a_pod_of_the_same_node(lab, servers, product, bridge, masquerade, served):
    """On a bridge the answer finds the way past the node's own routing, unless the request came from the node's address."""
    address, client = "10.244.0.5", "10.244.0.6"
    with pod_of(lab, address, bridge=bridge) as box, pod_of(lab, client, bridge=bridge, name="ask") as ask, pod_routes(lab), \
            pod_server(box, address), (rules(lab.client, MASQUERADE) if masquerade else contextlib.nullcontext()):
        service = product.service("dns4", primary="pod", clients=[POD_NET, lab.client.ipv4], backends=[
            {"name": "pod", "address": address, "port": 53}, {"name": "a", "address": lab.replica("a").ipv4, "port": 53}])
        service["attempts"] = 1  # the other backend would cover it up
        product.up(services=[service])
        assert ask.asks(address) == "[True]", "the control"
        assert ask.asks(VIP4) == ("[True]" if served else "['TimeoutError']")
        product.check_identity()
        product.down()


def test_endpoints_of_a_service_are_backends_of_a_running_proxy_and_no_request_is_lost(lab, servers, product, tmp_path):
    """A rollout: the endpoint that answers becomes unready under load and another takes its place."""
    services = product.services("dns")
    services[0]["backends"] = services[0]["backends"][:1]
    services[0].pop("primary")
    product.up(services=services)
    template, account = tmp_path / "template.yaml", tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("secret", encoding="ascii")
    out = product.folder / "hedgerow.yaml"
    template.write_text(out.read_text(encoding="utf-8"), encoding="utf-8")
    a, b = (endpoint(lab.replica(name).ipv4, f"dns-{name}") for name in "ab")
    port = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    api = FakeApi()
    api.slices = [piece("dns-1", a, ports=port)]
    controller = subprocess.Popen(
        [sys.executable, endpoints.__file__, "--config", template, "--out", out, "--service", services[0]["name"], "--endpoints", "default/dns",
         "--api", api.url, "--account", account, "--hedgerow", BIN / "hedgerow", "--socket", product.socket, "--debounce", "0.1"],
        stderr=subprocess.PIPE, text=True)

    def backends() -> list[str]:
        return [each["address"] for each in product.service_status()["backends"]]

    try:
        load = start_dnsperf(lab.client, VIP4, seconds=3, rate=500)
        wait_until(lambda: product.status()["reloads"]["unchanged"] + product.status()["reloads"]["applied"] > 0, what="the first reload")
        api.send("MODIFIED", piece("dns-1", a, b, ports=port))
        wait_until(lambda: sorted(backends()) == [lab.replica("a").ipv4, lab.replica("b").ipv4], what="the second endpoint")
        api.send("MODIFIED", piece("dns-1", endpoint(lab.replica("a").ipv4, "dns-a", ready=False), b, ports=port))
        wait_until(lambda: lab.replica("a").ipv4 not in backends(), what="the first one gone")
        report = finish_dnsperf(load)
        assert report.lost == 0 and report.sent > 1000, report.text
        assert product.service_status()["backends"][0]["sent"] > 0
        api.send("DELETED", piece("dns-1"))
        time.sleep(0.5)
        assert backends() == [lab.replica("b").ipv4], "no list of backends is ever empty"
    finally:
        controller.terminate()
        controller.wait(timeout=10)
        api.shutdown()
        api.server_close()
    product.finish()


def test_the_metrics_sidecar_passes_on_the_metrics_and_nothing_else(lab, servers, product, tmp_path):
    product.up(metrics=METRICS)
    # As the manifest mounts it; the pod's /tmp is a folder of the test's.
    config = tmp_path / "nginx.conf"
    config.write_text((manifests.FOLDER / "proxy/nginx.conf").read_text(encoding="utf-8").replace("/tmp/", f"{tmp_path}/"), encoding="utf-8")
    sidecar = lab.client.popen(["nginx", "-c", config, "-g", "daemon off;"])
    fetch = ["/usr/bin/python3", "-c", "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=5).read().decode())"]
    at = f"http://{lab.client.ipv4}:9466"
    try:
        prometheus = lab.replica("a")
        wait_until(lambda: prometheus.run([*fetch, f"{at}/metrics"], check=False).returncode == 0, what="the sidecar")
        assert "hedgerow_requests_total" in prometheus.run([*fetch, f"{at}/metrics"]).stdout
        assert "404" in prometheus.run([*fetch, f"{at}/"], check=False).stderr, "the live page"
    finally:
        lab.client.stop(sidecar)
