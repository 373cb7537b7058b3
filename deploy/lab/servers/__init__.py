# SPDX-License-Identifier: Apache-2.0
"""Servers for the lab's replicas."""

from deploy.lab.servers.dns import DNS_SERVERS, Dnsmasq, Knot, Nsd, Unbound
from deploy.lab.servers.server import DnsServer, Server, ServerFailed, ask, round_trip

__all__ = ["DNS_SERVERS", "DnsServer", "Dnsmasq", "Knot", "Nsd", "Server", "ServerFailed", "Unbound", "ask", "round_trip"]
