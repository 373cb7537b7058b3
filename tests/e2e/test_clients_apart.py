# SPDX-License-Identifier: Apache-2.0
"""Clients and questions are told apart: equal ids from two clients, a port and id used again, retransmissions."""

import time

import pytest

from deploy.lab import VIP_DNS
from harness.dns import UdpClient, parse, query
from harness.product import DNS4, DNS6, VIP4, VIP6, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(VIP4, DNS4), (VIP6, DNS6)], ids=["ipv4", "ipv6"])
IDS = range(100)


def ask_alike(clients: list[UdpClient]) -> None:
    """Every client uses the same ids for questions of its own, all at once."""
    for query_id in IDS:
        for offset, client in enumerate(clients):
            client.send(query(query_id, f"n{(query_id + 37 * offset) % 100}.example.test"))
        time.sleep(0.001)  # bounded load; the clients still overlap


def check_answers(clients: list[UdpClient]) -> None:
    for offset, client in enumerate(clients):
        answers = [parse(payload) for payload in client.receive_all(quiet_s=0.5)]
        assert {a.id: a.question for a in answers} == {
            query_id: f"n{(query_id + 37 * offset) % 100}.example.test" for query_id in IDS}
        assert len(answers) == len(IDS)  # none twice


@FAMILIES
@pytest.mark.parametrize("stalled", [False, True], ids=["leader well", "leader stalled"])
def test_two_ports_with_the_same_ids_get_their_own_answers(lab, servers, product, vip, service, stalled):
    product.up(services=product.services("dns", budget="100%", budget_burst=1000))
    with UdpClient(lab.client, vip) as one, UdpClient(lab.client, vip, connected=False) as two:
        if stalled:
            servers["a"].stall()
        ask_alike([one, two])
        check_answers([one, two])
        if stalled:
            servers["a"].resume()
            wait_until(lambda: product.figure("losers_dropped", service) > 0, what="the losers' arrival")
            assert one.receive(0.2) is None and two.receive(0.2) is None


@pytest.mark.lab(inner=True, nat=None)
@pytest.mark.parametrize("family", [0, 1], ids=["ipv4", "ipv6"])
def test_two_hosts_with_the_same_ids_and_the_same_port_get_their_own_answers(lab, servers, proxy, family):
    vip = VIP_DNS[family]
    with UdpClient(lab.client, vip, source_port=40000) as one, UdpClient(lab.inner, vip, source_port=40000) as two:
        ask_alike([one, two])
        check_answers([one, two])
        assert one.port == two.port


@FAMILIES
def test_two_questions_that_wait_under_one_port_and_id_are_both_answered(lab, servers, proxy, vip, service):
    servers["a"].stall()
    servers["b"].stall()
    with UdpClient(lab.client, vip) as client:
        client.send(query(5, "n1.example.test"))
        time.sleep(0.05)
        client.send(query(5, "n2.example.test"))
        time.sleep(0.05)
        servers["a"].resume()
        servers["b"].resume()
        answers = [parse(payload).question for payload in client.receive_all(quiet_s=0.5)]
    assert sorted(answers) == ["n1.example.test", "n2.example.test"]
    assert proxy.figure("key_busy", service) == 1
    assert proxy.figure("requests", service) == 2


@FAMILIES
def test_a_port_and_id_used_again_after_the_answer_ask_anew(lab, proxy, vip, service):
    with UdpClient(lab.client, vip) as client:
        for number in range(50):
            answer = client.ask(5, f"n{number}.example.test")
            assert answer is not None and answer.question == f"n{number}.example.test"
        assert client.receive(0.2) is None
    assert proxy.figure("won_by_first", service) + proxy.figure("won_by_hedge", service) == 50


@FAMILIES
def test_the_clients_own_retransmission_is_forwarded_and_answered_once(lab, servers, proxy, vip, service):
    servers["a"].stall()
    servers["b"].stall()
    with UdpClient(lab.client, vip) as client:
        for _ in range(3):
            client.send(query(6, "n1.example.test"))
            time.sleep(0.05)
        assert proxy.figure("retransmission", service) == 2
        servers["b"].resume()
        servers["a"].resume()
        answers = client.receive_all(quiet_s=0.5)
    # One replica wins. What it answers to the retransmissions is its own, and a client expects that.
    assert 1 <= len(answers) <= 3 and {parse(payload).id for payload in answers} == {6}
    assert proxy.figure("passed_through", service) == 2
    assert proxy.figure("requests", service) == 3


@FAMILIES
def test_letters_of_another_case_in_the_question_make_no_difference(lab, proxy, vip, service):
    """DNS 0x20: resolvers scramble the case of a question, and some servers answer in lower case."""
    with UdpClient(lab.client, vip) as client:
        for query_id, name in enumerate(("wWw.ExAmPlE.tEsT", "WWW.EXAMPLE.TEST", "www.example.test")):
            answer = client.ask(query_id, name)
            assert answer is not None and answer.answer_count == 1 and answer.question.lower() == "www.example.test"
