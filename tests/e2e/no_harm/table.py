# SPDX-License-Identifier: Apache-2.0
"""The table: each row is a client, its servers and the service that stands between them, as docs/profile-language.md and the recipes have it.

docs/clients.md shows it to users; a test compares.
"""

import copy
import dataclasses
import re
from collections.abc import Callable

import yaml

from harness.product import PROJECT
from harness.recipes import RadiusServer, SipServer, Snmpd
from harness.servers import CoapServer, Turnserver
from no_harm import packets, programs, servers
from no_harm.scripted import HARMS, ScriptedServer

FLOW = {"profile": "flow"}
# The scripted server's: an id of four bytes, and a kind that says what must not be sent twice.
RAW = {"profile": "raw", "raw": {"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4, "min_bytes": 13,
                                 "operations": [{"match": [{"offset": 12, "bytes": f"{kind:02x}"}]} for kind in (0, 1, 2)]}}
RPC = {"profile": "raw", "raw": {"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4, "one_datagram": True,
                                 "requests": [{"offset": 4, "bytes": "00000000"}], "replies": [{"offset": 4, "bytes": "00000001"}]}}
VIP, VIP6 = "10.99.0.1", "fd99::1"


def written(page: str, number: int = 0) -> dict:
    """The service of a page of docs/, without what is the lab's."""
    text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
    found = yaml.safe_load(re.findall(r"```yaml\n(services:.*?)```", text, re.S)[number])["services"][0]
    return {key: value for key, value in found.items() if key not in ("name", "vip", "port", "backends")}


# By name: the VIP, the port, and the rest of the service.
SERVICES: dict[str, tuple[str, int, dict]] = {
    "dns": ("10.99.0.53", 53, {"profile": "dns"}), "dns6": ("fd99::53", 53, {"profile": "dns"}),
    "snmp": (VIP, 161, written("recipes/snmp.md", 0)), "snmp3": (VIP, 1161, written("recipes/snmp.md", 1)),
    "radius": (VIP, 1812, written("recipes/radius.md")), "sip": (VIP, 5060, written("recipes/sip.md")),
    "stun": (VIP, 3478, {"profile": "stun"}), "turn": (VIP, 3479, FLOW), "memcached": (VIP, 11211, {"profile": "memcached"}),
    "coap": (VIP, 5683, written("profile-language.md")), "observe": (VIP, 5685, FLOW), "syslog": (VIP, 514, {"profile": "one-way"}),
    "raw": (VIP, 4000, RAW), "raw6": (VIP6, 4000, RAW), "flow": (VIP, 4002, FLOW), "flow6": (VIP6, 4002, FLOW),
    "short-flow": (VIP, 4003, {**FLOW, "flow_timeout": "8s"}),
    "sockets": (VIP, 4001, {"profile": "raw", "raw": {"by_socket": True}}),
    "dtls": (VIP, 4433, FLOW), "vpn": (VIP, 1194, FLOW), "rpc": (VIP, 111, RPC), "eap": (VIP, 1822, FLOW),
    "radius-users": (VIP, 1832, written("recipes/radius.md")), "calls": (VIP, 5070, written("recipes/sip.md")),
    **{harm: (VIP, port, FLOW) for port, harm in HARMS.items()},
}
PLAIN, COPIES, SLOW = "plain", "copies", "slow"
VARIANTS: dict[str, dict] = {PLAIN: {}, COPIES: {"idle_copies": "100%"}, SLOW: {"budget": "100%"}}
ALL = (PLAIN, COPIES, SLOW)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    what: str  # for the page: the client, its server, what it does
    service: str
    client: Callable[..., list[str]]
    server: type = ScriptedServer
    right: str = "answer"  # stands in the transcript, or nothing was compared
    variants: tuple[str, ...] = (PLAIN,)  # SLOW: not where datagrams are larger than a frame, which the lab does not hold back
    alone: bool = False  # nothing of it may be sent twice or elsewhere
    long: bool = False

    @property
    def profile(self) -> str:
        return {"raw": "`raw`"}.get(name := SERVICES[self.service][2]["profile"], f"`{name}`")


