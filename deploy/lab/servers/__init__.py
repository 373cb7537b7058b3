# SPDX-License-Identifier: Apache-2.0
"""Real servers for the lab's replicas, one small file each, in the foreground with a config made on the spot."""

from deploy.lab.servers.coap import CoapServer
from deploy.lab.servers.dnsmasq import Dnsmasq
from deploy.lab.servers.knot import Knot
from deploy.lab.servers.memcached import Memcached
from deploy.lab.servers.nsd import Nsd
from deploy.lab.servers.server import DnsServer, Server, ServerFailed, ask, round_trip
from deploy.lab.servers.turnserver import Turnserver
from deploy.lab.servers.unbound import Unbound

DNS_SERVERS = {"nsd": Nsd, "knot": Knot, "unbound": Unbound, "dnsmasq": Dnsmasq}

OTHER_SERVERS = {"memcached": Memcached, "turnserver": Turnserver, "coap": CoapServer}

__all__ = ["DNS_SERVERS", "OTHER_SERVERS", "CoapServer", "DnsServer", "Dnsmasq", "Knot", "Memcached", "Nsd", "Server", "ServerFailed",
           "Turnserver", "Unbound", "ask", "round_trip"]
