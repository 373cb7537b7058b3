# SPDX-License-Identifier: Apache-2.0
"""A UDP server that sends every datagram back, for the raw profile: payloads of any length and content.

Run as a program it serves one port on several addresses; as a class it is a server of the lab like any other. A
datagram that begins with TWICE is answered by two datagrams, as some protocols do. Datagrams with BATCH are answered together, once no
further one waits: a client's in one packet by UDP segmentation offload, as some DNS and QUIC servers do.
"""

import selectors
import socket
import struct
import sys

TWICE = b"2x"  # at offset 4, behind the correlation bytes
BATCH = b"gs"  # there as well
SOL_UDP, UDP_SEGMENT = 17, 103
BATCH_PAUSE_S = 0.02  # a batch has ended when nothing has come for so long


def send_batch(sock: socket.socket, client: tuple, payloads: list[bytes]) -> None:
    """All are of one length, and at most 64 go into one packet."""
    for first in range(0, len(payloads), 64):
        segment = struct.pack("=H", len(payloads[0]))
        sock.sendmsg([b"".join(payloads[first:first + 64])], [(SOL_UDP, UDP_SEGMENT, segment)], 0, client)


def serve(port: int, addresses: list[str]) -> None:
    selector = selectors.DefaultSelector()
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind((address, port))
        selector.register(sock, selectors.EVENT_READ)
    batches: dict[tuple, list[bytes]] = {}
    while True:
        ready = selector.select(BATCH_PAUSE_S if batches else None)
        for (sock, client), payloads in batches.items() if not ready else ():
            send_batch(sock, client, payloads)
        if not ready:
            batches.clear()
        for key, _ in ready:
            payload, client = key.fileobj.recvfrom(65535)
            if payload[4:6] == BATCH:
                batches.setdefault((key.fileobj, client), []).append(payload)
                continue
            for _ in range(2 if payload[4:6] == TWICE else 1):
                key.fileobj.sendto(payload, client)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
else:
    from deploy.lab.servers import Server, round_trip

    class EchoServer(Server):
        name = "echo"

        def __init__(self, host, port: int = 4000):
            super().__init__(host, port)

        def command(self) -> list[str]:
            return [sys.executable, __file__, str(self.port), self.host.ipv4, self.host.ipv6]

        def answers(self, address: str) -> bool:
            return round_trip(self.host, address, self.port, b"hello") == b"hello"
