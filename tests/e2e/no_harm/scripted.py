# SPDX-License-Identifier: Apache-2.0
"""A server that does what each request says, and its client: properties of packets that no usual program shows.

A request is an id, the delay of its answers in ms, their size, their number and a kind. An answer repeats the id and says which server it
is from, its place among the answers, and how the request arrived: TTL or hop limit, TOS or traffic class, length, and source port.
Run as a program it serves the ports of PORTS on two addresses; one more port each does one kind of harm, for the judge's own test.
"""

import contextlib
import errno
import heapq
import itertools
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator

REQUEST, ANSWER = struct.Struct("!IHIHB"), struct.Struct("!IcHBBIH")
ANSWERED, SILENT, SEGMENTED, WRITE = range(4)  # kinds
PORT, SOCKETS_PORT, FLOW_PORT, SHORT_FLOW_PORT = 4000, 4001, 4002, 4003  # a port each, for a backend belongs to one service
HARMS = {4010: "twice", 4011: "drops", 4012: "swaps", 4013: "alters"}
PORTS = (PORT, SOCKETS_PORT, FLOW_PORT, SHORT_FLOW_PORT, *HARMS)
SOL_UDP, UDP_SEGMENT, SO_NO_CHECK = 17, 103, 11
SEGMENT_BYTES = 1000
MOST_SEGMENTS = 40


def arrival(ancillary: Iterable[tuple[int, int, bytes]]) -> tuple[int, int]:
    """TTL or hop limit, and TOS or traffic class."""
    ttl = tos = 0
    for level, kind, value in ancillary:
        if (level, kind) in ((socket.IPPROTO_IP, socket.IP_TTL), (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT)):
            ttl = int.from_bytes(value[:4], sys.byteorder)
        if (level, kind) in ((socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)):
            tos = value[0]
    return ttl, tos


def tell_arrival(sock: socket.socket) -> None:
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)


def mark(sock: socket.socket, tos: int) -> None:
    six = sock.family == socket.AF_INET6
    sock.setsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, socket.IPV6_TCLASS if six else socket.IP_TOS, tos)


class _Server:
    def __init__(self, tag: bytes, addresses: list[str]):
        self._tag, self._due, self._order = tag, [], itertools.count()
        self._sockets = []
        for address, port in itertools.product(addresses, PORTS):
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            sock.bind((address, port))
            tell_arrival(sock)
            self._sockets.append(sock)

    def serve(self) -> None:
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for sock in select.select(self._sockets, [], [], wait)[0]:
                payload, ancillary, _, client = sock.recvmsg(65536, 512)
                self._take(sock, payload, arrival(ancillary), client)
            while self._due and self._due[0][0] <= time.monotonic():
                self._send(*heapq.heappop(self._due)[2])

    def _take(self, sock, payload: bytes, arrived: tuple[int, int], client: tuple) -> None:
        if len(payload) < REQUEST.size:
            sock.sendto(payload, client)
            return
        number, delay_ms, size, answers, kind = REQUEST.unpack_from(payload)
        made = [ANSWER.pack(number, self._tag, place, *arrived, len(payload), client[1]).ljust(size, b"a") for place in range(answers)]
        if kind == SEGMENTED:
            for first in range(0, answers, MOST_SEGMENTS):
                sock.sendmsg([b"".join(made[first:first + MOST_SEGMENTS])], [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))], 0, client)
        elif kind != SILENT:
            for place, answer in enumerate(made):
                job = (sock, answer, arrived[1], client)
                after_ms = delay_ms * (place + 1) or 20 * (number % 5 == 0 and HARMS.get(sock.getsockname()[1]) == "swaps")
                if after_ms == 0:
                    self._send(*job)
                else:
                    heapq.heappush(self._due, (time.monotonic() + after_ms / 1000, next(self._order), job))

    def _send(self, sock, answer: bytes, tos: int, client: tuple) -> None:
        mark(sock, tos)
        number = ANSWER.unpack_from(answer)[0]
        harm = HARMS.get(sock.getsockname()[1]) if number % 5 == 0 else None
        if harm == "drops":
            return
        sock.sendto(b"?" * len(answer) if harm == "alters" else answer, client)
        if harm == "twice":
            sock.sendto(answer, client)


# -- The client ----------------------------------------------------------------------------------------------------


class Asker:
    """A socket in the client's host that asks one address."""

    _ids = itertools.count(1)

    def __init__(self, at, port: int = 0, *, connected: bool = False, source_port: int = 0):
        self._at, self._to, self._connected = at, (at.address, port or at.port), connected
        self.socket = at.host.socket(socket.AF_INET6 if at.six else socket.AF_INET)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        tell_arrival(self.socket)
        if source_port:
            self.socket.bind(("", source_port))
        if connected:
            self.socket.connect(self._to)
        self._first = 0

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_exc) -> None:
        self.socket.close()

    def request(self, *, delay_ms: int = 0, size: int = 64, answers: int = 1, kind: int = ANSWERED, length: int = 64) -> bytes:
        """The next one. Ids go on from one socket to the next, so that no id is used again."""
        number = next(self._ids)
        self._first = self._first or number
        return REQUEST.pack(number, delay_ms, size, answers, kind).ljust(length, b"r")

    def send(self, payload: bytes) -> None:
        if self._connected:
            self.socket.send(payload)
        else:
            self.socket.sendto(payload, self._to)

    def ask(self, **request) -> None:
        self.send(self.request(**request))

    def answers(self, count: int, *, within_s: float = 1.5, quiet_s: float = 0.03) -> list[str]:
        """A line for each datagram, until `count` have come and then nothing for `quiet_s`."""
        lines, deadline = [], time.monotonic() + within_s
        while True:
            wait = quiet_s if len(lines) >= count else deadline - time.monotonic()
            if wait <= 0 or not select.select([self.socket], [], [], wait)[0]:
                return lines
            try:
                payload, ancillary, _, source = self.socket.recvmsg(65536, 512)
            except OSError as error:
                lines.append(errno.errorcode[error.errno])
                continue
            lines.append(self._line(payload, arrival(ancillary), source))

    def _line(self, payload: bytes, arrived: tuple[int, int], source: tuple) -> str:
        from_asked = "" if source[:2] == self._to else " from another address"
        if len(payload) < ANSWER.size:
            return f"{len(payload)} bytes{from_asked}"
        number, tag, place, ttl, tos, length, port = ANSWER.unpack_from(payload)
        own = "own" if port == self.socket.getsockname()[1] else "another"
        return (f"request {number - self._first} answer {place} of {self._at.leader_or_any(tag.decode('latin-1'))}: {len(payload)} bytes, "
                f"ttl {arrived[0]} tos {arrived[1]}; asked with {length} bytes, ttl {ttl} tos {tos}, port {own}{from_asked}")


@contextlib.contextmanager
def askers(at, count: int, **options) -> Iterator[list[Asker]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Asker(at, **options)) for _ in range(count)]


if __name__ == "__main__":
    _Server(sys.argv[1].encode(), sys.argv[2:]).serve()
else:
    from deploy.lab.servers import Server, round_trip

    class ScriptedServer(Server):
        name = "scripted"

        def __init__(self, host, port: int = PORT):
            super().__init__(host, port)

        def command(self) -> list[str]:
            return [sys.executable, __file__, self.host.name, self.host.ipv4, self.host.ipv6]

        def answers(self, address: str) -> bool:
            return round_trip(self.host, address, self.port, b"hello") == b"hello"
