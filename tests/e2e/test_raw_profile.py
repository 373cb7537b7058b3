# SPDX-License-Identifier: Apache-2.0
"""The raw profile, with a server that echoes anything: what DNS cannot show, such as fragmented requests."""

import os
import struct
import time

import pytest

from harness.dns import UdpClient
from harness.echo import TWICE
from harness.product import RAW4, RAW6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(RAW4, "raw4"), (RAW6, "raw6")], ids=["ipv4", "ipv6"])


pytestmark = pytest.mark.servers(a="echo", b="echo")


@pytest.fixture
def client(lab, vip):
    with UdpClient(lab.client, vip, 4000) as client:
        yield client


@FAMILIES
def test_fragmented_requests_and_answers_pass_through_unhedged(product, servers, client, service):
    product.up(services=product.services("raw"))
    for number in range(5):
        payload = struct.pack("!I", number) + os.urandom(4000)
        client.send(payload)
        assert client.receive() == payload
    assert product.figure("requests", service) == product.figure("fragment", service) == 5
    assert product.figure("later_fragments", service) >= 4 * 5


@FAMILIES
def test_all_datagrams_of_the_winner_pass_and_none_of_the_losers(product, servers, client, service):
    product.up(services=product.services("raw"))
    servers["a"].stall()
    payload = struct.pack("!I", 1) + TWICE
    client.send(payload)
    assert client.receive_all(quiet_s=0.2) == [payload, payload]
    servers["a"].resume()
    wait_until(lambda: product.figure("losers_dropped", service) == 2, what="both datagrams of the loser")
    assert client.receive(0.2) is None


@FAMILIES
def test_a_request_shorter_than_its_correlation_bytes_passes_untracked(product, servers, client, service):
    product.up(services=product.services("raw"))
    client.send(b"abc")
    assert client.receive() == b"abc"
    assert product.figure("unknown_operation", service) == 1


@FAMILIES
def test_two_requests_that_wait_under_one_key_are_both_answered(product, servers, client, service):
    """Nothing in a raw answer says which request it answers: the second one is forwarded once, and both answers pass."""
    product.up(services=product.services("raw", delay="1s", deadline="5s", suspect_min="10s"))
    servers["a"].stall()
    both = [struct.pack("!I", 9) + b"old", struct.pack("!I", 9) + b"new"]
    for payload in both:
        client.send(payload)
        time.sleep(0.02)
    servers["a"].resume()
    assert client.receive_all(quiet_s=0.4) == both
    assert product.figure("key_busy", service) == 1


@pytest.mark.lab(replicas=3)
@pytest.mark.servers(a="echo", b="echo", c="echo")
@FAMILIES
def test_with_three_attempts_the_third_replica_answers_when_two_stall(product, servers, client, service):
    product.up(services=product.services("raw", attempts=3, delay="5ms", budget="100%", suspect_min="10s"))
    for number in range(100, 140):  # each earns one hedge; a request below needs two, and a slow answer costs one
        client.send(struct.pack("!I", number))
        assert client.receive() is not None
    servers["a"].stall()
    servers["b"].stall()
    for number in range(10):
        payload = struct.pack("!I", number)
        client.send(payload)
        assert client.receive() == payload
    assert product.won(service) == {"a": 40, "c": 10}
    assert product.figure("won_by_hedge", service) == 10
