# SPDX-License-Identifier: Apache-2.0
"""DNS servers for the lab's replicas, one small file each, in the foreground with a config made on the spot."""

from deploy.lab.servers.dnsmasq import Dnsmasq
from deploy.lab.servers.knot import Knot
from deploy.lab.servers.nsd import Nsd
from deploy.lab.servers.server import DnsServer, Server, ServerFailed, ask, round_trip
from deploy.lab.servers.unbound import Unbound

DNS_SERVERS = {"nsd": Nsd, "knot": Knot, "unbound": Unbound, "dnsmasq": Dnsmasq}

__all__ = ["DNS_SERVERS", "DnsServer", "Dnsmasq", "Knot", "Nsd", "Server", "ServerFailed", "Unbound", "ask", "round_trip"]
