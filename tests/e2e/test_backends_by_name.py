# SPDX-License-Identifier: Apache-2.0
"""docs/recipes/names.md with a running proxy: hedgerow-endpoints makes what a name stands for the backends of a service under load."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes import endpoints
from deploy.kubernetes.endpoints_dns_test import Registry
from harness.dns import finish_dnsperf, start_dnsperf
from harness.product import BIN, VIP4, wait_until

RECIPE = Path(__file__).resolve().parents[2] / "docs/recipes/names.md"


def words_of_the_recipe() -> list[str]:
    """The options of the unit that the page shows, without paths."""
    (line,) = re.findall(r"^ExecStart=/usr/bin/python3 /usr/share/hedgerow/endpoints.py (.*)$", RECIPE.read_text(encoding="utf-8"), re.MULTILINE)
    return line.split()


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
    words = words_of_the_recipe()
    assert set(words[::2]) == set(places), "the page's options, with the test's places"
    follower = subprocess.Popen([sys.executable, endpoints.__file__, *(str(word) for pair in places.items() for word in pair), "--hedgerow", BIN / "hedgerow",
                                 "--socket", product.socket, "--debounce", "0.1"], stderr=(tmp_path / "log").open("wb"))

    def backends() -> list[str]:
        return [f"{each['name']} {each['address']}" for each in product.service_status("dns")["backends"]]

    try:
        load = start_dnsperf(lab.client, VIP4, seconds=8, rate=300)
        wait_until(lambda: backends() == [f"first {a}", f"b-53 {b}"], 30, "the name's backends; the template has a name for one")
        registry.serve(*(record.format("b" if "SRV 1" in record else "a") for record in both))
        wait_until(lambda: backends() == [f"b-53 {b}", f"first {a}"], 30, "the other one leads")
        registry.serve("_dns._udp SRV 1 1 53 b", f"b A {b}")
        wait_until(lambda: backends() == [f"b-53 {b}"], 30, "one has gone")
        registry.serve("_dns._udp TXT empty")
        wait_until(lambda: "no endpoint is ready" in (tmp_path / "log").read_text(encoding="utf-8"), 30, "it is logged")
        registry.stop()
        wait_until(lambda: "cannot follow" in (tmp_path / "log").read_text(encoding="utf-8"), 30, "it is logged")
        report = finish_dnsperf(load)
        assert report.lost == 0 and report.sent > 1000, report.text
        assert backends() == [f"b-53 {b}"], "what was known last"
        assert "primary" not in yaml.safe_load(out.read_text(encoding="utf-8"))["services"][0]
    finally:
        follower.terminate()
        follower.wait(timeout=10)
    product.finish()
