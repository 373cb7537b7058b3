# SPDX-License-Identifier: Apache-2.0
"""TCP by itself: no request over UDP is sent here, so only connections show which backend serves."""

import os
import signal
import socket
import time

import pytest

from harness.dns import who_answers
from harness.product import VIP4, VIP6, wait_until

pytestmark = pytest.mark.own
FAMILIES = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["ipv4", "ipv6"])
QUICK = ("+tcp", "+time=3", "+tries=1")


def connects_within_s(host, vip: str, timeout_s: float = 5.0) -> float | None:
    began = time.monotonic()
    with host.socket(socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_STREAM) as tcp:
        tcp.settimeout(timeout_s)
        try:
            tcp.connect((vip, 53))
        except OSError:
            return None
    return time.monotonic() - began


@FAMILIES
@pytest.mark.parametrize("attended", [True, False], ids=["attended", "unattended"])
def test_a_server_that_ends_loses_no_connection_and_gets_them_back(lab, servers, product, vip, attended):
    product.up()
    assert who_answers(lab.client, vip, *QUICK) == "a"
    servers["a"].kill()
    if not attended:
        os.kill(product.pid, signal.SIGKILL)
    first = connects_within_s(lab.client, vip)
    assert first is not None and first > 0.5, "refused by a, and opened at b when the client repeats its SYN"
    later = [connects_within_s(lab.client, vip) for _ in range(10)]
    assert None not in later and sum(took < 0.5 for took in later) >= 8, later
    assert who_answers(lab.client, vip, *QUICK) == "b"
    if attended:
        assert any("leader a refuses TCP" in problem for problem in product.status()["problems"]), product.status()["problems"]
    servers["a"].start()
    wait_until(lambda: who_answers(lab.client, vip, *QUICK) == "a", timeout_s=15, what="the leader again")
    if attended:
        assert product.status()["problems"] == []
    else:
        product.run("up", "--json", "--config", product.write(product.config()), check=True)  # takes over what the dead daemon left


def test_a_host_that_is_cut_off_gets_no_new_connection(lab, servers, product):
    product.up()
    with lab.client.socket(socket.AF_INET, socket.SOCK_STREAM) as stands:
        stands.connect((VIP4, 53))
        lab.replica("a").run(["ip", "link", "set", "eth0", "down"])
        try:
            assert connects_within_s(lab.client, VIP4) is not None
            assert [who_answers(lab.client, VIP4, *QUICK) for _ in range(3)] == ["b"] * 3
        finally:
            lab.replica("a").run(["ip", "link", "set", "eth0", "up"])
        assert stands.getpeername()[0] == VIP4
    wait_until(lambda: who_answers(lab.client, VIP4, *QUICK) == "a", timeout_s=15, what="the leader again")
