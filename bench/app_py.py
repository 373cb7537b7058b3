# SPDX-License-Identifier: Apache-2.0
"""app-py: hr-load's client again in Python, the way a careful Python engineer writes application hedging.

One thread and select() with microsecond time-outs. Each request has two absolute times, fixed when it is sent: when
its hedge is due and when it is given up. Datagrams that belong to other requests are looked at and change neither.
Started by the runners as `python3 -m bench.app_py`; flags and report are hr-load's.
"""

import argparse
import collections
import json
import math
import re
import resource
import select
import socket
import sys
import time

from bench.histogram import Histogram

_DATAGRAM_BYTES = 2048
_RECEIVE_AT_MOST = 64  # Per turn, so that a flood of answers cannot hold up the sends.
_NS_PER_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
NEVER_NS = math.inf


def duration_ns(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+)(ns|us|ms|s)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration such as 10ms")
    return round(float(match[1]) * _NS_PER_UNIT[match[2]])


def endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is no address:port")
    return host.strip("[]"), int(port)


class RawWorkload:
    """A 4-byte little-endian id; the answer is an echo."""

    def __init__(self, first_id: int):
        self._first_id = first_id

    def encode(self, seq: int) -> bytes:
        return ((self._first_id + seq) & 0xFFFFFFFF).to_bytes(4, "little")

    def decode(self, datagram: bytes, next_seq: int) -> int | None:
        """The request this answers, or None."""
        if len(datagram) != 4:
            return None
        age = (self._first_id + next_seq - 1 - int.from_bytes(datagram, "little")) & 0xFFFFFFFF
        return next_seq - 1 - age if age < next_seq else None


class DnsWorkload:
    """A queries; the answer has QR, RCODE 0, the id and the question."""

    def __init__(self, names: list[str]):
        self._questions = []
        for name in names:
            labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
            self._questions.append(b"".join(bytes([len(x)]) + x for x in labels) + b"\0\0\1\0\1")

    def _question(self, seq: int) -> bytes:
        return self._questions[seq % len(self._questions)]

    def encode(self, seq: int) -> bytes:
        return (seq & 0xFFFF).to_bytes(2, "big") + b"\1\0\0\1\0\0\0\0\0\0" + self._question(seq)

    def decode(self, datagram: bytes, next_seq: int) -> int | None:
        if len(datagram) < 12 or next_seq == 0:
            return None
        age = (next_seq - 1 - int.from_bytes(datagram[:2], "big")) & 0xFFFF
        if age >= next_seq:
            return None
        seq = next_seq - 1 - age
        is_answer = datagram[2] & 0x80 and datagram[3] & 0x0F == 0
        return seq if is_answer and datagram.startswith(self._question(seq), 12) else None


class Request:
    __slots__ = ("seq", "intended_ns", "sent_ns", "hedge_due_ns", "deadline_ns", "done", "answers", "hedged")

    def __init__(self, seq: int, intended_ns: int, sent_ns: int, hedge_due_ns: float, deadline_ns: int):
        self.seq, self.intended_ns, self.sent_ns = seq, intended_ns, sent_ns
        self.hedge_due_ns, self.deadline_ns = hedge_due_ns, deadline_ns
        self.done = self.hedged = False
        self.answers = 0