ROWS = [
    Row("dns-kinds", "dig, 23 kinds of query: EDNS sizes, fragments, truncation then TCP, DNSSEC, NSID, ECS, cookies, padding, mixed case, header only, "
        "NOTIFY, STATUS, AXFR, IXFR", "dns", programs.dig_kinds, servers.Primary, "XFR size: 120", (PLAIN, COPIES)),
    Row("dns-kinds-ipv6", "the same over IPv6", "dns6", programs.dig_kinds, servers.Primary, "XFR size: 120"),
    Row("dns-update", "nsupdate with TSIG", "dns", programs.dig_update, servers.Primary, "192.0.2.77", ALL, alone=True),
    Row("dns-stubs", "glibc's resolver: two questions on one socket, single requests, by TCP, with EDNS", "dns", programs.stub_resolvers, servers.Primary, "192.0.2.1 ", ALL),
    Row("dns-ids", "300 questions on one socket with 50 ids", "dns", programs.many_ids, servers.Primary, "n0.example.test', answer_count=1", (PLAIN, COPIES)),
    Row("snmp-v2c", "snmpwalk, snmpbulkwalk, snmpget at snmpd, v2c", "snmp", programs.snmp_v2c, Snmpd, "OID", (PLAIN, COPIES)),
    Row("snmp-v3", "the same with v3: discovery, authentication", "snmp3", programs.snmp_v3, servers.SnmpdV3, "OID", (PLAIN, COPIES)),
    Row("radius-pap", "RADIUS with PAP, right and wrong passwords", "radius", programs.radius_pap, RadiusServer, "code 2, genuine True", ALL),
    Row("sip-options", "SIP: OPTIONS and REGISTER by turns", "sip", programs.sip_options, SipServer, "200 OK", ALL),
    Row("stun", "turnutils_stunclient at coturn", "stun", programs.stun, Turnserver, "CLIENT:port", ALL),
    Row("memcached", "memcached: get, an answer of many datagrams, add, incr", "memcached", programs.memcached, servers.Cache, "the same everywhere", (PLAIN, COPIES)),
    Row("coap", "coap-client at libcoap: CON, NON, block-wise", "coap", programs.coap, CoapServer, "test server"),
    Row("coap-observe", "coap-client that observes a resource", "observe", programs.coap_observe, servers.CoapClock, "True", alone=True, long=True),
    Row("syslog", "logger, as its lines arrive at the server", "syslog", programs.syslog, servers.Syslog, "line 9", alone=True),
    Row("turn", "turnutils_uclient at coturn: allocations, data both ways", "turn", programs.turn, servers.Turn, "lost packets 0", alone=True, long=True),
    Row("dtls", "openssl, both sides: a handshake, then lines that nothing answers", "dtls", programs.dtls, servers.Dtls, "line 9", alone=True, long=True),
    Row("openvpn", "OpenVPN: pings through the tunnel, then 10 s one way", "vpn", programs.openvpn, servers.OpenVpn, " 0% packet loss", alone=True, long=True),
    Row("rpc", "rpcinfo at rpcbind: the port mapper at the VIP, the program at the server's own address", "rpc", programs.rpcinfo, servers.PortMapper, "ready and waiting",
        (PLAIN, COPIES), long=True),
    Row("radius-eap", "eapol_test at FreeRADIUS: PEAP with MSCHAPv2", "eap", programs.radius_eap, servers.FreeRadius, "SUCCESS", alone=True, long=True),
    Row("radius-users", "radclient at FreeRADIUS: PAP, right and wrong", "radius-users", programs.radius_users, servers.FreeRadiusPap, "Access-Accept", (PLAIN, COPIES), long=True),
    Row("sip-calls", "sipp, both sides: five calls", "calls", programs.sip_calls, servers.SipPhone, "Successful.*5", alone=True, long=True),
]

