# SPDX-License-Identifier: Apache-2.0
"""The commands an operator runs while traffic flows: leader, bypass, status, doctor, plan, metrics."""

import json

import pytest

from harness import identity, machine
from harness.dns import UdpClient, dig, parse, query, who_answers
from harness.product import BIN, DNS4, DNS6, METRICS, VIP4, VIP6

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])


def leader_of(product, service: str) -> dict:
    return next(entry for entry in product.ask("leader", "show")["leaders"] if entry["service"] == service)


@FAMILIES
def test_leader_set_moves_the_traffic_of_its_service_only_and_unset_gives_it_back(lab, proxy, vip, service):
    other_vip, other = (VIP6, DNS6) if service == DNS4 else (VIP4, DNS4)
    assert leader_of(proxy, service)["leader"] == "a" and not leader_of(proxy, service).get("pinned", False)
    proxy.admin("leader", "set", service, "b")
    assert who_answers(lab.client, vip) == "b" and who_answers(lab.client, other_vip) == "a"
    assert leader_of(proxy, service)["leader"] == "b" and leader_of(proxy, service)["pinned"] is True
    assert leader_of(proxy, other)["leader"] == "a"
    proxy.admin("leader", "unset", service)
    assert who_answers(lab.client, vip) == "a"
    assert leader_of(proxy, service)["leader"] == "a" and not leader_of(proxy, service).get("pinned", False)


def test_a_pinned_leader_that_stalls_is_still_hedged_by_the_other(lab, servers, proxy):
    proxy.admin("leader", "set", DNS4, "b")
    servers["b"].stall()
    assert who_answers(lab.client, VIP4) == "a"
    servers["b"].resume()


@pytest.mark.parametrize("words, named", [
    (["leader", "set", "nosuch", "a"], "nosuch"),
    (["leader", "set", DNS4, "nosuch"], "nosuch"),
    (["leader", "unset", "nosuch"], "nosuch"),
    (["bypass", "nosuch", "on"], "nosuch"),
    (["bypass", DNS4, "maybe"], "maybe"),
])
def test_a_command_about_something_unknown_fails_and_names_it(proxy, words, named):
    done = proxy.admin(*words, check=False)
    assert done.returncode != 0 and named in done.stdout + done.stderr


def test_up_of_what_is_up_is_done_and_names_reload_where_the_file_differs(proxy):
    file = proxy.write(proxy._config_up)
    again = proxy.run("up", "--config", file)
    assert again.returncode == 0 and f"pid {proxy.pid}, serves this configuration" in again.stdout, again
    changed = proxy.config()
    changed["services"][0]["delay"] = "77ms"
    other = proxy.write(changed, "other.yaml")
    refused = proxy.run("up", "--config", other)
    assert refused.returncode == 1 and "hedgerow reload" in refused.stderr and proxy.status()["problems"] == [], refused


def test_up_in_another_network_namespace_is_not_up_already(lab, proxy):
    done = lab.replica("a").run([BIN / "hedgerow", "up", "--config", proxy.write(proxy._config_up)], check=False)
    assert done.returncode == 1 and f"already running as pid {proxy.pid}" in done.stderr, done


@FAMILIES
def test_bypass_switches_hedging_off_and_traffic_flows(lab, servers, proxy, vip, service):
    proxy.admin("bypass", service, "on")
    assert proxy.service_status(service)["bypass"] is True
    assert who_answers(lab.client, vip) == "a"
    servers["a"].stall()
    with UdpClient(lab.client, vip) as client:
        client.send(query(3, "www.example.test"))
        assert client.receive(timeout_s=0.3) is None  # nobody hedged
        servers["a"].resume()
        assert parse(client.receive(timeout_s=2)).id == 3  # forwarded all the same
    assert int(proxy.service_status(service)["reasons"]["bypass"]) == 2
    assert proxy.figure("passed_through", service) == 2 and proxy.figure("hedges", service) == 0
    proxy.admin("bypass", service, "off")
    servers["a"].stall()
    assert who_answers(lab.client, vip) == "b"
    servers["a"].resume()


def test_status_for_people_and_for_programs_say_the_same(lab, proxy):
    for _ in range(3):
        assert dig(lab.client, VIP4, "www.example.test").status == "NOERROR"
    status = proxy.status()
    assert status["instance"] == proxy.instance and status["interface"] == "hr0" and status["state"] == "running"
    assert [service["name"] for service in status["services"]] == [DNS4, DNS6]
    assert status["uplinks"][0]["name"] == "eth0"
    text = proxy.admin("status").stdout
    for word in (DNS4, DNS6, VIP4, VIP6, "eth0", proxy.instance):
        assert word in text


