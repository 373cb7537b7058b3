# SPDX-License-Identifier: Apache-2.0
"""Real servers of protocols other than DNS for the lab's replicas: memcached, coturn's turnserver and libcoap's example."""

import secrets
import socket
import struct

from deploy.lab.servers import Server, round_trip

_GET_ROOT = bytes.fromhex("40011234")  # CoAP version 1, CON, GET, message id 0x1234
_COOKIE = 0x2112A442  # of STUN


def frame(request_id: int, body: bytes, sequence: int = 0, total: int = 1) -> bytes:
    """doc/protocol.txt, "UDP protocol": request id, sequence number, number of datagrams, reserved."""
    return struct.pack("!HHHH", request_id, sequence, total, 0) + body


class Memcached(Server):
    """With UDP switched on (Debian's default is off). Each replica knows the key `whoami`: the host's name."""

    name, default_port = "memcached", 11211

    def command(self) -> list[str]:
        return ["/usr/bin/memcached", "-u", "root", "-p", str(self.port), "-U", str(self.port), "-m", "64",
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


class Turnserver(Server):
    """As a STUN server alone, without the NAT behaviour tests of RFC 5780: its client would go on with those."""

    name, default_port = "turnserver", 3478

    def command(self) -> list[str]:
        return ["/usr/bin/turnserver", "-n", "--stun-only", "--no-tls", "--no-dtls", "--no-cli", "--no-tcp", "--no-rfc5780", "-m", "0",
                "-L", self.host.ipv4, "-L", self.host.ipv6, "-p", str(self.port), "--log-file=stdout", "--simple-log",
                f"--pidfile={self.folder}/pid", f"--userdb={self.folder}/db"]

    def answers(self, address: str) -> bool:
        transaction = secrets.token_bytes(12)
        answer = round_trip(self.host, address, self.port, struct.pack("!HHI", 1, 0, _COOKIE) + transaction)
        return answer is not None and answer[:2] == b"\x01\x01" and answer[8:20] == transaction


class CoapServer(Server):
    """The protocol of the worked example in docs/profile-language.md."""

    name, default_port = "coap-server", 5683

    def command(self) -> list[str]:
        return ["/usr/bin/coap-server-notls", "-p", str(self.port), "-v", "3"]

    def answers(self, address: str) -> bool:
        answer = round_trip(self.host, address, self.port, _GET_ROOT)
        return answer is not None and answer[2:4] == _GET_ROOT[2:4]
