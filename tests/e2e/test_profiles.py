# SPDX-License-Identifier: Apache-2.0
"""Profiles between real clients and real servers, none of them ours: memcached with memcaslap and memcslap, coturn's
turnserver with its stunclient, and CoAP by the configuration that docs/profile-language.md shows.
"""

import re
import signal
import socket
import struct
import time

import pytest
import yaml

from harness.dns import UdpClient
from harness.product import PROJECT, RAW4, RAW6, wait_until
from harness.servers import frame

SO_RCVBUFFORCE = 33

# The first hedge is earned by the first request, and nobody is taken for dead while a test stalls him.
EAGER = {"delay": "10ms", "deadline": "5s", "budget": "100%", "suspect_min": "10s"}


def service(product, profile: str, port: int, six: bool = False, **more) -> dict:
    made = product.service("raw6" if six else "raw4", port=port, profile=profile, **EAGER, **more)
    made.pop("raw")
    for backend in made["backends"]:
        backend["port"] = port
    return made


# -- memcached -----------------------------------------------------------------------------------------------------

MEMCACHED = pytest.mark.servers(a="memcached", b="memcached")


def memcached(product, **more):
    return product.up(services=[service(product, "memcached", 11211, **more)])


@pytest.fixture
def cache(lab):
    with UdpClient(lab.client, RAW4, 11211) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)  # an answer of many datagrams comes at once
        yield client


def get(client: UdpClient, request_id: int, key: bytes, quiet_s: float = 0.3) -> list[bytes]:
    client.send(frame(request_id, b"get %s\r\n" % key))
    return client.receive_all(quiet_s)


@MEMCACHED
def test_a_get_is_answered_by_the_standby_while_the_leader_stalls(product, servers, cache):
    memcached(product)
    servers["a"].stall()
    assert get(cache, 1, b"whoami") == [frame(1, b"VALUE whoami 0 1\r\nb\r\nEND\r\n")]
    servers["a"].resume()
    wait_until(lambda: product.figure("losers_dropped", "raw4") == 1, what="the leader's late answer dropped")
    assert product.figure("won_by_hedge", "raw4") == 1
    assert cache.receive(0.1) is None


@MEMCACHED
def test_all_datagrams_of_the_winner_pass_and_none_of_the_losers(product, servers, cache):
    """300 kB are more than 200 datagrams, numbered in the frame header."""
    value = bytes(range(256)).replace(b"\n", b"n") * 1200
    for server in servers.values():
        server.store(b"big", value)
    memcached(product)
    servers["a"].stall()
    parts = sorted(get(cache, 2, b"big"), key=lambda part: struct.unpack_from("!H", part, 2))
    total = struct.unpack_from("!H", parts[0], 4)[0]
    assert total > 200 and len(parts) == total
    assert b"".join(part[8:] for part in parts) == b"VALUE big 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
    servers["a"].resume()
    wait_until(lambda: product.figure("losers_dropped", "raw4") == total, what="every datagram of the loser")
    assert cache.receive(0.1) is None


@MEMCACHED
def test_incr_reaches_one_server_once_however_slow_it_is(product, servers, cache):
    for server in servers.values():
        server.store(b"n", b"5")
    memcached(product, duplicate=["set", "add", "replace", "cas", "delete", "touch", "gat"])
    servers["a"].stall()
    cache.send(frame(3, b"incr n 1\r\n"))
    assert cache.receive(0.1) is None
    servers["a"].resume()
    assert cache.receive() == frame(3, b"6\r\n")
    assert product.figure("unknown_operation", "raw4") == 1
    assert product.figure("hedges", "raw4") == 0
    with UdpClient(product.lab.client, servers["b"].host.ipv4, 11211) as direct:
        assert get(direct, 4, b"n") == [frame(4, b"VALUE n 0 1\r\n5\r\nEND\r\n")], "the standby was never asked"


@MEMCACHED
def test_a_set_is_duplicated_only_where_the_operator_says_so(product, servers, cache):
    memcached(product)
    servers["a"].stall()
    cache.send(frame(5, b"set k 0 0 1\r\nx\r\n"))
    assert cache.receive(0.1) is None, "forwarded once, to the stalled leader"
    servers["a"].resume()
    assert cache.receive() == frame(5, b"STORED\r\n")
    memcached(product, duplicate=["set"])
    servers["a"].stall()
    cache.send(frame(6, b"set k 0 0 1\r\ny\r\n"))
    assert cache.receive() == frame(6, b"STORED\r\n")
    assert product.figure("won_by_hedge", "raw4") == 1


