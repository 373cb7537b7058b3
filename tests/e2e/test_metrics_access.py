# SPDX-License-Identifier: Apache-2.0
"""Metrics and the live page beyond loopback: over TLS with a token from another host, and by a unix socket."""

import json
import os
import re
import socket
import stat
import subprocess
from pathlib import Path

import yaml

from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import NodeSettings
from harness.product import PROJECT

TOKEN, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
# Prints the status and the body. Words: URL, the authority's file, a header or "".
ASK = """
import ssl, sys, urllib.error, urllib.request as u
request = u.Request(sys.argv[1], headers=dict([sys.argv[3].split(": ", 1)]) if sys.argv[3] else {})
try:
    with u.urlopen(request, timeout=5, context=ssl.create_default_context(cafile=sys.argv[2])) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as refused:
    print(refused.code, refused.headers.get("WWW-Authenticate", ""))
"""


def secret(path: Path, text: str) -> str:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
    return str(path)


def identity(folder: Path, *addresses: str) -> dict[str, str]:
    """A certificate for these addresses that is its own authority, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "metrics.pem", folder / "metrics.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9", "-keyout", key,
                    "-out", certificate, "-subj", "/CN=proxy1", "-addext", "subjectAltName=" + ",".join(f"IP:{each}" for each in addresses)],
                   check=True, capture_output=True, timeout=30)
    key.chmod(0o600)
    return {"certificate_file": str(certificate), "key_file": str(key)}


def ask(host, url: str, authority: str, header: str = "") -> tuple[int, str]:
    done = host.run(["/usr/bin/python3", "-c", ASK, url, authority, header], check=False)
    assert done.returncode == 0, done.stderr
    status, _, body = done.stdout.partition(" ")
    return int(status), body


def test_another_host_gets_metrics_and_page_with_the_token(lab, servers, product):
    here, there = lab.client.ipv4, lab.replica("a")
    tls = identity(product.folder / "tls", here)
    metrics = {"listen": f"{here}:9464", "tls": tls, "token_file": secret(product.folder / "token", TOKEN + "\n")}
    in_clear = product.write(product.config(metrics={"listen": f"{here}:9464", "token_file": metrics["token_file"]}), "clear.yaml")
    refused = product.run("validate", "--config", in_clear)
    assert refused.returncode == 2 and "expected a loopback address, or metrics.tls and metrics.token_file" in refused.stderr

    proxy = product.up(metrics=metrics)
    url, authority, bearer = f"https://{here}:9464", tls["certificate_file"], f"Authorization: Bearer {TOKEN}"
    assert f"metrics      {url}/metrics" in proxy.admin("status").stdout
    status, page = ask(there, f"{url}/metrics", authority, bearer)
    assert status == 200 and "\nhedgerow_requests_total{" in page
    assert "\nhedgerow_http_requests_unauthorized_total 0" in page
    assert "\nhedgerow_http_certificate_ends_timestamp_seconds " in page
    assert ask(there, f"{url}/metrics", authority) == (401, 'Basic realm="hedgerow"\n')
    assert ask(there, f"{url}/metrics", authority, f"Authorization: Bearer {OTHER}")[0] == 401
    basic = "Authorization: Basic YW55OjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"  # any:TOKEN, as a browser sends it
    status, page = ask(there, f"{url}/", authority, basic)
    assert status == 200 and "<html" in page
    assert ask(there, f"{url}/", authority)[0] == 401
    assert "\nhedgerow_http_requests_unauthorized_total 3" in ask(there, f"{url}/metrics", authority, bearer)[1]
    listening = lab.client.run(["ss", "-ltnH"]).stdout
    assert f"{here}:9464" in listening and "127.0.0.1:9464" not in listening


def test_a_unix_socket_is_for_the_monitoring_group(lab, servers, product):
    path = product.folder / "metrics.sock"
    admin = {"socket": str(product.socket), "monitor_group": str(os.getgid())}
    proxy = product.up(metrics={"listen": f"unix:{path}"}, admin=admin)
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o660 and found.st_gid == os.getgid()
    assert f"metrics      /metrics at unix:{path}" in proxy.admin("status").stdout
    assert json.loads(proxy.admin("status", "--json").stdout)["metrics"] == f"unix:{path}"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        page = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert page.startswith("HTTP/1.1 200") and "\nhedgerow_requests_total{" in page
    assert ":9464" not in lab.client.run(["ss", "-ltnH"]).stdout
    product.finish()
    assert not path.exists()


def test_a_nodes_metrics_are_served_in_the_same_way(lab, servers, product):
    with DataDirs(product.instance, "memory") as data:
        cluster = hedgerow_cluster(lab, data.path, NodeSettings(memcached=()))
        tls = identity(data.path / "tls", *(host.ipv4 for host in lab.replicas))
        token = secret(data.path / "token", TOKEN)
        for node, host in zip(cluster.nodes, lab.replicas, strict=True):
            node.config.update({"metrics_listen": f"{host.ipv4}:9465", "metrics_tls": tls, "metrics_token_file": token})
        with cluster:
            cluster.wait_ready()
            url = f"https://{lab.replicas[0].ipv4}:9465/metrics"
            status, page = ask(lab.client, url, tls["certificate_file"], f"Authorization: Bearer {TOKEN}")
            assert status == 200 and "\nhedgerow_node_" in page
            assert ask(lab.client, url, tls["certificate_file"])[0] == 401


def test_promtool_takes_the_scrape_configuration_of_the_page(tmp_path):
    text = (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8")
    (block,) = (each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if each.startswith("scrape_configs:"))
    config = yaml.safe_load(block)
    (job,) = config["scrape_configs"]
    assert job["scheme"] == "https"
    job["tls_config"]["ca_file"] = identity(tmp_path, "192.0.2.1")["certificate_file"]
    job["authorization"]["credentials_file"] = secret(tmp_path / "token", TOKEN)
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="ascii")
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
