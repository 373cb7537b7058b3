# SPDX-License-Identifier: Apache-2.0
"""A lab, its servers and the product on it, kept up from one test to the next where a test allows it.

Bringing everything up for each test would take most of the suite's time. A stack is put back in order between tests:
servers that were stalled or killed run again, a leader set by hand is unset, bypass is off, nobody is drained, nothing is in flight. What
cannot be put back, and every stack a test failed on, is thrown away. The conftest fixtures are the only users.
"""

import contextlib
import time

from deploy.lab import Lab
from deploy.lab.servers import DNS_SERVERS, OTHER_SERVERS, Server, ask
from harness.echo import EchoServer
from harness.node import NodeStub
from harness.product import Product
from harness.recipes import RadiusServer, SipServer, Snmpd
from harness.unpaired import SessionServer, SinkServer

SERVERS = {**DNS_SERVERS, **OTHER_SERVERS, "echo": EchoServer, "node": NodeStub, "sessions": SessionServer, "sink": SinkServer,
           "radius": RadiusServer, "sip": SipServer, "snmpd": Snmpd}


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
        """After a test, before its checks at rest."""
        for server in self.servers.values():
            if server.process.returncode is None and server.process.poll() is None:
                server.resume()
            else:
                server.start()
        if not self.product.is_up:
            return
        for service in self.product.status()["services"]:
            if service["pinned"]:
                self.product.admin("leader", "unset", service["name"])
            if service["bypass"]:
                self.product.admin("bypass", service["name"], "off")
            for backend in service["backends"]:
                if backend["drained"]:
                    self.product.admin("undrain", backend["name"], service["name"])
        if not self._settles():
            self.product.finish()  # the next test brings it up anew

    def _settles(self, timeout_s: float = 1.5) -> bool:
        """Every backend is taken for healthy again and nothing is in flight: late answers have come home."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            services = self.product.status()["services"]
            ill = [service for service in services
                   if any(backend["health"] != "healthy" for backend in service["backends"])]
            if not ill and all(int(service["in_flight"]) == 0 for service in services):
                return True
            for service in ill:
                if service["profile"] == "dns":  # a probe, as the next client would send one
                    ask(self.lab.client, service["vip"], service["port"])
            time.sleep(0.02)
        return False

    def throw_away(self, *, check: bool) -> None:
        """`check`: the books balance and `down` leaves nothing. Without it only what must not stay goes."""
        try:
            if check:
                self.product.finish()
        finally:
            with contextlib.ExitStack() as stack:
                stack.callback(self.lab.down)
                stack.callback(self.product.sweep)
