# SPDX-License-Identifier: Apache-2.0
"""Every map is bounded. When one is full, traffic still flows, unhedged, and a counter says why."""

import pytest

from harness.dns import UdpClient, parse, query
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
QUESTIONS = 200

# Nothing but the leader may answer: what is tracked stays pending until the test resumes it.
PATIENT = {"delay": "1s", "deadline": "5s", "suspect_min": "10s", "retention": "100ms"}


def wait_until_empty(product) -> None:
    wait_until(lambda: all(product.status()["maps"][name]["used"] == 0 for name in ("requests", "parked")),
               timeout_s=8, what="the maps' emptying")


def ask_many_at_a_stalled_leader(lab, servers, product, vip) -> list[int]:
    """Ids that were answered in the end, with repeats. An earlier test's requests linger in the maps for a while."""
    wait_until_empty(product)
    servers["a"].stall()
    with UdpClient(lab.client, vip) as client:
        for query_id in range(QUESTIONS):
            client.send(query(query_id, f"n{query_id % 100}.example.test"))
        servers["a"].resume()
        return sorted(parse(payload).id for payload in client.receive_all(quiet_s=0.7))


@FAMILIES
@pytest.mark.parametrize("limits, reason", [({"requests": 16}, "client_share"), ({"parked": 16}, "client_share")],
                         ids=["scoreboard", "pool"])
def test_a_full_map_lets_requests_through_unhedged(lab, servers, product, vip, service, limits, reason):
    product.up(services=product.services("dns", **PATIENT), limits=limits)
    assert ask_many_at_a_stalled_leader(lab, servers, product, vip) == list(range(QUESTIONS))
    assert product.figure("requests", service) == QUESTIONS
    # A bound may be rounded up to what the kernel preallocates per CPU, but not away.
    passed = product.figure("passed_through", service)
    assert passed == product.figure(reason, service) >= QUESTIONS // 2
    assert product.figure("won_by_first", service) == QUESTIONS - passed >= 8


@FAMILIES
@pytest.mark.parametrize("limits", [{"requests": 16}, {"parked": 16}], ids=["scoreboard", "pool"])
def test_a_map_that_was_full_is_used_again_when_it_has_room(lab, servers, product, vip, service, limits):
    product.up(services=product.services("dns", **PATIENT), limits=limits)
    ask_many_at_a_stalled_leader(lab, servers, product, vip)
    wait_until_empty(product)
    before = product.figure("passed_through", service)
    with UdpClient(lab.client, vip) as client:
        for query_id in range(8):
            assert client.ask(query_id, "www.example.test") is not None
    assert product.figure("passed_through", service) == before


@FAMILIES
def test_a_small_flow_map_serves_many_more_clients_than_it_holds(lab, servers, product, vip, service):
    product.up(limits={"flows": 16})
    for port in range(300):
        with UdpClient(lab.client, vip) as client:
            answer = client.ask(port, "www.example.test", timeout_s=1)
            assert answer is not None and answer.id == port, f"client {port} got nothing"
    assert product.figure("requests", service) == 300


@FAMILIES
def test_a_small_fragment_map_serves_many_more_big_answers_than_it_holds(lab, servers, product, vip, service):
    product.up(limits={"fragments": 16})
    with UdpClient(lab.client, vip) as client:
        for query_id in range(100):
            client.send(query(query_id, "big.example.test", 16, edns_bytes=4096))
            answer = client.receive(timeout_s=2)
            assert answer is not None and len(answer) > 1500, f"big answer {query_id} did not arrive"


def test_a_status_names_each_map_with_its_size_and_use(lab, servers, product):
    product.up(limits={"requests": 1024, "parked": 512, "flows": 2048, "connections": 512, "fragments": 64})
    maps = product.status()["maps"]
    assert {int(use["size"]) for use in maps.values()} >= {1024, 512, 2048, 64}
    assert all(int(use.get("used", 0)) <= int(use["size"]) for use in maps.values())
