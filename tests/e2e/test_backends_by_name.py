# SPDX-License-Identifier: Apache-2.0
"""docs/recipes/names.md with a running proxy: hedgerow-endpoints makes what a name stands for the backends of a service under load."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes import endpoints
from deploy.kubernetes.endpoints_dns_test import Registry
from harness.dns import start_dnsperf, stop_dnsperf
from harness.product import BIN, VIP4, wait_until

RECIPE = Path(__file__).resolve().parents[2] / "docs/recipes/names.md"


def words_of_the_recipe() -> list[str]:
    """The options of the unit that the page shows."""
    (line,) = re.findall(r'^Environment="NAMES=(.*)"$', RECIPE.read_text(encoding="utf-8"), re.MULTILINE)
    return line.split()


def with_places(places: dict, words: list[str]) -> list[str]:
    """The page's options, with the test's places."""
    assert set(words[::2]) == set(places)
    return [str(word) for pair in places.items() for word in pair]


@pytest.fixture
def registry(tmp_path):
    made = Registry(tmp_path / "registry")
    yield made
    made.stop()


def test_the_backends_follow_a_name_and_no_request_is_lost(lab, servers, product, registry, tmp_path):
    a, b = (lab.replica(name).ipv4 for name in "ab")
    service = product.service("dns4", backends=[{"name": "first", "address": a, "port": 53}])
    service.pop("primary")
    service["name"] = "dns"
    product.up(services=[service])
    template, out = tmp_path / "template.yaml", product.folder / "hedgerow.yaml"
    template.write_text(out.read_text(encoding="utf-8"), encoding="utf-8")
    both = ("_dns._udp SRV 1 1 53 {}", "_dns._udp SRV 2 1 53 {}", f"a A {a}", f"b A {b}")
    registry.serve(*(record.format("a" if "SRV 1" in record else "b") for record in both))
    places = {"--config": template, "--out": out, "--resolver": f"{registry.address}:{registry.port}", "--dns": "dns=_dns._udp.example.test"}
    follower = subprocess.Popen([sys.executable, endpoints.__file__, *with_places(places, words_of_the_recipe()), "--hedgerow", BIN / "hedgerow",
                                 "--socket", product.socket, "--debounce", "0.1"], stderr=(tmp_path / "log").open("wb"))

    def backends() -> list[str]:
        return [f"{each['name']} {each['address']}" for each in product.service_status("dns")["backends"]]

    load = start_dnsperf(lab.client, VIP4, seconds=600, rate=300)  # until the test ends it
    try:
        wait_until(lambda: product.figure("requests", "dns") > 100, 30, "the load")
        wait_until(lambda: backends() == [f"first {a}", f"b-53 {b}"], 30, "the name's backends; the template has a name for one")
        registry.serve(*(record.format("b" if "SRV 1" in record else "a") for record in both))
        wait_until(lambda: backends() == [f"b-53 {b}", f"first {a}"], 30, "the other one leads")
        registry.serve("_dns._udp SRV 1 1 53 b", f"b A {b}")
        wait_until(lambda: backends() == [f"b-53 {b}"], 30, "one has gone")
        registry.serve("_dns._udp TXT empty")
        wait_until(lambda: "no endpoint is ready" in (tmp_path / "log").read_text(encoding="utf-8"), 30, "it is logged")
        registry.stop()
        wait_until(lambda: "cannot follow" in (tmp_path / "log").read_text(encoding="utf-8"), 30, "it is logged")
        before = product.figure("requests", "dns")
        wait_until(lambda: product.figure("requests", "dns") > before + 300, 30, "requests to the last good list")
        report = stop_dnsperf(load)
        assert report.lost == 0 and report.sent > 1000, report.text
        assert backends() == [f"b-53 {b}"], "the last good list"
        assert "primary" not in yaml.safe_load(out.read_text(encoding="utf-8"))["services"][0]
    finally:
        lab.client.stop(load[0])
        follower.terminate()
        follower.wait(timeout=10)
    product.finish()


def test_at_a_first_boot_the_recipes_unit_leaves_the_daemon_a_file_though_no_resolver_answers(tmp_path):
    """hedgerowd's unit is skipped where its file is missing, and nothing starts it later. systemd waits for ExecStartPre before what is `Before=`."""
    page = RECIPE.read_text(encoding="utf-8")
    (first,) = re.findall(r"^ExecStartPre=-/usr/bin/python3 /usr/share/hedgerow/endpoints.py (.*) \$NAMES$", page, re.MULTILINE)
    assert "\nBefore=hedgerowd.service\n" in page
    template, out = tmp_path / "template.yaml", tmp_path / "hedgerow.yaml"
    template.write_text("services: [{name: dns, vip: 10.99.0.53, port: 53, profile: dns, backends: [{name: a, address: 10.77.0.11, port: 53}]}]\n", encoding="ascii")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = {"--config": template, "--out": out, "--resolver": f"127.0.0.1:{silent.getsockname()[1]}", "--dns": "dns=_dns._udp.example.test"}
        done = subprocess.run([sys.executable, endpoints.__file__, *first.split(), *with_places(places, words_of_the_recipe()), "--hedgerow", BIN / "hedgerow"],
                              check=False, timeout=80, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [each["address"] for each in yaml.safe_load(out.read_text(encoding="utf-8"))["services"][0]["backends"]] == ["10.77.0.11"]
    checked = subprocess.run([BIN / "hedgerow", "validate", "--config", out], check=False, timeout=30, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
