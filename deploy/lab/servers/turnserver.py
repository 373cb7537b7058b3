# SPDX-License-Identifier: Apache-2.0
"""coturn's turnserver, as a STUN server alone, without the NAT behaviour tests of RFC 5780: its client would go on with those."""

import secrets
import struct

from deploy.lab.servers.server import Server, round_trip

PORT = 3478
_COOKIE = 0x2112A442


class Turnserver(Server):
    name, default_port = "turnserver", PORT

    def command(self) -> list[str]:
        return ["/usr/bin/turnserver", "-n", "--stun-only", "--no-tls", "--no-dtls", "--no-cli", "--no-tcp", "--no-rfc5780", "-m", "0",
                "-L", self.host.ipv4, "-L", self.host.ipv6, "-p", str(self.port), "--log-file=stdout", "--simple-log",
                f"--pidfile={self.folder}/pid", f"--userdb={self.folder}/db"]

    def answers(self, address: str) -> bool:
        transaction = secrets.token_bytes(12)
        answer = round_trip(self.host, address, self.port, struct.pack("!HHI", 1, 0, _COOKIE) + transaction)
        return answer is not None and answer[:2] == b"\x01\x01" and answer[8:20] == transaction
