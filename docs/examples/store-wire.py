#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The store by its bytes, without a library: store-wire.py [HOST [PORT]]. WIRE_FORMAT.md has every field."""

import secrets
import socket
import struct
import sys

HEADER = struct.Struct("<BBBBIQQQQ")  # magic, version, kind, flags, timeout in us, client, seq, lowest unanswered, token
ANSWER = struct.Struct("<BBBBIQQQ")  # magic, version, kind, status, hint, client, seq, flags
WRITE, GET, PUT = 2, 3, 1

host, port = (sys.argv[1:] + ["127.0.0.1", "4801"][len(sys.argv) - 1:])[:2]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.connect((host, int(port)))
server.settimeout(2)


def ask(kind: int, client: int, body: bytes) -> bytes:
    seq = secrets.randbits(64)  # without a session a random number stands for the request
    server.send(HEADER.pack(0x48, 2, kind, 0, 2_000_000, client, seq, 0, 0) + body)
    while True:
        answer = server.recv(1500)
        _, _, answered, status, _, answered_client, answered_seq, _ = ANSWER.unpack_from(answer)
        if (answered, answered_client, answered_seq) == (kind | 0x80, client, seq):
            if status != 0:
                raise SystemExit(f"status {status}")
            return answer[ANSWER.size:]


def text(value: bytes, count: str) -> bytes:
    return struct.pack("<" + count, len(value)) + value


ask(WRITE, 0, bytes([1, PUT]) + text(b"wire", "B") + text(b"hello", "H"))
print("wire:", ask(GET, secrets.randbits(64), text(b"wire", "B"))[2:].decode())
