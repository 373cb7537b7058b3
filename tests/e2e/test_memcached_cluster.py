# SPDX-License-Identifier: Apache-2.0
"""memcached's clients, unchanged, in front of the proxy, with our cluster behind it: memcaslap and memcslap of libmemcached, and a
client of ours for what they cannot do (other commands, chosen frame ids, a history to be judged). The leader is killed under both.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator

import pytest

from bench import product
from bench.manifest import why_missing
from chaos.judgement import judge, judge_twice
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import ANNOUNCE_PORT, MEMCACHED_PORT, NodeSettings
from harness.memcached import Client, Load, read_everything, store_counters, write_history
from harness.product import wait_until

TAG = f"self{os.getpid()}4"
WRITES = ["set", "add", "replace", "cas", "delete", "touch"]


class Stand:
    def __init__(self, lab: Lab, cluster: Cluster, proxy: product.Product):
        self.lab, self.cluster, self.proxy = lab, cluster, proxy

    def client(self) -> Client:
        """Through the proxy."""
        return Client(self.lab.client, VIP_KV[0], MEMCACHED_PORT)

    def direct(self, number: int) -> Client:
        return Client(self.lab.client, self.cluster.nodes[number - 1].host.ipv4, MEMCACHED_PORT)

    def service(self) -> dict:
        return next(each for each in self.proxy.status_at_rest()["services"] if each["name"] == "cache")

    def counter(self, node: int, name: str) -> int:
        return int(self.cluster.nodes[node - 1].status()["counters"].get(name, 0))


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(TAG, replicas=3))
        data = stack.enter_context(DataDirs(TAG, "memory"))
        cluster = stack.enter_context(hedgerow_cluster(lab, data.path, NodeSettings(
            proxies=(("lab", lab.client.ipv4),), memcached=(("once_in_window", "on"),), trusted=("10.0.0.0/8",))))
        cluster.wait_ready()
        service = product.service("cache", VIP_KV[0], MEMCACHED_PORT, "memcached",
                                  {host.name: host.ipv4 for host in lab.replicas}, delay="10ms", duplicate=WRITES,
                                  cluster={"id": cluster.nodes[0].config["cluster_id"],
                                           "key": cluster.nodes[0].proxy_key("lab"), "announce_port": ANNOUNCE_PORT})
        proxy = stack.enter_context(product.Product(lab.client, TAG, [service]))
        wait_until(lambda: proxy.status()["services"][0].get("leader_source") == "announced",
                   what="the leader's announcement of its memcached address")
        yield Stand(lab, cluster, proxy)


@contextlib.contextmanager
def leader_killed(stand: Stand, after_s: float = 1.0, down_s: float = 1.5) -> Iterator[None]:
    """In the midst of the block's load; whole again when it ends."""
    stand.cluster.wait_ready()
    time.sleep(after_s)
    leader = stand.cluster.leader() or stand.cluster.wait_ready()
    leader.kill_at_once()
    time.sleep(down_s)
    leader.start()
    stand.cluster.wait_ready()
    yield


def test_every_command_goes_through_the_proxy(stand):
    with stand.client() as client:
        assert client.ask(b"set k 7 0 5\r\nhello\r\n") == b"STORED\r\n"
        assert client.ask(b"get k none\r\n") == b"VALUE k 7 5\r\nhello\r\nEND\r\n"
        unique = re.fullmatch(rb"VALUE k 7 5 (\d+)\r\nhello\r\nEND\r\n", client.ask(b"gets k\r\n"))[1]
        assert client.ask(b"cas k 0 0 1 1\r\nx\r\n") == b"EXISTS\r\n"
        assert client.ask(b"cas k 0 0 1 %s\r\nx\r\n" % unique) == b"STORED\r\n"
        assert client.ask(b"add k 0 0 1\r\ny\r\n") == b"NOT_STORED\r\n"
        assert client.ask(b"replace k 0 0 2\r\n41\r\n") == b"STORED\r\n"
        assert client.ask(b"incr k 1\r\n") == b"42\r\n"
        assert client.ask(b"touch k 60\r\n") == b"TOUCHED\r\n"
        assert client.ask(b"delete k\r\n") == b"DELETED\r\n"
        assert client.ask(b"get k\r\n") == b"END\r\n"
        assert client.ask(b"nonsense\r\n") == b"ERROR\r\n"
        assert client.ask(b"mg k v\r\n").startswith(b"CLIENT_ERROR meta commands")
        assert client.ask(b"version\r\n").startswith(b"VERSION ")


def test_a_large_value_comes_in_many_datagrams_from_any_node(stand):
    value = bytes(97 + number % 26 for number in range(32768))
    with stand.client() as client:
        assert client.ask(b"set large 3 0 32768\r\n%s\r\n" % value) == b"STORED\r\n"
        assert client.ask(b"get large\r\n") == b"VALUE large 3 32768\r\n%s\r\nEND\r\n" % value
    for number in (1, 2, 3):
        with stand.direct(number) as client:
            assert client.ask(b"get large large\r\n") == 2 * (b"VALUE large 3 32768\r\n%s\r\n" % value) + b"END\r\n"


