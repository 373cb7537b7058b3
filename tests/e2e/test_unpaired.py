# SPDX-License-Identifier: Apache-2.0
"""Protocols without request and reply: one-way lines reach one server once, and a client's flow stays with its server."""

import time

import pytest

from harness.dns import UdpClient
from harness.product import RAW4, RAW6, answer_every_port_unreachable, wait_until

FAMILIES = pytest.mark.parametrize("vip, service", [(RAW4, "raw4"), (RAW6, "raw6")], ids=["ipv4", "ipv6"])
LINES = 100
NEIGHBOUR_TIMES = {"base_reachable_time_ms": "1000", "delay_first_probe_time": "1"}


def up(product, profile: str, **changes):
    services = product.services("raw", profile=profile, **changes)
    for service in services:
        del service["raw"]
    return product.up(services=services)


# -- One way -------------------------------------------------------------------------------------------------------

SINKS = pytest.mark.servers(a="sink", b="sink")


def send_lines(client: UdpClient, name: str, count: int = LINES, pause_s: float = 0.002) -> None:
    for number in range(count):
        client.send(f"{name} {number}:1|c".encode())
        time.sleep(pause_s)


@SINKS
@FAMILIES
def test_one_way_lines_reach_the_leader_once(product, servers, lab, vip, service):
    up(product, "one-way", delay="1ms", budget="100%", suspect_min="1ms")
    with UdpClient(lab.client, vip, 4000) as client:
        send_lines(client, service)
    wait_until(lambda: len(servers["a"].lines(f"{service} ")) == LINES, what="every line at the leader")
    assert servers["b"].lines(f"{service} ") == []
    assert product.figure("one_way", service) == LINES
    assert product.figure("unanswered", service) == product.figure("extra_sends", service) == 0
    assert product.service_status(service)["state"] == "healthy"


@SINKS
def test_the_same_lines_behind_a_profile_with_answers_are_doubled(product, servers, lab):
    """The control: what the lines would meet without the profile."""
    product.up(services=product.services("raw", delay="1ms", budget="100%", suspect_min="1ms", deadline="50ms"))
    with UdpClient(lab.client, RAW4, 4000) as client:
        send_lines(client, "twice")
    wait_until(lambda: servers["b"].lines("twice "), what="lines at the standby")
    assert product.figure("extra_sends", "raw4") > 0


@SINKS
@pytest.mark.parametrize("port", [8125, 514])
def test_a_port_of_one_way_lines_needs_no_key(product, servers, lab, port):
    """statsd and syslog behind `raw`, by a user that does not know of `one_way`."""
    service = product.service("raw4", port=port, delay="1ms", budget="100%", suspect_min="1ms")
    product.up(services=[service])
    name = f"port{port}"
    with UdpClient(lab.client, RAW4, port) as client:
        send_lines(client, name)
    wait_until(lambda: len(servers["a"].lines(f"{name} ")) == LINES, what="every line at the leader")
    assert servers["b"].lines(f"{name} ") == []
    assert product.figure("one_way", "raw4") == LINES
    assert product.figure("extra_sends", "raw4") == 0


@SINKS
@FAMILIES
def test_a_dead_leaders_lines_go_to_the_standby_and_come_back(product, servers, lab, vip, service):
    """Lost is what was sent before its host's first error came; a client that sends to it directly loses all."""
    answer_every_port_unreachable(*lab.replicas)
    up(product, "one-way", election_timeout="100ms")
    servers["a"].kill()
    address = lab.replica("a").ipv6 if vip == RAW6 else lab.replica("a").ipv4
    with UdpClient(lab.client, vip, 4000) as client, UdpClient(lab.client, address, 4000, connected=False) as direct:
        send_lines(client, f"dead-{service}")
        send_lines(direct, f"direct-{service}", 20)
    wait_until(lambda: len(servers["b"].lines(f"dead-{service} ")) >= LINES - 3, what="the lines at the standby")
    assert product.figure("nacks_swallowed", service) > 0
    servers["a"].start()
    assert servers["a"].lines(f"direct-{service} ") == []
    with UdpClient(lab.client, vip, 4000) as client:
        wait_until(lambda: send_lines(client, f"back-{service}", 1) or servers["a"].lines(f"back-{service} "),
                   what="the lines at the leader again")


@SINKS
@FAMILIES
def test_lines_to_a_host_that_is_gone_reach_the_standby_until_it_answers(product, servers, lab, vip, service):
    """The kernel's neighbour entry has failed, and the daemon has it probed: no line is spent on that."""
    up(product, "one-way")
    of = "ipv6" if vip == RAW6 else "ipv4"
    kept = {name: lab.client.run(["sysctl", "-n", f"net.{of}.neigh.eth0.{name}"]).stdout.strip() for name in NEIGHBOUR_TIMES}
    for name, value in NEIGHBOUR_TIMES.items():
        lab.client.run(["sysctl", "-qw", f"net.{of}.neigh.eth0.{name}={value}"])
    lost = "no host answers for " + (lab.replica("a").ipv6 if vip == RAW6 else lab.replica("a").ipv4)
    try:
        with UdpClient(lab.client, vip, 4000) as client:
            send_lines(client, f"before-{service}")
            lab.replica("a").run(["ip", "link", "set", "eth0", "down"])
            wait_until(lambda: send_lines(client, "lost", 1) or any(lost in problem for problem in product.status()["problems"]),
                       timeout_s=40, what="the failed entry")
            time.sleep(0.5)  # a route that has just gone may be one that is being replaced
            send_lines(client, f"gone-{service}", 50, 0.1)
            assert len(servers["b"].lines(f"gone-{service} ")) == 50
            lab.replica("a").run(["ip", "link", "set", "eth0", "up"])
            if vip == RAW6:
                lab.replica("a").run(["ip", "addr", "replace", f"{lab.replica('a').ipv6}/64", "dev", "eth0", "nodad"])
            wait_until(lambda: send_lines(client, f"back-{service}", 1) or servers["a"].lines(f"back-{service} "),
                       timeout_s=40, what="the lines at the leader again")
            wait_until(lambda: not any(lost in problem for problem in product.status()["problems"]), what="the problem's end")
    finally:
        lab.replica("a").run(["ip", "link", "set", "eth0", "up"])
        for name, value in kept.items():
            lab.client.run(["sysctl", "-qw", f"net.{of}.neigh.eth0.{name}={value}"])


