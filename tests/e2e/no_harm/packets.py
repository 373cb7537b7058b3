# SPDX-License-Identifier: Apache-2.0
"""Properties of packets, asked of the scripted server. Each function is a client: it returns its transcript."""

import socket
import struct
import time

from no_harm.scripted import (MOST_SEGMENTS, PORT, SEGMENT_BYTES, SEGMENTED, SILENT, SO_NO_CHECK, SOL_UDP, UDP_SEGMENT, WRITE,
                              Asker, askers, mark)

SIZES = (64, 512, 1232, 1472, 1473, 4096, 9000, 30000, 65000)
DO, MTU_DISCOVER, MTU_DISCOVER6 = 2, 10, 23  # IP_PMTUDISC_DO, IP_MTU_DISCOVER, IPV6_MTU_DISCOVER


def one_by_one(at) -> list[str]:
    lines = []
    for connected in (False, True):
        with Asker(at, connected=connected) as asker:
            for _ in range(15):
                asker.ask()
                lines += asker.answers(1, quiet_s=0)
            lines += asker.answers(0)
    return lines


def sizes(at) -> list[str]:
    lines = []
    with Asker(at) as asker:
        for size in SIZES:
            asker.ask(length=size, size=64)
            asker.ask(length=64, size=size)
            lines += asker.answers(2)
        for size in (0, 1, 8):  # shorter than any request: sent back as they came
            asker.send(b"z" * size)
            lines += asker.answers(1)
    return lines


def marks_and_ttl(at) -> list[str]:
    """DSCP with all four ECN codes, and the TTL, both ways."""
    lines = []
    with Asker(at) as asker:
        for tos in (0xB8, 0x01, 0x02, 0x03, 0xB9):
            mark(asker.socket, tos)
            asker.ask()
            lines += asker.answers(1)
        for ttl in (1, 5, 64, 255):
            asker.socket.setsockopt(socket.IPPROTO_IPV6 if at.six else socket.IPPROTO_IP,
                                    socket.IPV6_UNICAST_HOPS if at.six else socket.IP_TTL, ttl)
            asker.ask()
            lines += asker.answers(1)
    return lines


def in_order(at, bursts: int = 20) -> list[str]:
    """20 datagrams at a time on one socket."""
    lines = []
    with Asker(at) as asker:
        for _ in range(bursts):
            for _ in range(20):
                asker.ask()
            lines += asker.answers(20, quiet_s=0)
        return lines + asker.answers(0)


def segmented(at) -> list[str]:
    """UDP_SEGMENT both ways, a single datagram close behind."""
    lines = []
    with Asker(at, connected=True) as asker:
        for _ in range(5):
            batch = b"".join(asker.request(length=SEGMENT_BYTES) for _ in range(20))
            asker.socket.sendmsg([batch], [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", SEGMENT_BYTES))])
            asker.ask()
            lines += asker.answers(21)
        asker.ask(kind=SEGMENTED, answers=MOST_SEGMENTS, size=SEGMENT_BYTES)
        return lines + asker.answers(MOST_SEGMENTS)


def odd_sockets(at) -> list[str]:
    """Source ports that other protocols own, no checksum, bound to the uplink, a datagram too long for DF."""
    lines = []
    for port in (67, 123, 500, at.port):
        with Asker(at, source_port=port) as asker:
            asker.ask()
            lines += asker.answers(1)
    with Asker(at) as asker:
        asker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        for _ in range(5):
            asker.ask()
            lines += asker.answers(1)
    with Asker(at, connected=True) as asker:
        asker.socket.setsockopt(*(socket.IPPROTO_IPV6, MTU_DISCOVER6) if at.six else (socket.IPPROTO_IP, MTU_DISCOVER), DO)
        for length in (1400, 1452, 3000):
            try:
                asker.ask(length=length)
                lines += asker.answers(1)
            except OSError as error:
                lines.append(f"{length}: {error.strerror}")
    if not at.six:
        with Asker(at) as asker:
            asker.socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
            asker.ask()
            lines += asker.answers(1)
    return lines


def many_sockets(at, count: int = 200) -> list[str]:
    """All at once, twice."""
    lines = []
    with askers(at, count) as found:
        for _ in range(2):
            for asker in found:
                asker.ask()
            for asker in found:
                lines += asker.answers(1, quiet_s=0)
        for asker in found:
            lines += asker.answers(0, quiet_s=0)
    return lines


def a_thousand_sockets(at) -> list[str]:
    return many_sockets(at, 1000)


def push(at) -> list[str]:
    """One hello, and then the client only listens."""
    with Asker(at) as asker:
        asker.ask(answers=40, delay_ms=10)
        return asker.answers(40)


def slow_answers(at) -> list[str]:
    with Asker(at) as asker:
        for delay_ms in (5, 30, 120, 400):
            asker.ask(delay_ms=delay_ms)
            asker.answers(0, quiet_s=0)
        return asker.answers(4)


def pipelined(at) -> list[str]:
    """20 requests at once on one socket, each slower than the hedge."""
    lines = []
    with Asker(at, connected=True) as asker:
        for _ in range(10):
            for _ in range(20):
                asker.ask(delay_ms=25)
            lines += asker.answers(20)
    return lines


def beside_another_service(at) -> list[str]:
    """Requests of one service, then those of another that pairs by the socket."""
    with Asker(at, PORT) as other:
        for _ in range(200):
            other.ask()
            other.answers(1, quiet_s=0)
    lines = []
    for _ in range(20):
        with Asker(at) as asker:
            asker.ask()
            lines += asker.answers(1)
    return lines


def writes(at) -> list[str]:
    """Requests that must not be sent twice, beside some that may, and that nothing answers."""
    lines = []
    with Asker(at) as asker, Asker(at) as unanswered:
        for _ in range(10):
            unanswered.ask(kind=SILENT)
            asker.ask(kind=WRITE)
            asker.ask()
            lines += asker.answers(2)
    return lines


def quiet_conversation(at) -> list[str]:
    """A protocol whose last word is the client's: an answer, an acknowledgement that nothing answers, a pause, the next request."""
    lines = []
    with askers(at, 3) as found:
        for _ in range(2):
            for asker in found:
                asker.ask()
                lines += asker.answers(1, quiet_s=0)
                asker.ask(kind=SILENT)
            time.sleep(4.5)
        for asker in found:
            asker.ask()
            lines += asker.answers(1)
    return lines


def one_way_for_a_while(at) -> list[str]:
    """A conversation in which the client alone speaks for 8 s."""
    lines = []
    with Asker(at) as asker:
        asker.ask()
        lines += asker.answers(1)
        for _ in range(16):
            asker.ask(kind=SILENT)
            time.sleep(0.5)
        asker.ask()
        return lines + asker.answers(1)


def silent_receiver(at) -> list[str]:
    """15 s of one datagram each half second to a client that says nothing more; `flow_timeout` is 8 s."""
    lines = []
    with Asker(at) as plain, Asker(at, connected=True) as connected:
        for asker in (plain, connected):
            asker.ask(answers=30, delay_ms=500)
        for asker in (plain, connected):
            lines += asker.answers(30, within_s=17)
    return lines


def late_answers(at) -> list[str]:
    """Answers after 1.5 to 14 s."""
    lines = []
    with askers(at, 4) as plain, askers(at, 4, connected=True) as connected:
        for group in (plain, connected):
            for asker, delay_ms in zip(group, (1500, 5000, 10500, 14000), strict=True):
                asker.ask(delay_ms=delay_ms)
        for asker in (*plain, *connected):
            lines += asker.answers(1, within_s=16, quiet_s=1)
    return lines