class Client:
    def __init__(self, flags: argparse.Namespace):
        self.flags = flags
        self.total = flags.warmup + flags.requests
        self.workload = DnsWorkload(flags.names) if flags.workload == "dns" else RawWorkload(flags.first_id)
        family = socket.AF_INET6 if ":" in flags.target[0] else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.known: dict[int, Request] = {}  # Pending ones and, for a while, finished ones.
        self.hedges_due: collections.deque[Request] = collections.deque()  # Both in due order: delays are constant.
        self.deadlines: collections.deque[Request] = collections.deque()
        self.pending = self.next_seq = 0
        self.latency, self.fire_error, self.send_lag = Histogram(), Histogram(), Histogram()
        self.counters = collections.Counter()
        self.cpu_s, self.wall_ns = (0.0, 0.0), 0
        self.window: list[int] = []
        self.records: list[str] = []

    # -- the loop ------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.start_ns = self.last_finish_ns = self.closed_next_ns = time.monotonic_ns() + 5_000_000
        next_tick_ns = self.start_ns + 1_000_000_000
        while True:
            now_ns = time.monotonic_ns()
            if self.next_seq == self.total and not self.pending and now_ns >= self.last_finish_ns + self.flags.linger:
                return
            if now_ns >= next_tick_ns:
                next_tick_ns = now_ns + 1_000_000_000
                self.tell("tick")
            self.fire_hedges()
            self.take_timeouts()
            self.send_due()
            due_ns = min(self.next_due_ns(), next_tick_ns)
            wait_s = max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
            readable, _, _ = select.select((self.sock,), (), (), wait_s)
            if readable:
                self.receive()

    def next_due_ns(self) -> float:
        due_ns = self.next_send_ns()
        while self.hedges_due and self.hedges_due[0].done:
            self.hedges_due.popleft()
        while self.deadlines and self.deadlines[0].done and self.deadlines[0].deadline_ns <= time.monotonic_ns():
            self.known.pop(self.deadlines.popleft().seq, None)
        if self.hedges_due:
            due_ns = min(due_ns, self.hedges_due[0].hedge_due_ns)
        if self.deadlines:
            due_ns = min(due_ns, self.deadlines[0].deadline_ns)
        return due_ns if due_ns != NEVER_NS else self.last_finish_ns + self.flags.linger

    def next_send_ns(self) -> float:
        if self.next_seq == self.total:
            return NEVER_NS
        if self.flags.loop == "open":
            return self.start_ns + int(self.next_seq * 1e9 / self.flags.rate)
        return NEVER_NS if self.pending else self.closed_next_ns

    # -- what happens --------------------------------------------------------------------------------------

    def send_due(self) -> None:
        sent = 0
        while sent < _RECEIVE_AT_MOST and self.next_send_ns() <= (now_ns := time.monotonic_ns()):
            flags, seq = self.flags, self.next_seq
            if seq == flags.warmup:
                self.start_measuring()
                now_ns = time.monotonic_ns()
            intended_ns = int(self.next_send_ns()) if flags.loop == "open" else now_ns
            hedge_due_ns = now_ns + flags.hedge_delay if flags.hedge_target else NEVER_NS
            request = Request(seq, intended_ns, now_ns, hedge_due_ns, now_ns + flags.timeout)
            self.known[seq] = request
            self.deadlines.append(request)
            if flags.hedge_target:
                self.hedges_due.append(request)
            self.next_seq += 1
            self.pending += 1
            sent += 1
            if seq >= flags.warmup:
                self.send_lag.record(now_ns - intended_ns)
            self.transmit(seq, flags.target)

    def transmit(self, seq: int, to: tuple[str, int]) -> bool:
        try:
            self.sock.sendto(self.workload.encode(seq), to)
        except OSError:  # A full send buffer or an unreachable peer: this request goes unanswered and is counted.
            self.counters["send_errors"] += 1
            return False
        return True

    def fire_hedges(self) -> None:
        while self.hedges_due:
            request = self.hedges_due[0]
            if not request.done:
                fired_ns = time.monotonic_ns()
                if request.hedge_due_ns > fired_ns:
                    return
                request.hedged = self.transmit(request.seq, self.flags.hedge_target)
                if request.hedged and request.seq >= self.flags.warmup:
                    self.counters["hedges"] += 1
                    self.fire_error.record(fired_ns - request.hedge_due_ns)
            self.hedges_due.popleft()

    def take_timeouts(self) -> None:
        now_ns = time.monotonic_ns()
        while self.deadlines and self.deadlines[0].deadline_ns <= now_ns:
            request = self.deadlines.popleft()
            self.known.pop(request.seq, None)
            if not request.done:
                self.finish(request, request.deadline_ns, answered=False)

    def receive(self) -> None:
        for _ in range(_RECEIVE_AT_MOST):
            try:
                datagram, peer = self.sock.recvfrom(_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            self.on_datagram(datagram, peer[:2], time.monotonic_ns())

    def on_datagram(self, datagram: bytes, peer: tuple[str, int], now_ns: int) -> None:
        if peer not in (self.flags.target, self.flags.hedge_target):
            self.counters["stray"] += 1
            return
        seq = self.workload.decode(datagram, self.next_seq)
        if seq is None:
            self.counters["wrong"] += 1
            return
        request = self.known.get(seq)
        if request is None or (now_ns >= request.deadline_ns and not request.done):
            self.count_measured(seq, "late")
            return
        request.answers += 1
        if not request.done:
            self.finish(request, now_ns, answered=True)
        elif request.answers <= 1 + request.hedged:
            self.count_measured(seq, "losers")
        else:
            self.count_measured(seq, "duplicates")

    def count_measured(self, seq: int, what: str) -> None:
        if seq >= self.flags.warmup:
            self.counters[what] += 1

    def finish(self, request: Request, end_ns: int, *, answered: bool) -> None:
        request.done = True
        self.pending -= 1
        now_ns = time.monotonic_ns()
        self.last_finish_ns, self.closed_next_ns = now_ns, now_ns + self.flags.pause
        if request.seq < self.flags.warmup:
            return
        self.counters["answered" if answered else "timeouts"] += 1
        self.latency.record(end_ns - request.intended_ns)
        if self.flags.csv:
            latency_us = (end_ns - request.intended_ns) / 1e3 if answered else ""
            self.records.append(f"{request.seq},{(request.intended_ns - self.start_ns) / 1e3},"
                                f"{(request.sent_ns - request.intended_ns) / 1e3},{latency_us},,")
        if answered and self.flags.progress:
            self.window.append(end_ns - request.intended_ns)
        if self.latency.count == self.flags.requests:
            self.stop_measuring()

    # -- measuring and telling -----------------------------------------------------------------------------

    def start_measuring(self) -> None:
        self.tell("measuring")
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu_s = (-usage.ru_utime, -usage.ru_stime)
        self.wall_ns = -time.monotonic_ns()

    def stop_measuring(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu_s = (self.cpu_s[0] + usage.ru_utime, self.cpu_s[1] + usage.ru_stime)
        self.wall_ns += time.monotonic_ns()
        self.tell("measured")

    def tell(self, event: str) -> None:
        if not self.flags.progress:
            return
        window, self.window = sorted(self.window), []
        print(json.dumps({"event": event, "sent": self.next_seq, "total": self.total,
                          "answered": self.counters["answered"], "timeouts": self.counters["timeouts"],
                          "hedges": self.counters["hedges"],
                          "p50_ms": window[len(window) // 2] / 1e6 if window else 0.0,
                          "max_ms": window[-1] / 1e6 if window else 0.0}), file=sys.stderr, flush=True)

    def report(self) -> dict:
        flags, counters = self.flags, self.counters
        names = ("timeouts", "send_errors", "hedges", "losers", "duplicates", "late", "wrong", "stray")
        user_us, system_us = (s * 1e6 / flags.requests for s in self.cpu_s)
        quantiles_ms = {name: self.latency.quantile(q) / 1e6 for name, q in
                        (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99), ("p999_ms", 0.999), ("max_ms", 1))}
        summary = {"mode": flags.mode or ("app-py" if flags.hedge_target else "baseline-py"), "n": flags.requests,
                   "warmup": flags.warmup, "lost": flags.requests - counters["answered"],
                   **{name: counters[name] for name in names}, **quantiles_ms,
                   "mean_ms": self.latency.sum / self.latency.count / 1e6,
                   "fire_error_p50_us": self.fire_error.quantile(0.5) / 1e3,
                   "fire_error_p99_us": self.fire_error.quantile(0.99) / 1e3,
                   "fire_error_max_us": self.fire_error.max / 1e3,
                   "send_lag_p50_us": self.send_lag.quantile(0.5) / 1e3,
                   "send_lag_p99_us": self.send_lag.quantile(0.99) / 1e3,
                   "cpu_user_us_per_request": user_us, "cpu_system_us_per_request": system_us,
                   "cpu_us_per_request": user_us + system_us, "wall_s": self.wall_ns / 1e9,
                   "rate_per_second": flags.requests / (self.wall_ns / 1e9)}
        return {"summary": summary, "histograms": {"latency": self.latency.to_json(),
                                                   "fire_error": self.fire_error.to_json(),
                                                   "send_lag": self.send_lag.to_json()}}


def parse_flags(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="app_py", description="UDP client with application hedging, in Python.")
    parser.add_argument("--target", type=endpoint, required=True)
    parser.add_argument("--hedge_target", type=endpoint)
    parser.add_argument("--hedge_delay", type=duration_ns, default=duration_ns("10ms"))
    parser.add_argument("--loop", choices=("closed", "open"), default="closed")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--pause", type=duration_ns, default=duration_ns("1ms"))
    parser.add_argument("--timeout", type=duration_ns, default=duration_ns("1s"))
    parser.add_argument("--linger", type=duration_ns, default=duration_ns("500ms"))
    parser.add_argument("--workload", choices=("raw", "dns"), default="raw")
    parser.add_argument("--first_id", type=int, default=0)
    parser.add_argument("--names", type=lambda text: text.split(","), default=[])
    parser.add_argument("--mode", default="")
    parser.add_argument("--out", default="")
    parser.add_argument("--csv", default="")
    parser.add_argument("--progress", action="store_true")
    flags = parser.parse_args(argv)
    if flags.seconds > 0:
        flags.requests = round(flags.seconds * flags.rate)
    if flags.requests < 1 or flags.rate <= 0:
        parser.error("there must be at least one request and a rate above 0")
    if flags.workload == "dns" and not flags.names:
        parser.error("the dns workload needs --names")
    return flags


def main(argv: list[str]) -> int:
    flags = parse_flags(argv)
    client = Client(flags)
    client.run()
    if flags.csv:
        with open(flags.csv, "w", encoding="ascii") as file:
            file.write("\n".join(["seq,intended_us,send_lag_us,latency_us,fire_error_us,winner", *client.records, ""]))
    text = json.dumps(client.report()) + "\n"
    if flags.out:
        with open(flags.out, "w", encoding="ascii") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
