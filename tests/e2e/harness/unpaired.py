# SPDX-License-Identifier: Apache-2.0
"""Servers of protocols without request and reply: a sink, which never answers, and one that keeps sessions.

Run as a program it is one of them; as classes they are servers of the lab like any other.
"""

import socket
import sys
import threading


def sink(sock: socket.socket) -> None:
    """Writes each datagram as a line, and answers nothing."""
    while True:
        print(sock.recv(65535).decode("latin-1"), flush=True)


def sessions(sock: socket.socket, name: str) -> None:
    """`open` begins a client's session; anything else counts within it, and is refused without one. `quiet...` gets no answer."""
    known: dict[tuple, int] = {}
    while True:
        payload, client = sock.recvfrom(65535)
        if payload == b"open":
            known[client] = 0
        elif client in known:
            known[client] += 1
        if payload.startswith(b"quiet"):
            continue
        answer = f"{name} {known[client]}" if client in known else f"{name} unknown"
        sock.sendto(answer.encode(), client)


def serve(kind: str, name: str, port: int, addresses: list[str]) -> None:
    threads = []
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind((address, port))
        threads.append(threading.Thread(target=sink if kind == "sink" else sessions,
                                        args=(sock,) if kind == "sink" else (sock, name)))
        threads[-1].start()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
else:
    from deploy.lab.servers import Server, round_trip

    class _Unpaired(Server):
        def __init__(self, host, port: int = 4000):
            super().__init__(host, port)

        def command(self) -> list[str]:
            return [sys.executable, __file__, self.name, self.host.name, str(self.port), self.host.ipv4, self.host.ipv6]

    class SinkServer(_Unpaired):
        name = "sink"

        def answers(self, address: str) -> bool:
            with self.host.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
                sock.sendto(f"ready {address}".encode(), (address, self.port))
            return self.log.exists() and f"ready {address}" in self.log.read_text()

        def lines(self, beginning: str) -> list[str]:
            """What it has received that begins so, in order."""
            return [line for line in self.log.read_text().splitlines() if line.startswith(beginning)]

    class SessionServer(_Unpaired):
        name = "sessions"

        def answers(self, address: str) -> bool:
            return round_trip(self.host, address, self.port, b"hello") == f"{self.host.name} unknown".encode()
