# SPDX-License-Identifier: Apache-2.0
"""One UDP datagram there and back, for asking whether a server is up."""

import socket

from deploy.lab import Host


def udp_round_trip(host: Host, address: str, port: int, payload: bytes, timeout_s: float = 0.2) -> bytes | None:
    with host.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect((address, port))
            sock.send(payload)
            return sock.recv(65535)
        except OSError:  # refused or silent
            return None
