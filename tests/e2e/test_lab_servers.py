# SPDX-License-Identifier: Apache-2.0
"""The servers of the lab answer as the end-to-end tests assume, so that only the proxy is unknown there."""

import os
import re
import signal

import pytest

from bench.replicas import BenchServer
from deploy.lab import CommandFailed, Lab
from deploy.lab.servers import DNS_SERVERS, ServerFailed, round_trip
from deploy.lab.servers.server import STOPPED, thread_states


@pytest.fixture(scope="module")
def lab():
    with Lab(f"self{os.getpid()}s", replicas=1) as lab:
        yield lab


@pytest.fixture(scope="module", params=sorted(DNS_SERVERS))
def server(request, lab):
    with DNS_SERVERS[request.param](lab.replica("a"), identity=request.param) as server:
        yield server


def dig(lab, *words: str) -> str:
    return lab.client.run(["dig", "+time=1", "+tries=1", *words], check=False).stdout


@pytest.mark.parametrize("address", ["10.77.0.11", "fd77::b"])
def test_serves_the_zone_by_udp_and_tcp(lab, server, address):
    at = f"@{address}"
    assert dig(lab, at, "+short", "www.example.test", "A").strip() == "192.0.2.1"
    assert dig(lab, at, "+short", "www.example.test", "AAAA").strip() == "2001:db8::1"
    assert dig(lab, at, "+short", "+tcp", "whoami.example.test", "TXT").strip() == f'"{server.identity}"'


@pytest.mark.parametrize("address", ["10.77.0.11", "fd77::b"])
def test_a_big_answer_is_truncated_at_512_and_fragmented_at_4096(lab, server, address):
    small = dig(lab, f"@{address}", "+ignore", "+bufsize=512", "big.example.test", "TXT")
    assert re.search(r"flags: [a-z ]*\btc\b", small)
    table = "Ip6" if ":" in address else "Ip"
    before = lab.replica("a").snmp(table)["FragCreates"]
    big = dig(lab, f"@{address}", "+ignore", "+notcp", "+bufsize=4096", "big.example.test", "TXT")
    assert not re.search(r"flags: [a-z ]*\btc\b", big)
    assert 1500 < int(re.search(r"MSG SIZE  rcvd: (\d+)", big).group(1)) < 4096
    assert lab.replica("a").snmp(table)["FragCreates"] >= before + 2


def test_a_stalled_server_is_silent_and_resumes(lab, server):
    server.stall()
    assert thread_states(server.process.pid) <= STOPPED, "when `stall` returns, not some time after"
    assert "timed out" in dig(lab, "@10.77.0.11", "www.example.test")
    server.resume()
    assert dig(lab, "@10.77.0.11", "+short", "www.example.test").strip() == "192.0.2.1"


def test_a_killed_server_leaves_a_closed_port_and_no_process(lab):
    with DNS_SERVERS["nsd"](lab.replica("a"), port=5301) as server:
        server.kill()
        assert "refused" in dig(lab, "@10.77.0.11", "-p5301", "www.example.test")
        assert not [pid for pid in lab.replica("a").pids() if pid == server.process.pid]


def test_a_server_that_ended_by_itself_is_reported_when_its_block_ends(lab):
    replica = lab.replica("a")
    for server, error in ((DNS_SERVERS["nsd"](replica, port=5303), ServerFailed),
                          (BenchServer(replica, "hr-echo-server", [f"--listen={replica.ipv4}:9003"]), CommandFailed)):
        with pytest.raises(error, match="by itself"):
            with server:
                pid = server.pid if isinstance(server, BenchServer) else server.process.pid
                os.killpg(pid, signal.SIGKILL)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_server_that_cannot_start_says_why(lab):
    with DNS_SERVERS["knot"](lab.replica("a"), port=5302), pytest.raises(ServerFailed, match="(?s)nsd.*5302"):
        DNS_SERVERS["nsd"](lab.replica("a"), port=5302, identity="second").start()


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_the_benchmarks_servers_answer_and_the_stalling_one_stalls_as_told(lab, ipv6):
    replica = lab.replica("a")
    address = replica.ipv6 if ipv6 else replica.ipv4
    listen = f"[{address}]" if ipv6 else address
    with (BenchServer(replica, "hr-echo-server", [f"--listen={listen}:9001"]),
          BenchServer(replica, "hr-echo-server", [f"--listen={listen}:9002", "--service=2ms", "--fraction=0.02", "--stall=300ms"])):
        assert round_trip(lab.client, address, 9001, b"any bytes") == b"any bytes"
        well, ill = (number.to_bytes(4, "little") for number in (50, 1))  # id % 100 < 2 stalls at first sight
        assert round_trip(lab.client, address, 9002, well, timeout_s=0.2) == well
        assert round_trip(lab.client, address, 9002, ill, timeout_s=0.2) is None