@pytest.mark.own  # metrics count from the start of the daemon
def test_metrics_are_served_on_loopback_and_agree_with_status(lab, servers, product):
    proxy = product.up(metrics=METRICS)
    for _ in range(4):
        dig(lab.client, VIP4, "www.example.test")

    assert proxy.metric("hedgerow_requests_total", service=DNS4) == proxy.figure("requests") == 4
    assert proxy.metric("hedgerow_requests_total", service=DNS6) == 0
    assert proxy.metric("hedgerow_identity_ok", service=DNS4) == 1
    foreign = [line for line in proxy.metrics().splitlines() if line and not line.startswith(("hedgerow_", "#"))]
    assert foreign == []
    listening = lab.client.run(["ss", "-ltnH"]).stdout
    assert "127.0.0.1:9464" in listening and "0.0.0.0:9464" not in listening


@pytest.mark.own
def test_doctor_is_content_in_a_healthy_lab_and_speaks_json(lab, product, servers):
    config = product.write(product.config())
    done = product.run("doctor", "--config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    report = product.run("doctor", "--config", config, "--json")
    assert report.returncode == 0 and json.loads(report.stdout)


@pytest.mark.own
def test_doctor_names_what_is_open(lab, product, servers):
    client, backend = lab.client, lab.replicas[0].ipv4
    key = product.folder / "open.key"
    key.write_text("00112233445566778899aabbccddeeff\n", encoding="ascii")
    key.chmod(0o644)
    service = product.service("dns4", cluster={"id": 7, "key_file": str(key)})
    config = product.write(product.config(services=[service]))
    for setting, value in (("net.ipv4.conf.all.rp_filter", 0), ("net.ipv4.conf.eth0.rp_filter", 0), ("net.ipv4.ip_forward", 1)):
        client.sysctl(setting, value)
    client.run(["nft", "-f", "-"], stdin=f"table inet open {{\n chain c {{\n ip daddr {backend} udp dport 53 counter\n }}\n }}\n")
    done = product.run("doctor", "--config", config, "--json")
    found = {(finding["check"], finding["result"]): finding["detail"] for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1 and f"`chmod g-w,o-rwx {key}`" in found["keys", "problem"]
    assert "net.ipv4.conf.eth0.rp_filter=1" in found["rp_filter", "warning"]
    assert "IPv4" in found["forwarding", "warning"]
    assert f"ip daddr {backend} udp dport 53" in found["firewall", "warning"]
    key.chmod(0o600)
    client.run(["nft", "delete", "table", "inet", "open"])
    client.sysctl("net.ipv4.conf.eth0.rp_filter", 1)
    client.sysctl("net.ipv4.ip_forward", 0)
    done = product.run("doctor", "--config", config, "--json")
    found = {(finding["check"], finding["result"]) for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0 and {(name, "ok") for name in ("keys", "rp_filter", "forwarding", "firewall")} <= found


@pytest.mark.own
def test_validate_and_plan_say_what_would_be_done_and_do_nothing(lab, product):
    before = machine.take(lab.client, product.instance)
    config = product.write(product.config())
    validated = product.run("validate", "--config", config)
    assert validated.returncode == 0, validated.stdout + validated.stderr
    planned = product.run("plan", "--config", config)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    for word in ("hr0", "eth0", VIP4, VIP6):
        assert word in planned.stdout
    for command in ("validate", "plan"):
        assert json.loads(product.run(command, "--config", config, "--json").stdout)
    assert machine.differences(before, machine.take(lab.client, product.instance)) == []


@pytest.mark.own
def test_admin_commands_without_a_daemon_fail_and_name_the_socket(product):
    for words in (["status"], ["down"], ["leader", "show"], ["bypass", DNS4, "on"]):
        done = product.admin(*words, check=False)
        assert done.returncode != 0 and str(product.socket) in done.stdout + done.stderr, words


def test_the_admin_socket_is_its_owners_alone(proxy):
    assert proxy.socket.stat().st_mode & 0o777 == 0o600


def test_the_books_balance_while_nothing_is_asked(proxy):
    assert identity.violations(proxy.status()) == []
