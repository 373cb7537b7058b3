# SPDX-License-Identifier: Apache-2.0
"""Servers of the recipes that no package of Debian brings in a small size: SIP's OPTIONS and RADIUS with PAP.

Run as a program it is one of them; as classes they are servers of the lab like any other.
"""

import hashlib
import hmac
import secrets
import socket
import struct
import sys

SECRET = b"testing123"
ACCESS_REQUEST, ACCESS_ACCEPT, ACCESS_REJECT = 1, 2, 3
USER_NAME, USER_PASSWORD, REPLY_MESSAGE = 1, 2, 18


def hidden(password: bytes, authenticator: bytes) -> bytes:
    """RFC 2865 section 5.2, for a password of at most 16 bytes; the same both ways."""
    key = hashlib.md5(SECRET + authenticator).digest()
    return bytes(a ^ b for a, b in zip(password.ljust(16, b"\0"), key, strict=True))


def attribute(kind: int, value: bytes) -> bytes:
    return bytes([kind, len(value) + 2]) + value


def access_request(identifier: int, password: bytes) -> bytes:
    authenticator = secrets.token_bytes(16)
    attributes = attribute(USER_NAME, b"alice") + attribute(USER_PASSWORD, hidden(password, authenticator))
    return struct.pack("!BBH", ACCESS_REQUEST, identifier, 20 + len(attributes)) + authenticator + attributes


def response_authenticator(response: bytes, request: bytes) -> bytes:
    return hashlib.md5(response[:4] + request[4:20] + response[20:] + SECRET).digest()


def is_genuine(response: bytes, request: bytes) -> bool:
    return hmac.compare_digest(response[4:20], response_authenticator(response, request))


def radius(request: bytes, name: str) -> bytes | None:
    if len(request) < 20 or request[0] != ACCESS_REQUEST:
        return None
    sent = request[request.index(bytes([USER_PASSWORD, 18]), 20) + 2:][:16]
    right = hidden(sent, request[4:20]).rstrip(b"\0") == b"secret"
    said = attribute(REPLY_MESSAGE, name.encode())
    response = struct.pack("!BBH", ACCESS_ACCEPT if right else ACCESS_REJECT, request[1], 20 + len(said)) + bytes(16) + said
    return response[:4] + response_authenticator(response, request) + response[20:]


def sip(request: bytes, name: str) -> bytes | None:
    """200 to anything, as a user agent answers OPTIONS; headers in another order and case than the request's."""
    lines = request.decode("latin-1").split("\r\n")
    headers = [line for line in lines[1:] if line.split(":")[0].lower() in ("via", "v", "from", "to", "call-id", "i", "cseq")]
    if len(headers) < 5:
        return None
    answer = ["SIP/2.0 200 OK", f"Server: {name}", *(line.replace("Call-ID:", "i:") for line in reversed(headers)), "Content-Length: 0"]
    return "\r\n".join([*answer, "", ""]).encode("latin-1")


def serve(kind: str, name: str, port: int, address: str) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    while True:
        payload, client = sock.recvfrom(65535)
        answer = {"sip": sip, "radius": radius}[kind](payload, name)
        if answer is not None:
            sock.sendto(answer, client)


def options(call_id: str, cseq: int) -> bytes:
    return (f"OPTIONS sip:b@10.99.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 10.77.0.1:5060;branch=z9hG4bK{cseq}\r\nFrom: <sip:a@x>;tag=1\r\n"
            f"To: <sip:b@x>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} OPTIONS\r\nContent-Length: 0\r\n\r\n").encode()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
else:
    from deploy.lab.servers import Server, round_trip

    class _Recipe(Server):
        default_port = 0

        def __init__(self, host, port: int = 0):
            super().__init__(host, port or self.default_port)

        @property
        def addresses(self) -> list[str]:
            return [self.host.ipv4]

        def command(self) -> list[str]:
            return [sys.executable, __file__, self.name, self.host.name, str(self.port), self.host.ipv4]

    class SipServer(_Recipe):
        name, default_port = "sip", 5060

        def answers(self, address: str) -> bool:
            answer = round_trip(self.host, address, self.port, options("ready", 1))
            return answer is not None and answer.startswith(b"SIP/2.0 200")

    class RadiusServer(_Recipe):
        name, default_port = "radius", 1812

        def answers(self, address: str) -> bool:
            request = access_request(1, b"secret")
            answer = round_trip(self.host, address, self.port, request)
            return answer is not None and is_genuine(answer, request)

    class Snmpd(_Recipe):
        """net-snmp's agent; v2c with a community, and v3 as one engine that both servers claim to be."""

        name, default_port = "snmpd", 161

        def command(self) -> list[str]:
            config = self.folder / "snmpd.conf"
            config.write_text("rocommunity public\nexactEngineID 0x80001f8803686564676572\n"
                              "createUser reader SHA password-of-reader\nrouser reader authNoPriv\n"
                              f"sysName {self.host.name}\n", encoding="ascii")
            return ["env", f"SNMP_PERSISTENT_DIR={self.folder}/state", "MIBS=", "/usr/sbin/snmpd", "-f", "-Lo", "-r", "-C", "-c",
                    str(config), f"udp:{self.host.ipv4}:{self.port}"]

        def answers(self, address: str) -> bool:
            get = bytes.fromhex("3026020101" "04067075626c6963" "a019020107020100020100" "300e300c" "06082b06010201010500" "0500")
            answer = round_trip(self.host, address, self.port, get)
            return answer is not None and self.host.name.encode() in answer
