#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""load.py ADDRESS RATE SECONDS SOCKETS TIMEOUT NAME: asks a DNS server for an A record at a fixed rate, never again for the same query. With
SOCKETS 0 each query has a port of its own, as glibc's have; N: N sockets in turn, as a forwarder's. SIGINT ends the time. A line of JSON: `lost` are
the times at which those were sent that got no answer within TIMEOUT seconds."""

import contextlib
import json
import select
import signal
import socket
import sys
import time


def query(name: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return b"\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"


def run(address: str, rate: float, seconds: float, sockets: int, timeout: float, name: str) -> dict:
    poll, open_ones, rest = select.epoll(), {}, query(name)
    waiting: dict[tuple[int, int], float] = {}  # by socket and id, when they were sent; the oldest first
    lost, took, sent = [], [], 0

    def dial() -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setblocking(False)
        with contextlib.suppress(OSError):  # without a route all of it is lost
            one.connect((address, 53))
        poll.register(one, select.EPOLLIN)
        open_ones[one.fileno()] = one
        return one

    def done(number: int) -> None:
        if not sockets:
            open_ones.pop(number).close()

    def interrupted(*_: object) -> None:
        nonlocal seconds
        seconds = min(seconds, time.monotonic() - begin)

    fixed = [dial() for _ in range(sockets)]
    begin = time.monotonic()
    signal.signal(signal.SIGINT, interrupted)
    while sent < rate * seconds or waiting:
        now = time.monotonic() - begin
        while sent < min(rate * seconds, rate * now):
            one, key = fixed[sent % sockets] if sockets else dial(), sent & 0xffff
            waiting[one.fileno(), key] = time.monotonic() - begin
            with contextlib.suppress(OSError):  # what an ICMP error has left
                one.send(key.to_bytes(2, "big") + rest)
            sent += 1
        for number, _ in poll.poll(0.002):
            with contextlib.suppress(OSError):
                while number in open_ones:  # all that it has
                    key = number, int.from_bytes(open_ones[number].recv(2048)[:2], "big")
                    if (at := waiting.pop(key, None)) is not None:
                        took.append(time.monotonic() - begin - at)
                        done(number)
        while waiting and now - (at := waiting[key := next(iter(waiting))]) >= timeout:
            del waiting[key]
            lost.append(round(at, 2))
            done(key[0])
    took.sort()
    return {"sent": sent, "answered": len(took), "lost": lost, "ms": {str(part): round(1000 * took[int(part * (len(took) - 1))], 2) for part in (.5, .99, .999, 1) if took}}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), sys.argv[6])))
