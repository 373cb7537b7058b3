# SPDX-License-Identifier: Apache-2.0
"""A leader that answers some names and leaves others, which the standby answers: as a resolver without its uplink does. A rule on its host
drops the queries whose first label has three letters."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from harness.dns import UdpClient, query, who_answers
from harness.product import DNS4, METRICS, VIP4, wait_until

pytestmark = pytest.mark.own
KNOWN, LEFT = "n5.example.test", "n55.example.test"
LABEL = "@th,160,8"  # the length of a question's first label, behind the headers of UDP and DNS


@contextlib.contextmanager
def leaves_names(host) -> Iterator[None]:
    host.run(["nft", "-f", "-"], stdin=f"""table inet half {{
        chain in {{
            type filter hook input priority 0
            udp dport 53 {LABEL} 3 drop
        }}
    }}
""")
    try:
        yield
    finally:
        host.run(["nft", "delete", "table", "inet", "half"])


def unanswered(host, seconds: float, rate: float, names: tuple[str, ...]) -> tuple[int, list[float]]:
    """Queries in turn at a rate: how many were asked, and when those were that got no answer."""
    with UdpClient(host, VIP4) as client:
        asked: dict[int, float] = {}
        began = time.monotonic()
        while (at := len(asked) / rate) < seconds:
            while (rest := began + at - time.monotonic()) > 0:
                if answer := client.receive(max(rest, 0.0005)):
                    asked[int.from_bytes(answer[:2], "big") - 1] = 0
            number = len(asked)
            asked[number] = at + 1e-6
            client.send(query(number + 1, names[number % len(names)]))
        for answer in client.receive_all(quiet_s=1.0):
            asked[int.from_bytes(answer[:2], "big") - 1] = 0
    return len(asked), [sent for sent in asked.values() if sent]


def health(product) -> str:
    return product.service_status()["backends"][0]["health"]


def test_names_that_the_leader_leaves_come_from_the_standby_within_a_second(lab, servers, product):
    product.up()
    unanswered(lab.client, 2, 60, (KNOWN,))
    with leaves_names(lab.replica("a")):
        asked, lost = unanswered(lab.client, 5, 60, (LEFT, LEFT, KNOWN))
        assert [at for at in lost if at > 1] == [] and len(lost) <= 6, (asked, lost)
        assert health(product) == "impaired"
        assert any("leaves unanswered" in problem for problem in product.status()["problems"])


def test_an_impaired_server_that_dies_is_down_and_comes_back_impaired(lab, servers, product):
    product.up()
    with leaves_names(lab.replica("a")):
        unanswered(lab.client, 3, 60, (LEFT, LEFT, KNOWN))
        assert health(product) == "impaired"
        servers["a"].stall()
        assert unanswered(lab.client, 15, 60, (LEFT, LEFT, KNOWN))[1] == []
        assert health(product) == "down"
        servers["a"].resume()
        unanswered(lab.client, 6, 60, (LEFT, LEFT, KNOWN))
        assert health(product) == "impaired"


def test_it_is_found_where_a_request_comes_each_half_second(lab, servers, product):
    product.up()
    states = []
    with leaves_names(lab.replica("a")):
        for _ in range(30):
            unanswered(lab.client, 1, 4, (LEFT, KNOWN))
            states.append(health(product))
    assert states[-1] == "impaired", states
    assert len(set(states[states.index("impaired"):])) == 1, states


def test_a_check_finds_a_half_failure_that_no_request_shows_and_the_daemons_word_ends_with_it(lab, servers, product):
    product.up(services=product.services("dns", check={"rise": 2, "fall": 2, "name": LEFT}), metrics=METRICS)
    wait_until(lambda: product.metric("hedgerow_checks_total", service=DNS4, backend="a", result="answered") >= 2, what="answers")
    assert product.figure("requests") == 0
    with leaves_names(lab.replica("a")):
        wait_until(lambda: health(product) == "impaired", what="a failed check", timeout_s=8)
        assert any("leader a fails its check" in problem for problem in product.status()["problems"])
        answered = [who_answers(lab.client, VIP4) for _ in range(5)]
        # One in 64 goes to the impaired one too, as a probe, which knows this name and may be the first to answer.
        assert answered.count("a") <= product.figure("probes") <= 1, answered
        checked = product.run("check", DNS4, "--socket", product.socket)
        assert checked.returncode == 1 and "the leader a fails" in checked.stdout, checked.stdout
        pid = product.pid
        os.kill(pid, signal.SIGSTOP)  # as if it were away
        try:
            time.sleep(3.2)
            with UdpClient(lab.client, VIP4) as client:
                assert client.ask(1, KNOWN) is not None
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: health(product) == "impaired", what="the daemon's next looks")
    wait_until(lambda: health(product) == "healthy", what="its recovery", timeout_s=8)
    assert who_answers(lab.client, VIP4) == "a"
