# SPDX-License-Identifier: Apache-2.0
"""What a cluster's node shows to the outside: answers to hkv requests, and announcements of the leader.

Written from docs/WIRE_FORMAT.md alone, SipHash included, so that it does not repeat a mistake of the product's. Run as a
program it serves one port on several addresses; as a class it is a server of the lab like any other. A GET tells who
answers. One whose key is REFUSE, a replica's name and a node id is refused by that replica, which names that node as the
leader.
"""

import selectors
import socket
import struct
import sys

MAGIC, VERSION, WRITE, GET = 0x48, 2, 2, 3
OK, NOT_LEADER = 0, 7
LEADING, RESIGNING = 1, 2
REFUSE = b"refuse"
PORT, ANNOUNCE_PORT = 4801, 4803


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 (Aumasson and Bernstein 2012, section 2)."""
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[2] = (v[2] + v[3]) & mask
            v[1] = rotated(v[1], 13) ^ v[0]
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[1]) & mask
            v[0] = (v[0] + v[3]) & mask
            v[1] = rotated(v[1], 17) ^ v[2]
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    whole = len(message) // 8 * 8
    last = message[whole:].ljust(7, b"\0") + bytes([len(message) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", message[:whole] + last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def announcement(key: bytes, *, cluster: int, address: str, term: int, sequence: int = 1, epoch: int = 0,
                 state: int = LEADING, port: int = PORT) -> bytes:
    """As the leader sends it to a proxy whose key this is."""
    six = ":" in address
    at = socket.inet_pton(socket.AF_INET6, address if six else f"::ffff:{address}")
    head = struct.pack("<4sBBH", b"HRA1", 1, state, 104)
    rest = struct.pack("<QQQQ", cluster, epoch, term, sequence) + at + struct.pack("!H", port) + bytes(38)
    tag = siphash(key, head + bytes(8) + rest)
    return head + struct.pack("<Q", tag) + rest


def request(kind: int, client: int, seq: int, body: bytes = b"") -> bytes:
    return struct.pack("<BBBBIQQQQ", MAGIC, VERSION, kind, 0, 0, client, seq, 0, 0) + body


def get(client: int, seq: int, key: bytes) -> bytes:
    return request(GET, client, seq, bytes([len(key)]) + key)


def answer_of(payload: bytes) -> tuple[int, int, bytes]:
    """Status, hint and value of an answer to a GET."""
    status, hint = struct.unpack_from("<BI", payload, 3)
    return status, hint, payload[34:]


def answer(payload: bytes, identity: bytes) -> bytes:
    kind, key = payload[2], payload[41:]
    status, hint, body = OK, 0, struct.pack("<H", len(identity)) + identity
    if key.startswith(REFUSE + identity):
        status, hint, body = NOT_LEADER, int(key[len(REFUSE + identity):]), b""
    return struct.pack("<BBBBI", MAGIC, VERSION, kind | 0x80, status, hint) + payload[8:24] + bytes(8) + body


def serve(port: int, identity: bytes, addresses: list[str]) -> None:
    selector = selectors.DefaultSelector()
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((address, port))
        selector.register(sock, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            payload, client = key.fileobj.recvfrom(65535)
            if len(payload) >= 32 and payload[0] == MAGIC:
                key.fileobj.sendto(answer(payload, identity), client)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:])
else:
    from deploy.lab.servers import Server, round_trip

    class NodeStub(Server):
        name = "node"

        def __init__(self, host, port: int = PORT):
            super().__init__(host, port)

        def command(self) -> list[str]:
            return [sys.executable, __file__, str(self.port), self.host.name, self.host.ipv4, self.host.ipv6]

        def answers(self, address: str) -> bool:
            reply = round_trip(self.host, address, self.port, get(0, 0, b"ready"))
            return reply is not None and answer_of(reply)[0] == OK
