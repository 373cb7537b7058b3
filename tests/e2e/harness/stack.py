# SPDX-License-Identifier: Apache-2.0
"""A lab, its servers and the product on it, kept up from one test to the next where a test allows it.

Bringing everything up for each test would take most of the suite's time. A stack is put back in order between tests:
servers that were stalled or killed run again, a leader set by hand is unset, bypass is off, nobody is drained, nothing is in flight. What
cannot be put back, and every stack a test failed on, is thrown away. The conftest fixtures are the only users.
"""

import contextlib
import time

from deploy.lab import Lab
from deploy.lab.servers import DNS_SERVERS, Server, ask
from harness.echo import EchoServer
from harness.node import NodeStub
from harness.product import Product
from harness.recipes import RadiusServer, SipServer, Snmpd
from harness.servers import CoapServer, Memcached, Turnserver
from harness.unpaired import SessionServer, SinkServer
from no_harm.servers import Replica

SERVERS = {**DNS_SERVERS, "memcached": Memcached, "turnserver": Turnserver, "coap": CoapServer, "echo": EchoServer, "node": NodeStub, "sessions": SessionServer, "sink": SinkServer,
           "radius": RadiusServer, "sip": SipServer, "snmpd": Snmpd, "no-harm": Replica}


class Stack:
    def __init__(self, tag: str, lab_options: dict, server_kinds: dict[str, str]):
        self.key = (lab_options, server_kinds)
        self.lab = Lab(tag, **lab_options).up()
        self.servers: dict[str, Server] = {}
        try:
            for replica, kind in server_kinds.items():
                self.servers[replica] = SERVERS[kind](self.lab.replica(replica)).start()
        except BaseException:
            self.lab.down()
            raise
        self.product = Product(self.lab, instance=tag)

    def put_in_order(self) -> None:
        """After a test: as it was before, at rest, and the books balance."""
        for server in self.servers.values():
            if server.process.returncode is None and server.process.poll() is None:
                server.resume()
            else:
                server.start()
        if not self.product.is_up:
            return
        status = self.product.status()
        if self._take_back(status):
            status = self.product.status()
        status = self._at_rest(status)
        if status is None:
            self.product.finish()  # the next test brings it up anew
        else:
            self.product.check_identity(status)

    def _take_back(self, status: dict) -> bool:
        """What the test has ordered; False: nothing."""
        orders = []
        for service in status["services"]:
            if service["pinned"]:
                orders.append(("leader", "unset", service["name"]))
            if service["bypass"]:
                orders.append(("bypass", service["name"], "off"))
            orders += [("undrain", backend["name"], service["name"]) for backend in service["backends"] if backend["drained"]]
        for order in orders:
            self.product.admin(*order)
        return bool(orders)

    def _at_rest(self, status: dict, timeout_s: float = 1.5) -> dict | None:
        """The status in which every backend is taken for healthy again and nothing is in flight: late answers have come home."""
        deadline = time.monotonic() + timeout_s
        while True:
            services = status["services"]
            ill = [service for service in services
                   if any(backend["health"] != "healthy" for backend in service["backends"])]
            if not ill and all(int(service["in_flight"]) == 0 for service in services):
                return status
            if time.monotonic() > deadline:
                return None
            for service in ill:
                if service["profile"] == "dns":  # a probe, as the next client would send one
                    ask(self.lab.client, service["vip"], service["port"])
            time.sleep(0.02)
            status = self.product.status()

    def throw_away(self, *, check: bool) -> None:
        """`check`: the books balance and `down` leaves nothing. Without it only what must not stay goes."""
        try:
            if check:
                self.product.finish()
        finally:
            with contextlib.ExitStack() as stack:
                stack.callback(self.lab.down)
                stack.callback(self.product.sweep)