@MEMCACHED
def test_memcaslap_misses_nothing_while_the_leader_stalls(product, servers, lab):
    """Half a second of every second is stalled for three seconds, under gets and sets of a client not ours."""
    memcached(product, duplicate=["set"])
    config = lab.client.scratch("memcaslap") / "config"
    config.write_text("key\n16 16 1\nvalue\n64 64 1\ncmd\n0 0.2\n1 0.8\n", encoding="ascii")
    child = lab.client.popen(["memcaslap", "-s", f"{RAW4}:11211", "-U", "-T", "1", "-c", "4", "-t", "4s", "-F", config],
                             log=config.parent / "log")
    time.sleep(0.5)
    for _ in range(3):
        servers["a"].stall()
        time.sleep(0.5)
        servers["a"].resume()
        time.sleep(0.5)
    child.wait(30)
    text = (config.parent / "log").read_text()
    gets = int(re.search(r"cmd_get: (\d+)", text).group(1))
    assert gets > 1000, text
    assert int(re.search(r"udp_timeout: (\d+)", text).group(1)) == 0, text
    assert product.figure("won_by_hedge", "raw4") > 0


@MEMCACHED
def test_libmemcached_over_udp_asks_for_no_reply_and_is_forwarded_once(product, servers, lab):
    memcached(product, duplicate=["set"])
    lab.client.run(["memcslap", "--udp", f"--servers={RAW4}:11211", "--test=set", "--execute-number=200",
                    "--concurrency=1"], timeout=30)
    # Its values are of every size: the large ones travel in fragments.
    wait_until(lambda: product.figure("one_way", "raw4") + product.figure("fragment", "raw4") == 200, what="200 sets")
    assert product.figure("one_way", "raw4") > 20
    assert product.figure("hedges", "raw4") == 0


# -- STUN ----------------------------------------------------------------------------------------------------------

STUN = pytest.mark.servers(a="turnserver", b="turnserver")


@STUN
@pytest.mark.parametrize("vip, six", [(RAW4, False), (RAW6, True)], ids=["ipv4", "ipv6"])
def test_stunclient_learns_its_own_address_while_the_leader_stalls(product, servers, lab, vip, six):
    name, own = ("raw6", lab.client.ipv6) if six else ("raw4", lab.client.ipv4)
    product.up(services=[service(product, "stun", 3478, six)])
    servers["a"].stall()
    said = lab.client.run(["turnutils_stunclient", "-p", "3478", vip], timeout=20).stdout
    assert re.search(rf"UDP reflexive addr: \[?{re.escape(own)}\]?:\d+", said), said
    assert product.figure("won_by_hedge", name) >= 1
    assert product.won(name).keys() == {"b"}


@STUN
def test_an_allocation_is_forwarded_once(product, servers, lab):
    product.up(services=[service(product, "stun", 3478)])
    servers["a"].stall()
    with UdpClient(lab.client, RAW4, 3478) as client:
        client.send(struct.pack("!HHI", 3, 8, 0x2112A442) + b"transaction1" + struct.pack("!HHI", 0x19, 4, 17 << 24))
        time.sleep(0.05)
    assert product.figure("unknown_operation", "raw4") == 1
    assert product.figure("hedges", "raw4") == 0


# -- The worked example --------------------------------------------------------------------------------------------

COAP = pytest.mark.servers(a="coap", b="coap")


def documented() -> dict:
    """The service of docs/profile-language.md, as it stands there."""
    text = (PROJECT / "docs" / "profile-language.md").read_text(encoding="utf-8")
    return yaml.safe_load(re.search(r"```yaml\n(services:.*?)```", text, re.S).group(1))["services"][0]


@COAP
def test_the_documented_profile_hedges_coap_gets(product, servers, lab):
    product.up(services=[{**documented(), **EAGER}])
    servers["a"].stall()
    said = lab.client.run(["coap-client-notls", "-m", "get", "-B", "3", f"coap://{RAW4}/"], timeout=20)
    assert "libcoap" in said.stdout + said.stderr
    assert product.won("coap") == {"b": 1}
    servers["a"].resume()
    wait_until(lambda: product.figure("losers_dropped", "coap") == 1, what="the leader's late answer dropped")


@COAP
def test_the_documented_profile_forwards_a_coap_post_once(product, servers, lab):
    product.up(services=[{**documented(), **EAGER}])
    servers["a"].stall()
    child = lab.client.popen(["coap-client-notls", "-m", "post", "-e", "x", "-B", "3", f"coap://{RAW4}/"])
    wait_until(lambda: product.figure("unknown_operation", "coap") >= 1, what="the POST")
    lab.client.stop(child, signal.SIGKILL)
    assert product.figure("hedges", "coap") == 0


# -- NTP -----------------------------------------------------------------------------------------------------------


def test_ntp_is_refused_with_the_reason_unless_forced(product):
    refused = product.run("validate", "--config", product.write(product.config(
        services=[service(product, "ntp", 123)]), "ntp.yaml"))
    assert refused.returncode != 0
    assert "this is NTP" in refused.stderr + refused.stdout
    assert "sets its clock wrong" in refused.stderr + refused.stdout
    forced = product.write(product.config(services=[service(product, "ntp", 123, force=True)]), "ntp.yaml")
    assert product.run("validate", "--config", forced).returncode == 0
