# SPDX-License-Identifier: Apache-2.0
"""The checks that run after every test can fail: each is shown a fault planted for it."""

import copy
import subprocess

import pytest

from harness import identity, machine
from harness.capture import udp_checksum_ok
from harness.dns import parse, query

pytestmark = [pytest.mark.own, pytest.mark.servers()]

GOOD = {"accounting": {"outcomes": ["won_by_first", "won_by_hedge", "nacked", "passed_through", "evicted"],
                       "forwarded_reasons": ["bypass", "fragment"]},
        "services": [{"name": "dns4", "reasons": {"bypass": "1", "fragment": "1", "loser": "1"}, "identity_ok": True,
                      "counters": {"requests": "10", "won_by_first": "6", "won_by_hedge": "1", "nacked": "1",
                                   "passed_through": "2", "hedges": "1"}}]}


def planted(counters: dict | None = None, **changes) -> dict:
    status = copy.deepcopy(GOOD)
    status["services"][0].update(changes)
    status["services"][0]["counters"].update(counters or {})
    return status


def test_balanced_books_have_no_violation_whether_zeros_are_written_or_not():
    assert identity.violations(GOOD) == []
    assert identity.violations(planted({"evicted": "0"}, in_flight=0)) == []


@pytest.mark.parametrize("changes, text", [
    ({"counters": {"requests": "11"}}, "11 requests, but its parts sum up to 10"),
    ({"in_flight": "1"}, "parts sum up to 11"),
    ({"counters": {"won_by_first": "0"}}, "parts sum up to 4"),
    ({"reasons": {"bypass": "1"}}, "2 passed through, but reasons explain 1"),
    ({"identity_ok": False}, "identity_ok says False"),
])
def test_a_fault_planted_in_the_books_is_found(changes, text):
    assert any(text in line for line in identity.violations(planted(**changes)))


def test_a_status_without_services_is_no_proof():
    assert identity.violations(GOOD | {"services": []})


def test_a_status_that_does_not_name_the_terms_is_no_proof():
    assert identity.violations(GOOD | {"accounting": {}}) == ["status names no outcomes", "status names no forwarded_reasons"]


# One fault each: how it is planted in the client host, and what the comparison must say.
FAULTS = {
    "link": (["ip", "link", "add", "hr9", "type", "bridge"], "left behind: link hr9"),
    "address": (["ip", "address", "add", "10.77.9.9/32", "dev", "eth0"], "left behind: address 10.77.9.9/32"),
    "address taken": (["ip", "address", "del", "fd77::1/64", "dev", "eth0"], "taken away: address fd77::1/64"),
    "route": (["ip", "route", "add", "10.99.0.53/32", "dev", "eth0"], "left behind: route -4 10.99.0.53"),
    "route in another table": (["ip", "-6", "route", "add", "fd99::53", "dev", "eth0", "table", "77"],
                               "left behind: route -6 fd99::53"),
    "rule": (["ip", "rule", "add", "fwmark", "7", "table", "77"], "left behind: rule -4"),
    "qdisc": (["tc", "qdisc", "add", "dev", "eth0", "clsact"], "left behind: qdisc clsact"),
    "root qdisc": (["tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb"], "qdisc htb"),
    "offload": (["ethtool", "-K", "eth0", "tx", "off"], "changed: offloads of eth0"),
    "mtu": (["ip", "link", "set", "eth0", "mtu", "1400"], "changed: link eth0"),
    "sysctl": (["sysctl", "-w", "net.ipv4.conf.all.rp_filter=2"],
               "changed: sysctl net/ipv4/conf/all/rp_filter: 1 -> 2"),
    "firewall": (["nft", "add", "table", "ip", "left"], "changed: firewall"),
    "process": (["setsid", "--fork", "sleep", "61"], "sleep 61"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_the_machine_is_found(lab, fault):
    command, text = FAULTS[fault]
    before = machine.take(lab.client, "planted")
    assert machine.differences(before, machine.take(lab.client, "planted")) == []
    lab.client.run(command)
    found = machine.differences(before, machine.take(lab.client, "planted"))
    assert any(text in line for line in found), found


def test_a_filter_left_on_a_link_is_found(lab):
    lab.client.run(["tc", "qdisc", "add", "dev", "eth0", "clsact"])
    before = machine.take(lab.client, "planted")
    lab.client.run(["tc", "filter", "add", "dev", "eth0", "egress", "bpf", "bytecode", "1,6 0 0 0,", "flowid", "1:1"])
    found = machine.differences(before, machine.take(lab.client, "planted"))
    assert any("filters egress of eth0" in line for line in found), found


def test_a_pin_left_on_bpffs_is_found(lab, tmp_path):
    """On a bpffs of its own, so that the planted pin is nobody's."""
    subprocess.run(["mount", "-t", "bpf", "bpf", str(tmp_path)], check=True, timeout=10)
    try:
        before = machine.take(lab.client, "planted")
        (tmp_path / "hedgerow" / "planted").mkdir(parents=True)
        found = machine.differences(before, machine.take(lab.client, "planted"))
        assert any("left behind: pin" in line for line in found), found
        assert machine.differences(before, machine.take(lab.client, "another")) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True, timeout=10)


def test_a_wrong_udp_checksum_is_found():
    source, destination = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    # Worked by hand: 0x0a00 0x0001 0x0a00 0x0002 0x0000 0x000a 0x0000 0x0011, ports 1 and 2, length 10, payload "hi".
    good = bytes.fromhex("00010002000a") + (0xFFFF - (0x0A00 + 1 + 0x0A00 + 2 + 0xA + 0x11 + 1 + 2 + 0xA + 0x6869)
                                            ).to_bytes(2, "big") + b"hi"
    assert udp_checksum_ok(source, destination, good)
    assert not udp_checksum_ok(source, destination, good[:-1] + b"j")
    assert not udp_checksum_ok(source, destination, good[:6] + b"\0\0" + b"hi")


def test_a_built_query_reads_back():
    message = parse(query(513, "WWW.example.test", 16, edns_bytes=4096))
    assert (message.id, message.question, message.rcode, message.answer_count) == (513, "WWW.example.test", 0, 0)