_PACKETS = [
    ("one-by-one", "sockets connected and not: one answer each, from the VIP, to the client's own port", packets.one_by_one),
    ("sizes", "datagrams of 0 to 65,000 bytes both ways, in fragments", packets.sizes),
    ("marks", "DSCP, all four ECN codes, TTL and hop limit, both ways", packets.marks_and_ttl),
    ("order", "400 datagrams on one socket: all, in order", packets.in_order),
    ("segmented", "UDP_SEGMENT both ways, a single datagram close behind", packets.segmented),
    ("odd-sockets", "source ports 67, 123, 500; bound to the uplink; no UDP checksum; a datagram too long for its path with DF", packets.odd_sockets),
    ("many-sockets", "200 sockets at once", packets.many_sockets),
    ("thousand-sockets", "1,000 sockets at once", packets.a_thousand_sockets),
    ("push", "a stream of datagrams for one request", packets.push),
    ("slow-answers", "answers after 5 to 400 ms", packets.slow_answers),
]
# On IPv6 and with copies one of them stands for its like.
for _name, _what, _client in _PACKETS:
    _long = _name == "thousand-sockets"
    _sparse = _name in ("one-by-one", "marks", "order", "many-sockets")
    ROWS += [
        Row(f"{_name}-flow", _what, "flow", _client, alone=True, long=_long, variants=(PLAIN, SLOW) if _name == "one-by-one" else (PLAIN,)),
        Row(f"{_name}-raw", _what, "raw", _client, long=_long, variants=ALL if _name == "one-by-one" else (PLAIN, COPIES) if _sparse else (PLAIN,)),
        Row(f"{_name}-flow-ipv6", f"{_what}; IPv6", "flow6", _client, alone=True, long=_long or not _sparse),
        Row(f"{_name}-raw-ipv6", f"{_what}; IPv6", "raw6", _client, long=True),
    ]

ROWS += [
    Row("writes", "requests that must not be sent twice, beside others that nothing answers", "raw", packets.writes),
    Row("pipelined", "20 requests at once on one socket, paired by the socket, slower than a hedge", "sockets", packets.pipelined, variants=(PLAIN, COPIES)),
    Row("beside", "a service paired by the socket, beside another service", "sockets", packets.beside_another_service),
    Row("one-id", "40 questions at once with one id, answers that take longer than a hedge", "dns", programs.one_id_many_questions, servers.Primary, "rcode 0",
        variants=(PLAIN, SLOW)),
    Row("asked-beside", "one socket that asks the VIP and a server of its by turns", "dns", programs.a_server_asked_beside, servers.Primary, "rcode 0",
        variants=(PLAIN, COPIES)),
    Row("late", "answers after 1.5 to 14 s, sockets connected and not", "raw", packets.late_answers, long=True),
    Row("late-flow", "answers after 1.5 to 14 s, sockets connected and not", "flow", packets.late_answers, alone=True, long=True),
    Row("quiet-conversation", "an answer, the client's acknowledgement, 4.5 s of silence, the next request, as QUIC does", "flow",
        packets.quiet_conversation, alone=True, long=True),
    Row("one-way-in-a-flow", "a conversation in which the client alone speaks for 8 s", "flow", packets.one_way_for_a_while, alone=True, long=True),
    Row("silent-receiver", "a client that only receives, for longer than `flow_timeout`", "short-flow", packets.silent_receiver, alone=True, long=True),
]


def config(product, variant: str) -> dict:
    """All services at once, so that rows of one variant share a proxy."""
    lab, services = product.lab, []
    for name, (vip, port, rest) in SERVICES.items():
        six = ":" in vip
        may_copy = rest["profile"] not in ("flow", "one-way")
        services.append({
            "name": name, "vip": vip, "port": port, **copy.deepcopy(rest), **(VARIANTS[variant] if may_copy else {}),
            "backends": [{"name": host.name, "address": host.ipv6 if six else host.ipv4, "port": port} for host in lab.replicas]})
    return product.config(services=services)
