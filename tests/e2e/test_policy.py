# SPDX-License-Identifier: Apache-2.0
"""Policy on real traffic: the delay that follows the answer times, draining, dry runs, and a node that asks for no hedges."""

import contextlib
import os
import secrets
import signal
import time

import pytest

from chaos.systems import PROXY_NAME, kv_service
from cluster.client import hkv
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import SERVE_PORT, NodeSettings
from harness.dns import UdpClient, parse, query, who_answers
from harness.product import DNS4, METRICS, VIP4, Product, wait_until

TAG = f"self{os.getpid()}7"


def ask(client: UdpClient, times: int, first: int = 1) -> None:
    for number in range(first, first + times):
        assert client.ask(number, "www.example.test") is not None


def backend_of(product: Product, name: str, service: str = DNS4) -> dict:
    return next(backend for backend in product.service_status(service)["backends"] if backend["name"] == name)


# -- the delay ---------------------------------------------------------------------------------------------


@pytest.mark.own
def test_the_delay_follows_the_answer_times_once_there_are_enough(lab, servers, product):
    services = product.services("dns", delay="500ms", adaptive={"floor": "3ms", "cap": "900ms"})
    proxy = product.up(services=services, metrics=METRICS)
    assert int(proxy.service_status()["delay_ns"]) == 500_000_000 and proxy.service_status()["adaptive"]
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 10)
        time.sleep(1.5)
        assert int(proxy.service_status()["delay_ns"]) == 500_000_000, "ten answers say nothing"
        ask(client, 40, first=11)
    # A server on this machine answers within the floor, unless the machine is very busy.
    delay_ns = wait_until(lambda: (now := int(proxy.service_status()["delay_ns"])) < 500_000_000 and now,
                          what="a delay of its own")
    assert delay_ns >= 3_000_000
    assert proxy.metric("hedgerow_hedge_delay_seconds", service=DNS4) == pytest.approx(delay_ns / 1e9, rel=0.5)
    assert ", adaptive" in proxy.admin("status").stdout
    planned = proxy.run("plan", "--config", proxy.write(proxy.config(services=services))).stdout
    assert "hedge after 500ms at first, then adaptive between 3ms and 900ms" in planned


# -- two copies at once --------------------------------------------------------------------------------------


@pytest.mark.own
def test_two_copies_leave_at_once_while_servers_are_idle_and_each_client_gets_one_answer(lab, servers, product):
    services = product.services("dns", delay="1s", suspect_min="2s", suspect_max="2s", idle_copies="30%")
    proxy = product.up(services=services, metrics=METRICS)
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 50)
        assert proxy.figure("idle_copies") == 50 == proxy.figure("extra_sends")
        servers["a"].stall()
        ask(client, 20, first=51)
        assert proxy.fired() == 0, "no request has waited for its delay"
        servers["a"].resume()
        wait_until(lambda: proxy.figure("losers_dropped") == 70, what="the losers' answers")
        assert client.receive_all(quiet_s=0.1) == [], "each answer once"
    wait_until(lambda: sum(int(each["in_flight"]) for each in proxy.service_status()["backends"]) == 0, what="that all have answered")
    assert proxy.metric("hedgerow_backend_in_flight", service=DNS4, backend="a") == 0
    assert proxy.service_status()["identity_ok"]
    assert "two at once up to a load of 30%" in proxy.admin("status").stdout
    proxy.admin("dry-run", DNS4, "on")
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 10)
    assert proxy.figure("would_copy") == 10 and proxy.figure("idle_copies") == 70


@pytest.mark.own
def test_a_backend_has_the_room_that_the_operator_says(lab, servers, product):
    settings = {"delay": "3s", "suspect_min": "3s", "suspect_max": "3s", "deadline": "4s", "idle_copies": "30%"}
    proxy = product.up(services=product.services("dns", **settings, max_in_flight=10))

    def room() -> set[int]:
        return {int(each["slow_at"]) for each in proxy.service_status()["backends"]}

    def send(first: int, last: int) -> int:
        """The copies so far."""
        for number in range(first, last + 1):
            client.send(query(number, "www.example.test"))
        wait_until(lambda: proxy.figure("requests") >= last, what="the requests")
        return proxy.figure("idle_copies")

    wait_until(lambda: room() == {10}, what="the daemon's first look")
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        copied = send(1, 40)  # the load is an average of some sixteen requests
        assert 3 <= copied < 40
        assert send(41, 60) == copied, "40 and more of 10 are in flight at the stalled leader"
    servers["a"].resume()
    proxy.write(proxy.config(services=product.services("dns", **settings, max_in_flight=1000)))
    proxy.admin("reload")
    wait_until(lambda: room() == {1000}, what="the next look")


# -- shares ------------------------------------------------------------------------------------------------