# -- Flows ---------------------------------------------------------------------------------------------------------

SESSIONS = pytest.mark.servers(a="sessions", b="sessions")


def say(client: UdpClient, what: bytes, within_s: float = 5.0) -> str | None:
    client.send(what)
    answer = client.receive(within_s)
    return None if answer is None else answer.decode()


@SESSIONS
@FAMILIES
def test_a_flow_stays_with_its_server_when_another_leads(product, servers, lab, vip, service):
    up(product, "flow")
    with UdpClient(lab.client, vip, 4000) as old, UdpClient(lab.client, vip, 4000) as new:
        assert say(old, b"open") == "a 0"
        product.admin("leader", "set", service, "b")
        assert say(new, b"open") == "b 0"
        assert [say(old, b"data") for _ in range(3)] == ["a 1", "a 2", "a 3"]
        assert say(new, b"data") == "b 1"
    assert product.figure("flows", service) == 2
    assert product.figure("flows_moved", service) == 0
    assert product.figure("hedges", service) == 0


@SESSIONS
def test_a_session_behind_a_profile_with_answers_meets_a_server_that_does_not_know_it(product, servers, lab):
    """The control: with `raw` the leader's change alone breaks the session."""
    product.up(services=product.services("raw", delay="1s"))
    with UdpClient(lab.client, RAW4, 4000) as client:
        assert say(client, b"open") == "a 0"
        product.admin("leader", "set", "raw4", "b")
        assert say(client, b"data") == "b unknown"


@SESSIONS
@FAMILIES
@pytest.mark.parametrize("how", ["kill", "stall"])
def test_a_dead_servers_flow_goes_on_with_the_next_one(product, servers, lab, vip, service, how):
    answer_every_port_unreachable(*lab.replicas)
    up(product, "flow", suspect_min="100ms", election_timeout="100ms")
    with UdpClient(lab.client, vip, 4000) as client:
        assert say(client, b"open") == "a 0"
        getattr(servers["a"], how)()

        def moved() -> bool:
            # As often as a client asks that is not answered.
            return say(client, b"data", 0.3) == "b unknown"

        wait_until(moved, what="the flow at the standby")
        client.receive_all(0.1)  # what came late to a former question
        assert say(client, b"open") == "b 0"
        if how == "stall":
            servers["a"].resume()  # what it held back is no part of the client's session any more
            wait_until(lambda: product.figure("losers_dropped", service) > 0, what="the former server's answers dropped")
        assert say(client, b"data") == "b 1"
    assert product.figure("flows_moved", service) == 1


@SESSIONS
@FAMILIES
def test_what_needs_no_answer_moves_no_flow(product, servers, lab, vip, service):
    """An upload, keep-alives that are all the same, and a last word before a pause, beside a server that is silent meanwhile."""
    up(product, "flow", suspect_min="100ms", election_timeout="100ms")
    with UdpClient(lab.client, vip, 4000) as upload, UdpClient(lab.client, vip, 4000) as idle:
        assert say(upload, b"open") == say(idle, b"open") == "a 0"
        for number in range(60):
            upload.send(f"quiet {number}".encode())
            time.sleep(0.05)
        for number in range(3):
            idle.send(b"quiet")
            time.sleep(3.2)
        assert say(upload, b"data") == "a 61"
        assert say(idle, b"data") == "a 4"
    assert product.figure("flows_moved", service) == 0
    assert product.service_status(service)["state"] == "healthy"


@SESSIONS
@FAMILIES
def test_an_upload_goes_on_elsewhere_when_its_clients_other_flow_finds_its_server_frozen(product, servers, lab, vip, service):
    up(product, "flow", suspect_min="200ms", election_timeout="200ms")
    with UdpClient(lab.client, vip, 4000) as upload, UdpClient(lab.client, vip, 4000) as asking:
        assert say(upload, b"open") == say(asking, b"open") == "a 0"
        servers["a"].stall()
        number = 0

        def moved() -> bool:
            nonlocal number
            number += 1
            upload.send(f"quiet {number}".encode())
            return say(asking, b"data", 0.3) == "b unknown"

        wait_until(moved, what="the asking flow at the standby")
        upload.send(b"quiet last")
        assert product.figure("flows_moved", service) == 2


@FAMILIES
def test_a_client_that_only_receives_hears_its_server_under_the_vip(product, lab, vip, service):
    """The client speaks once; its socket is connected to nothing, so only the flow says that the datagrams are the VIP's."""
    up(product, "flow", flow_timeout="2s")
    with UdpClient(lab.replica("a"), vip, 4000, source_port=4000) as server, \
            UdpClient(lab.client, vip, 4000, connected=False) as client:
        client.send(b"hello")
        server.socket.settimeout(5)
        _, peer = server.socket.recvfrom(100)
        for number in range(12):  # 6 s, three times flow_timeout
            time.sleep(0.5)
            server.socket.sendto(b"%d" % number, peer)
            assert client.receive() == b"%d" % number
    assert product.figure("replies", service) == 12
