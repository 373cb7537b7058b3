# SPDX-License-Identifier: Apache-2.0
"""DNS from the client's side: dig and dnsperf with their output read, and messages built by hand.

dig and dnsperf are what users run. Built messages are for what they cannot do: the same id twice, from a chosen
port, and listening on after the answer.
"""

import dataclasses
import re
import secrets
import signal
import socket
import struct
import time

from deploy.lab import Host
from deploy.lab.servers import zone

A, TXT, AAAA, OPT = 1, 16, 28, 41
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5


@dataclasses.dataclass(frozen=True)
class DigAnswer:
    text: str
    status: str | None  # NOERROR, REFUSED, ...; None when nothing came
    records: list[str]
    size_bytes: int

    @property
    def truncated_and_retried(self) -> bool:
        return "Truncated, retrying in TCP mode" in self.text

    def flag(self, name: str) -> bool:
        found = re.search(r"^;; flags: ([a-z ]+);", self.text, re.M)
        return bool(found) and name in found.group(1).split()


def dig(host: Host, server: str, name: str, kind: str = "A", *options: str, timeout_s: int = 2,
        tries: int = 1) -> DigAnswer:
    """One `dig`; by default one try, so that a lost packet is seen and not covered by a retry."""
    done = host.run(["dig", f"@{server}", f"+time={timeout_s}", f"+tries={tries}", *options, name, kind],
                    check=False, timeout=timeout_s * tries * 3 + 10)
    status = re.search(r"status: ([A-Z]+),", done.stdout)
    size = re.search(r"MSG SIZE\s+rcvd: (\d+)", done.stdout)
    answers = re.search(r";; ANSWER SECTION:\n(.*?)\n\n", done.stdout, re.S)
    records = [line.split(None, 4)[4] for line in answers.group(1).split("\n")] if answers else []
    return DigAnswer(done.stdout + done.stderr, status.group(1) if status else None, records,
                     int(size.group(1)) if size else 0)


@dataclasses.dataclass(frozen=True)
class DnsperfReport:
    text: str
    sent: int
    completed: int
    lost: int
    max_ms: float


def start_dnsperf(host: Host, server: str, *, seconds: float, rate: int, clients: int = 4, timeout_s: float = 2.0):
    """dnsperf in the background over the zone's numbered names; read it with `finish_dnsperf`."""
    folder, number = host.scratch("dnsperf"), time.monotonic_ns()
    queries, log = folder / f"queries-{number}", folder / f"log-{number}"  # another one may be reading its own just now
    queries.write_text("".join(f"n{number}.{zone.ORIGIN} A\n" for number in range(zone.NUMBERED_NAMES)), encoding="ascii")
    child = host.popen(["dnsperf", "-s", server, "-d", queries, "-l", str(seconds), "-Q", str(rate), "-c", str(clients),
                        "-t", str(timeout_s)], log=log)
    return child, log


def finish_dnsperf(started, timeout_s: float = 60.0) -> DnsperfReport:
    child, log = started
    child.wait(timeout_s)
    text = log.read_text(encoding="utf-8", errors="replace")

    def number(pattern: str) -> float:
        found = re.search(pattern, text)
        assert found, f"dnsperf said nothing about {pattern!r}:\n{text}"
        return float(found.group(1))

    return DnsperfReport(text, int(number(r"Queries sent:\s+(\d+)")), int(number(r"Queries completed:\s+(\d+)")),
                         int(number(r"Queries lost:\s+(\d+)")),
                         1000 * number(r"Average Latency \(s\):\s+[\d.]+ \(min [\d.]+, max ([\d.]+)\)"))


def stop_dnsperf(started, timeout_s: float = 60.0) -> DnsperfReport:
    """As `finish_dnsperf`, and now: what is not answered yet is not counted as lost."""
    started[0].send_signal(signal.SIGINT)
    return finish_dnsperf(started, timeout_s)


@dataclasses.dataclass(frozen=True)
class Message:
    id: int
    rcode: int
    truncated: bool
    question: str
    answer_count: int


def query(query_id: int, name: str, kind: int = A, *, edns_bytes: int | None = None) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split(".")) + b"\0"
    additional = b"" if edns_bytes is None else b"\0" + struct.pack("!HHIH", OPT, edns_bytes, 0, 0)
    header = struct.pack("!HHHHHH", query_id, 0x0100, 1, 0, 0, int(bool(additional)))
    return header + labels + struct.pack("!HH", kind, 1) + additional


def parse(message: bytes) -> Message:
    query_id, flags, questions, answers = struct.unpack("!HHHH", message[:8])
    labels, at = [], 12
    while questions and message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode())
        at += 1 + message[at]
    return Message(query_id, flags & 0xF, bool(flags & 0x0200), ".".join(labels), answers)


class UdpClient:
    """A plain socket in a host, connected or not, that a test sends and listens with at its own times."""

    def __init__(self, host: Host, server: str, port: int = 53, *, source_port: int = 0, connected: bool = True):
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        self.socket = host.socket(family)
        self.socket.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", source_port))
        self._server = (server, port)
        self._connected, self._has_connected = connected, False

    def __enter__(self) -> "UdpClient":
        return self

    def __exit__(self, *_exc) -> None:
        self.socket.close()

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    def send(self, payload: bytes) -> None:
        if not self._connected:
            self.socket.sendto(payload, self._server)
            return
        # Connected as late as this: a client may be made before there is a route to the VIP.
        if not self._has_connected:
            self.socket.connect(self._server)
            self._has_connected = True
        self.socket.send(payload)

    def receive(self, timeout_s: float = 2.0) -> bytes | None:
        """The next datagram, or None. An ICMP error shows as ConnectionRefusedError on a connected socket."""
        self.socket.settimeout(timeout_s)
        try:
            payload, source = self.socket.recvfrom(65535)
        except TimeoutError:
            return None
        assert source[0] == self._server[0], f"a datagram from {source[0]}, not from {self._server[0]}"
        return payload

    def receive_all(self, quiet_s: float) -> list[bytes]:
        """Everything that comes until nothing came for `quiet_s`."""
        found = []
        while (payload := self.receive(quiet_s)) is not None:
            found.append(payload)
        return found

    def ask(self, query_id: int, name: str, kind: int = A, timeout_s: float = 2.0) -> Message | None:
        self.send(query(query_id, name, kind))
        payload = self.receive(timeout_s)
        return None if payload is None else parse(payload)


def who_answers(host: Host, server: str, *options: str) -> str | None:
    """The replica that answers, as the zone of the lab's servers names it. Asked by hand where dig has nothing to add: it takes a
    hundred times as long to start."""
    name = f"whoami.{zone.ORIGIN}"
    if options:
        records = dig(host, server, name, "TXT", *options).records
        return records[0].strip('"') if records else None
    asked = query(secrets.randbits(16), name, TXT)
    with UdpClient(host, server) as client:
        try:
            client.send(asked)
            answer = client.receive()
        except OSError:  # refused, or no route
            return None
    if answer is None or answer[:2] != asked[:2] or parse(answer).answer_count == 0:
        return None
    text = answer[len(asked):].partition(struct.pack("!HH", TXT, 1))[2][6:]  # behind TTL and length
    return text[1:1 + text[0]].decode("ascii")