def test_the_same_datagram_at_every_node_counts_once(stand):
    addresses = [node.host.ipv4 for node in stand.cluster.nodes]
    with stand.direct(1) as client:
        assert client.ask(b"set n 0 0 1\r\n0\r\n") == b"STORED\r\n"
        for number in range(1, 11):
            request_id = client.next_id()
            for address in addresses:
                client.send(b"incr n 1\r\n", request_id, address)  # all at once ...
            for address in addresses:  # ... and one after the other
                assert client.ask(b"incr n 1\r\n", request_id=request_id, to=address) == b"%d\r\n" % number
        assert client.ask(b"get n\r\n", to=addresses[1]) == b"VALUE n 0 2\r\n10\r\nEND\r\n"


def test_no_client_notices_that_the_leader_is_killed(stand, tmp_path):
    """No error, every acknowledged write there, once, and one order of all of it."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(stand.client()) for _ in range(4)]
        store_counters(clients[0])
        with Load(clients) as load, leader_killed(stand):
            time.sleep(1)
        assert [(each.kind, each.ending, each.answer) for each in load.errors] == []
        final = [read for number in (1, 2, 3) for read in read_everything(stack.enter_context(stand.direct(number)))]
    verdict = judge_both(write_history(tmp_path / "history.csv", load.operations),
                         write_history(tmp_path / "final.csv", final))
    assert verdict["linearizable"] and verdict["acked_lost"] == verdict["double_applied"] == 0, verdict
    assert verdict["operations"] == verdict["answered"] > 1000
    service = stand.service()
    assert service["identity_ok"], service
    # Four clients that wait for each answer may all be between two requests when the leader dies.
    assert sum(int(backend["sent"]) > 0 for backend in service["backends"]) > 1, "nobody asked the next leader"


def test_requests_of_a_leader_that_is_stopped_are_hedged(stand):
    """By the kernel, which parked a copy of each."""
    before = stand.service()["counters"]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(stand.client()) for _ in range(4)]
        store_counters(clients[0])
        with Load(clients) as load:
            time.sleep(0.5)
            leader = stand.cluster.wait_ready()
            leader.stall()
            time.sleep(0.5)
            leader.resume()
            time.sleep(0.5)
        assert [(each.kind, each.ending, each.answer) for each in load.errors] == []
    stand.cluster.wait_ready()
    service = stand.service()
    assert service["identity_ok"], service
    hedged = sum(int(service["counters"][name]) - int(before[name]) for name in ("won_by_hedge", "won_by_failover"))
    assert hedged > 0, service


def judge_both(history, final) -> dict:
    """By ours alone where porcupine could not be built; the other tests of chaos say so."""
    return judge(history, final) if why_missing("hr-porcupine") else judge_twice(history, final)


def test_a_write_that_is_done_twice_is_found_by_the_same_judges(stand, tmp_path):
    """The planted fault: increments that come again under another id, which no window can know."""
    with stand.client() as client:
        store_counters(client)
        with Load([client], careless=True) as load:
            time.sleep(0.5)
        final = read_everything(client)
    verdict = judge_both(write_history(tmp_path / "history.csv", load.operations),
                         write_history(tmp_path / "final.csv", final))
    assert verdict["double_applied"] > 0 and not verdict["linearizable"]


def test_memcaslap_misses_no_answer_while_the_leader_is_killed(stand):
    """Gets and sets, both answered. So many sockets that none has more than its rate (memcached.rate) on a quick machine:
    memcaslap's own bound (`-P`) is not kept over UDP.
    """
    config = stand.lab.client.scratch("memcaslap") / "config"
    config.write_text("key\n16 16 1\nvalue\n64 64 1\ncmd\n0 0.2\n1 0.8\n", encoding="ascii")
    log = config.parent / "log"
    child = stand.lab.client.popen(["memcaslap", "-s", f"{VIP_KV[0]}:{MEMCACHED_PORT}", "-U", "-T", "1", "-c", "32", "-t", "6s",
                                    "-F", config], log=log)
    with leader_killed(stand, after_s=2.0, down_s=1.5):
        child.wait(30)
    text = log.read_text()
    assert int(re.search(r"cmd_get: (\d+)", text).group(1)) > 1000, text
    for name in ("udp_timeout", "get_misses"):
        assert int(re.search(rf"{name}: (\d+)", text).group(1)) == 0, text
    assert stand.service()["identity_ok"]


def test_memcslap_stores_without_asking_for_an_answer(stand):
    before = sum(stand.counter(number, "memcached_unwanted_answers") for number in (1, 2, 3))
    stand.lab.client.run(["memcslap", "--udp", f"--servers={VIP_KV[0]}:{MEMCACHED_PORT}", "--test=set",
                          "--execute-number=200", "--concurrency=1"], timeout=30)
    wait_until(lambda: sum(stand.counter(number, "memcached_unwanted_answers") for number in (1, 2, 3)) - before >= 100,
               what="most of 200 sets; those that come in one burst may find a socket full")