def shared(product, how: str, *weights: int) -> list[dict]:
    services = product.services("dns", delay="1s", suspect_min="300ms", suspect_max="300ms", prefer=how)
    for service in services:
        for backend, weight in zip(service["backends"], weights, strict=False):
            backend["weight"] = weight
    return services


def sent(proxy: Product) -> list[int]:
    return [int(backend["sent"]) for backend in proxy.service_status()["backends"]]


def test_each_backend_gets_its_weight_and_a_dead_ones_share_goes_to_the_others(lab, servers, product):
    proxy = product.up(services=shared(product, "each", 3, 1), metrics=METRICS)
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 400)
        first, second = sent(proxy)
        assert first + second == 400 and 250 <= first <= 350
        assert "requests to  each, by weight: a 75%, b 25%" in proxy.admin("status").stdout
        assert [proxy.metric("hedgerow_requests_to", service=DNS4, backend=name) for name in "ab"] == [0.75, 0.25]
        servers["a"].stall()
        ask(client, 40)
        before = sent(proxy)[1]
        ask(client, 60)
        assert sent(proxy)[1] - before >= 58, "requests, but for probes, go to what answers"
    servers["a"].resume()


def test_a_pin_holds_under_shares(lab, servers, product):
    proxy = product.up(services=shared(product, "each", 1, 0))
    proxy.admin("leader", "set", DNS4, "b")
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 40)
    assert sent(proxy) == [0, 40] and proxy.service_status()["requests_to"] == "b"
    proxy.admin("leader", "unset", DNS4)
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 10)
    assert sent(proxy) == [10, 40]


def test_a_client_has_its_backend(lab, servers, product):
    proxy = product.up(services=shared(product, "source"))
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 50)
    assert sorted(sent(proxy)) == [0, 50], "all are this user's"
    proxy.write(proxy.config(services=shared(product, "each", 1, 1)))
    proxy.admin("reload")
    with UdpClient(lab.client, VIP4) as client:
        ask(client, 50)
    assert min(sent(proxy)) >= 8, "a reload changes it"


# -- draining ----------------------------------------------------------------------------------------------


@pytest.fixture(name="calm")
def fixture_calm(product) -> Product:
    """Neither hedges around nor suspects a backend that a busy machine holds up: a drained one stands in for a suspect one."""
    return product.up(services=product.services("dns", delay="1s", suspect_min="2s", suspect_max="2s"))


def test_a_drained_leader_gets_nothing_new_until_it_is_undrained(lab, servers, calm):
    assert who_answers(lab.client, VIP4) == "a"
    assert "requests go to b" in calm.admin("drain", "a").stdout
    sent = int(backend_of(calm, "a")["sent"])
    for _ in range(5):
        assert who_answers(lab.client, VIP4) == "b"
    status = calm.service_status()
    assert status["leader"] == "a" and status["requests_to"] == "b"
    assert backend_of(calm, "a")["drained"] and int(backend_of(calm, "a")["sent"]) == sent
    assert "requests to  b, while the leader is drained" in calm.admin("status").stdout
    calm.admin("undrain", "a")
    assert who_answers(lab.client, VIP4) == "a" and not backend_of(calm, "a")["drained"]


def test_a_drain_of_one_service_leaves_the_others_alone(lab, servers, calm):
    reply = calm.ask("drain", "a", DNS4)
    assert [(each["service"], each["requests_to"]) for each in reply["backends"]] == [(DNS4, "b")]
    assert who_answers(lab.client, VIP4) == "b" and calm.service_status("dns6")["requests_to"] == "a"
    both = calm.ask("undrain", "a")
    assert [each["drained"] for each in both["backends"]] == [False, False]


def test_a_drained_backend_is_the_last_resort(lab, servers, proxy):
    proxy.admin("drain", "b")
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    servers["a"].resume()


@pytest.mark.parametrize("words, named", [
    (["drain", "nosuch"], "nosuch"), (["drain", "a", "nosuch"], "nosuch"), (["drain"], "backend"),
    (["dry-run", "nosuch", "on"], "nosuch"), (["dry-run", DNS4, "perhaps"], "perhaps"),
])
def test_a_command_about_something_unknown_fails_and_names_it(proxy, words, named):
    done = proxy.admin(*words, check=False)
    assert done.returncode != 0 and named in done.stdout + done.stderr


@pytest.mark.own
def test_a_drained_backend_stays_drained_when_the_daemon_is_killed(lab, servers, calm):
    calm.admin("drain", "a")
    pid = calm.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd") or not os.listdir(f"/proc/{pid}/fd"),
               what="the daemon's end")
    for _ in range(3):
        assert who_answers(lab.client, VIP4) == "b"
    calm.clean()
    calm.is_up = False
    calm.check_nothing_left()


# -- dry runs ----------------------------------------------------------------------------------------------


