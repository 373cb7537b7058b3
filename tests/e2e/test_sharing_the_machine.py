# SPDX-License-Identifier: Apache-2.0
"""The proxy is a guest: it attaches beside others, and the machine is afterwards what it was before."""

import json
import os
import platform
import signal
import time
from pathlib import Path

import pytest

from deploy.lab import Uplink
from harness import machine
from harness.dns import dig, finish_dnsperf, start_dnsperf, who_answers
from harness.product import DNS4, VIP4, VIP6, wait_until

pytestmark = pytest.mark.own

KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])
HAS_TCX = KERNEL >= (6, 6)
BOTH_MODES = pytest.mark.parametrize("attach", ["tcx", "clsact"])

# A filter of somebody else: a classic BPF program that matches nothing, and a redirection of a port nobody uses.
FOREIGN_FILTERS = (
    ["bpf", "bytecode", "1,6 0 0 0,", "flowid", "1:1"],
    ["protocol", "ip", "prio", "20", "u32", "match", "ip", "dport", "9", "0xffff",
     "action", "mirred", "egress", "redirect", "dev", "lo"],
)


def add_foreign_filters(host, hook: str) -> None:
    for words in FOREIGN_FILTERS:
        host.run(["tc", "filter", "add", "dev", "eth0", hook, *words])


def filters(host, hook: str) -> list[str]:
    return [line for line in host.run(["tc", "filter", "show", "dev", "eth0", hook]).stdout.splitlines()
            if line.startswith("filter")]


@BOTH_MODES
def test_both_ways_of_attaching_serve_both_families(lab, servers, product, attach):
    if attach == "tcx" and not HAS_TCX:
        done = product.daemon(product.config(attach="tcx"))
        assert done.returncode != 0 and "tcx" in (done.stdout + done.stderr).lower()
        return
    product.up(attach=attach)
    assert {uplink["attach"] for uplink in product.status()["uplinks"]} == {attach}
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b" and who_answers(lab.client, VIP6) == "b"
    servers["a"].resume()


def test_auto_takes_tcx_where_the_kernel_has_it(proxy):
    assert proxy.status()["uplinks"][0]["attach"] == ("tcx" if HAS_TCX else "clsact")


@BOTH_MODES
def test_foreign_filters_that_were_there_before_survive_up_and_down(lab, servers, product, attach):
    if attach == "tcx" and not HAS_TCX:
        attach = "auto"
    lab.client.run(["tc", "qdisc", "add", "dev", "eth0", "clsact"])
    for hook in ("ingress", "egress"):
        add_foreign_filters(lab.client, hook)
    before = {hook: filters(lab.client, hook) for hook in ("ingress", "egress")}
    assert len(before["ingress"]) >= 2
    product.up(attach=attach)
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"
    for hook, lines in before.items():
        assert set(lines) <= set(filters(lab.client, hook))
    product.finish()  # compares filters and qdiscs as well
    assert {hook: filters(lab.client, hook) for hook in before} == before


@BOTH_MODES
def test_a_filter_somebody_adds_while_we_run_survives_down(lab, servers, product, attach):
    if attach == "tcx" and not HAS_TCX:
        attach = "auto"
    product.up(attach=attach)
    lab.client.run(["tc", "qdisc", "add", "dev", "eth0", "clsact"], check=False)  # there already with clsact
    add_foreign_filters(lab.client, "ingress")
    assert who_answers(lab.client, VIP4) == "a"
    product.check_identity()
    product.down()
    left = filters(lab.client, "ingress")
    assert any("u32" in line for line in left) and any("bpf" in line for line in left)
    assert "hedgerow" not in " ".join(left)
    assert not lab.client.run(["ip", "link", "show", "hr0"], check=False).stdout


def test_a_root_qdisc_on_the_uplink_stays(lab, servers, product):
    lab.client.shape(rate_kbit=100_000)
    product.up()
    assert who_answers(lab.client, VIP4) == "a"
    product.finish()
    assert "tbf" in lab.client.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout


@BOTH_MODES
def test_down_leaves_the_machine_as_it_was_also_under_traffic(lab, servers, product, attach):
    if attach == "tcx" and not HAS_TCX:
        attach = "auto"
    product.up(attach=attach)
    load = start_dnsperf(lab.client, VIP4, seconds=2, rate=300)
    time.sleep(0.5)
    servers["a"].stall()
    time.sleep(0.3)
    product.down()  # parked copies and a running clock are no reason to leave something
    product.check_nothing_left()
    finish_dnsperf(load)
    servers["a"].resume()


@pytest.mark.lab(client_uplink=Uplink(tx_checksum=False, mtu=1400), replica_uplink=Uplink(mtu=1400))
def test_offloads_and_mtu_of_the_uplink_are_left_alone(lab, servers, product):
    product.up()
    assert "mtu 1400" in lab.client.run(["ip", "link", "show", "hr0"]).stdout
    assert lab.client.tx_checksum() is False
    assert dig(lab.client, VIP4, "big.example.test", "TXT", "+bufsize=4096", "+ignore").size_bytes > 1500
    product.finish()
    assert lab.client.tx_checksum() is False


@BOTH_MODES
def test_after_sigkill_of_the_daemon_clean_leaves_the_machine_as_it_was(lab, servers, product, attach):
    if attach == "tcx" and not HAS_TCX:
        attach = "auto"
    product.up(attach=attach)
    assert who_answers(lab.client, VIP4) == "a"
    pid = product.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the daemon's end")
    product.is_up = False
    assert machine.differences(product.before, machine.take(lab.client, product.instance))  # something to clean
    product.clean()
    product.check_nothing_left()


def test_after_sigkill_the_daemon_can_be_started_again_without_clean(lab, servers, product):
    product.up()
    before = product.before
    pid = product.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the daemon's end")
    product.is_up = False
    product.up()
    product.before = before
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"


def test_clean_with_nothing_to_clean_succeeds_and_changes_nothing(lab, product):
    before = machine.take(lab.client, product.instance)
    product.clean()
    assert machine.differences(before, machine.take(lab.client, product.instance)) == []


def test_clean_does_not_touch_a_running_instance(lab, servers, proxy):
    done = proxy.run("clean", "--instance", proxy.instance)
    assert done.returncode != 0 and str(proxy.pid) in done.stdout + done.stderr
    assert who_answers(lab.client, VIP4) == "a"


def test_clean_of_one_instance_leaves_another_alone(lab, servers, proxy):
    proxy.run("clean", "--instance", f"{proxy.instance}x", check=True)
    assert who_answers(lab.client, VIP4) == "a"


def test_sigint_is_a_down(lab, servers, product):
    product.up()
    os.kill(product.pid, signal.SIGINT)
    product.is_up = False
    wait_until(lambda: not product.socket.exists(), what="the daemon's end")
    product.check_nothing_left()


def test_down_and_up_again_several_times_leaves_nothing(lab, servers, product):
    for _ in range(4):
        product.up()
        assert who_answers(lab.client, VIP4) == "a"
        product.down()
    product.check_nothing_left()


def test_no_setting_of_the_machine_changes_while_the_proxy_is_up(lab, servers, product):
    product.up()
    during = machine.take(lab.client, product.instance)
    changed = [line for line in machine.differences(product.before, during)
               if "sysctl" in line and "/hr0" not in line or "offloads of eth0" in line or "offloads of lo" in line]
    assert changed == []


def test_the_proxy_adds_only_links_and_routes_of_its_own(lab, servers, product):
    product.up()
    links = {link["ifname"] for link in json.loads(lab.client.run(["ip", "-j", "link", "show"]).stdout)}
    assert {"lo", "eth0"} < links and all(name in ("lo", "eth0") or name.startswith("hr0") for name in links)
    routes = [line for line in machine.differences(product.before, machine.take(lab.client, product.instance))
              if line.startswith(("left behind: route", "taken away: route", "changed: route"))]
    # Those by the uplink, which have our protocol number, are for clients that are bound to it.
    assert routes and all("hr0" in line or "proto 72" in line or "::" in line for line in routes), routes
    assert product.figure("requests", DNS4) == 0
