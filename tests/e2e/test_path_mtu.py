# SPDX-License-Identifier: Apache-2.0
"""A router on the way to a backend that takes smaller packets than the uplink: its errors reach the client under the VIP's name, and
its kernel sends smaller packets to the VIP from then on, as to the backend itself (RFC 1191, RFC 8201). Asked directly: the control."""

import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from harness.product import RAW4, RAW6, wait_until

MTU_BYTES = 1280
FAR = {4: "10.79.0.11", 6: "fd79::b"}


@pytest.fixture
def far(lab) -> Iterator[None]:
    """A namespace behind replica a, over a link of a small MTU, whose server answers every datagram with its first bytes."""
    router = lab.replica("a")
    name = f"{lab.client.netns}-far"
    with contextlib.ExitStack() as stack:
        lab.client.run(["ip", "netns", "add", name])
        stack.callback(lab.client.run, ["ip", "netns", "del", name])
        router.run(["ip", "link", "add", "far0", "mtu", str(MTU_BYTES), "type", "veth", "peer", "name", "eth0", "mtu", str(MTU_BYTES),
                    "netns", name])
        stack.callback(router.run, ["ip", "link", "del", "far0"], check=False)
        router.sysctl("net/ipv4/ip_forward", "1")
        router.sysctl("net/ipv6/conf/all/forwarding", "1")
        for words in (["addr", "add", "10.79.0.1/24", "dev", "far0"], ["addr", "add", "fd79::1/64", "dev", "far0", "nodad"],
                      ["link", "set", "far0", "up"]):
            router.run(["ip", *words])
        for words in (["addr", "add", f"{FAR[4]}/24", "dev", "eth0"], ["addr", "add", f"{FAR[6]}/64", "dev", "eth0", "nodad"],
                      ["link", "set", "lo", "up"], ["link", "set", "eth0", "up"], ["route", "add", "default", "via", "10.79.0.1"],
                      ["-6", "route", "add", "default", "via", "fd79::1"]):
            lab.client.run(["ip", "-n", name, *words])
        for words in (["10.79.0.0/24", "via", router.ipv4], ["fd79::/64", "via", router.ipv6]):
            lab.client.run(["ip", "route", "add", *words])
            stack.callback(lab.client.run, ["ip", "route", "del", *words], check=False)
        server = lab.client.popen(["ip", "netns", "exec", name, "/usr/bin/python3", "-c", _ECHO, *FAR.values()])
        stack.callback(lab.client.stop, server)
        for address in FAR.values():
            wait_until(lambda address=address: ask(lab, address, b"is it there?") == b"is it there?", what="the server")
        yield


_ECHO = """
import socket, sys, threading
def serve(address):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 4000))
    while True:
        request, source = s.recvfrom(9000)
        s.sendto(request[:50], source)
for address in sys.argv[1:]: threading.Thread(target=serve, args=(address,)).start()
"""


def ask(lab, address: str, request: bytes) -> bytes | None:
    with lab.client.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        client.settimeout(0.3)
        client.connect((address, 4000))
        with contextlib.suppress(OSError):
            client.send(request)
            return client.recv(100)
    return None


def sends(lab, address: str) -> list[str]:
    """What becomes of four datagrams of 1,400 bytes."""
    outcomes = []
    with lab.client.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        client.settimeout(2)
        client.connect((address, 4000))
        for number in range(4):
            try:
                client.send(b"%04d" % number + b"x" * 1396)
                outcomes.append(client.recv(100)[:4].decode())
            except OSError as error:
                outcomes.append(errno.errorcode.get(error.errno, "silence"))
    return outcomes


@pytest.mark.own
@pytest.mark.parametrize("family", [4, 6], ids=["ipv4", "ipv6"])
def test_a_routers_too_big_reaches_the_client_and_the_next_datagrams_arrive(lab, servers, far, product, family):
    product.up(services=[dict(product.service(f"raw{family}"), primary="far",
                              backends=[{"name": "far", "address": FAR[family], "port": 4000}])])
    learns = ["EMSGSIZE", "0001", "0002", "0003"]
    assert sends(lab, FAR[family]) == learns, "the control"
    assert sends(lab, RAW6 if family == 6 else RAW4) == learns
    assert product.figure("icmp_translated", f"raw{family}") == 1
    product.finish()