def test_a_dry_run_counts_what_it_would_send_and_sends_nothing(lab, servers, product):
    proxy = product.up(services=product.services("dns", budget="100%", dry_run="on"))
    assert proxy.service_status()["dry_run"] and "DRY RUN" in proxy.admin("status").stdout
    sent = int(backend_of(proxy, "b")["sent"])
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        for number in range(3):
            client.send(query(number, "www.example.test"))
            time.sleep(0.05)
        assert client.receive(timeout_s=0.2) is None, "nobody else was asked"
        servers["a"].resume()
        answered = {parse(client.receive()).id for _ in range(3)}
    assert answered == {0, 1, 2}
    assert proxy.figure("hedges") == proxy.figure("failover_sends") == 0
    # The first falls due while its backend is taken for slow, the later ones when it is silent.
    assert proxy.figure("would_hedge") >= 1 and proxy.figure("would_hedge") + proxy.figure("would_fail_over") >= 3
    assert int(backend_of(proxy, "b")["sent"]) == sent


def test_a_dry_run_ends_while_requests_flow(lab, servers, product):
    proxy = product.up(services=product.services("dns", budget="100%", dry_run="on"))
    assert proxy.ask("dry-run", DNS4, "off") == {"service": DNS4, "dry_run": False}
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    servers["a"].resume()
    proxy.admin("dry-run", DNS4, "on")
    assert proxy.service_status()["dry_run"]


# -- a store behind it -------------------------------------------------------------------------------------


@contextlib.contextmanager
def store(waiting_max: int, **service):
    """Three real nodes and the proxy, which knows their leader. Yields lab, cluster and proxy."""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(TAG, replicas=3))
        data = stack.enter_context(DataDirs(TAG, "disk"))
        settings = NodeSettings(durability="disk", proxies=((PROXY_NAME, lab.client.ipv4),), waiting_max=waiting_max)
        cluster = stack.enter_context(hedgerow_cluster(lab, data.path, settings))
        cluster.wait_ready()
        proxy = Product(lab, instance=TAG)
        stack.callback(proxy.sweep)
        proxy.up(services=[kv_service(lab, cluster, deadline="3s", **service)])
        wait_until(lambda: proxy.service_status("kv")["leader_source"] == "announced", what="an announcement")
        yield lab, cluster, proxy
        proxy.finish()


def test_a_busy_node_asks_for_no_hedges_and_is_heard():
    with store(waiting_max=16) as (lab, cluster, proxy):
        with hkv.Client(VIP_KV[0], SERVE_PORT, 5.0, lab.client.socket()) as opener:
            opener.open()
            session, token = opener.session, opener.token
        burst = [hkv.encode_request(hkv.WRITE, 3_000_000, session, seq, 1, operations=[hkv.put_operation(b"k", b"v")],
                                    token=token)
                 for seq in range(1, 201)]
        with UdpClient(lab.client, VIP_KV[0], SERVE_PORT) as client:
            for datagram in burst:
                client.send(datagram)
            answers = [hkv.parse_answer(datagram) for datagram in client.receive_all(quiet_s=1.0)]
        refused = [answer for answer in answers if hkv.STATUSES[answer.status] == "OVERLOADED"]
        assert refused and all(answer.hint == 0xffffffff for answer in refused), "by a node, which says so"
        assert proxy.figure("pushbacks", "kv") >= len(refused)
        # Refusals that say so are the last: they are not sent on to others, who would only ask the same leader.
        assert proxy.figure("nacked", "kv") == len(refused)
        leader = cluster.leader()
        assert leader.status()["counters"]["hkv_pushbacks.never"] >= len(refused)
        wait_until(lambda: not proxy.service_status("kv")["pushed_back"], what="the end of it")
        with hkv.Client(VIP_KV[0], SERVE_PORT, 5.0, lab.client.socket()) as client:
            client.open()
            client.put(b"after", secrets.token_bytes(4))


def test_draining_a_clusters_leader_says_what_else_to_do():
    # On a busy machine the others may be late, and are not suspect for it: beside a suspect one the drained one is asked.
    with store(waiting_max=16_384, delay="1s", suspect_min="3s", suspect_max="3s") as (lab, cluster, proxy):
        leader = cluster.leader()
        name = leader.host.name
        said = proxy.admin("drain", name).stdout
        assert "hedgerow-node transfer" in said and "leads its cluster" in said
        with hkv.Client(VIP_KV[0], SERVE_PORT, 5.0, lab.client.socket()) as client:
            client.open()
            sent = int(backend_of(proxy, name, "kv")["sent"])
            for number in range(10):
                client.put(b"k", str(number).encode())
            assert client.get(b"k") == b"9", "the others send it on"
        assert int(backend_of(proxy, name, "kv")["sent"]) == sent
        assert leader.transfer(leader.number % 3 + 1)
        wait_until(lambda: proxy.service_status("kv")["leader"] == cluster.nodes[leader.number % 3].host.name,
                   what="a new leader")
        assert "leads its cluster" not in proxy.admin("drain", name).stdout
