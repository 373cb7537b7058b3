# SPDX-License-Identifier: Apache-2.0
"""memcached with UDP switched on (Debian's default is off). Each replica knows the key `whoami`: the host's name."""

import socket
import struct

from deploy.lab.servers.server import Server, round_trip

PORT = 11211
MEBIBYTES = 64


def frame(request_id: int, body: bytes, sequence: int = 0, total: int = 1) -> bytes:
    """doc/protocol.txt, "UDP protocol": request id, sequence number, number of datagrams, reserved."""
    return struct.pack("!HHHH", request_id, sequence, total, 0) + body


class Memcached(Server):
    name, default_port = "memcached", PORT

    def command(self) -> list[str]:
        return ["/usr/bin/memcached", "-u", "root", "-p", str(self.port), "-U", str(self.port), "-m", str(MEBIBYTES),
                "-t", "1", "-l", f"{self.host.ipv4},{self.host.ipv6}"]

    def answers(self, address: str) -> bool:
        answer = round_trip(self.host, address, self.port, frame(1, b"version\r\n"))
        return answer is not None and answer[8:].startswith(b"VERSION")

    def start(self) -> "Memcached":
        super().start()
        self.store(b"whoami", self.host.name.encode())
        return self

    def store(self, key: bytes, value: bytes) -> None:
        """Over TCP, which takes values of any size, from the replica itself."""
        with self.host.socket(kind=socket.SOCK_STREAM) as sock:
            sock.settimeout(5)
            sock.connect((self.host.ipv4, self.port))
            sock.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
            answer = sock.recv(100)
        if answer != b"STORED\r\n":
            raise RuntimeError(f"memcached did not store {key!r}: {answer!r}")
