# SPDX-License-Identifier: Apache-2.0
"""A packet capture on one link of a host, with UDP checksums checked by our own arithmetic.

The kernel's buffer holds what passes; the test reads it when the traffic is over. AF_PACKET sees what a link
receives before and after the proxy's programs ran, depending on the link: the uplink shows what replicas sent,
the proxy interface what the client is given.
"""

import dataclasses
import ipaddress
import socket
import struct

from deploy.lab import Host

_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_AUXDATA = 263, 8
_TP_STATUS_CSUMNOTREADY = 1 << 3
_PACKET_OUTGOING = 4
_SO_RCVBUFFORCE = 33
_UDP, _FRAGMENT_HEADER = 17, 44


@dataclasses.dataclass(frozen=True)
class Datagram:
    source: str
    destination: str
    source_port: int
    destination_port: int
    payload: bytes
    outgoing: bool
    checksum_complete: bool  # False: the checksum is still to be finished by a device
    checksum_ok: bool


class Capture:
    """Unfragmented UDP of one link, as a context manager."""

    def __init__(self, host: Host, ifname: str):
        self._socket = host.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        with host.entered():
            self._socket.bind((ifname, _ETH_P_ALL))
        self._socket.setblocking(False)

    def __enter__(self) -> "Capture":
        return self

    def __exit__(self, *_exc) -> None:
        self._socket.close()

    def datagrams(self) -> list[Datagram]:
        """What was captured since the last call."""
        found = []
        while True:
            try:
                frame, control, _flags, address = self._socket.recvmsg(65535, 256)
            except BlockingIOError:
                return found
            status = struct.unpack("I", control[0][2][:4])[0] if control else 0
            datagram = _parse(frame, outgoing=address[2] == _PACKET_OUTGOING,
                              complete=not status & _TP_STATUS_CSUMNOTREADY)
            if datagram is not None:
                found.append(datagram)


def _parse(frame: bytes, *, outgoing: bool, complete: bool) -> Datagram | None:
    kind = int.from_bytes(frame[12:14], "big")
    packet = frame[14:]
    if kind == 0x0800:
        header_bytes = (packet[0] & 0xF) * 4
        total, fragment = struct.unpack("!H", packet[2:4])[0], struct.unpack("!H", packet[6:8])[0] & 0x3FFF
        if packet[9] != _UDP or fragment:
            return None
        source, destination, udp = packet[12:16], packet[16:20], packet[header_bytes:total]
    elif kind == 0x86DD:
        if packet[6] != _UDP:
            return None
        source, destination = packet[8:24], packet[24:40]
        udp = packet[40:40 + struct.unpack("!H", packet[4:6])[0]]
    else:
        return None
    source_port, destination_port = struct.unpack("!HH", udp[:4])
    return Datagram(str(ipaddress.ip_address(source)), str(ipaddress.ip_address(destination)), source_port,
                    destination_port, udp[8:], outgoing, complete, udp_checksum_ok(source, destination, udp))


def udp_checksum_ok(source: bytes, destination: bytes, udp: bytes) -> bool:
    """RFC 768 and RFC 8200 section 8.1: the sum over pseudo-header and datagram is all ones. No checksum at all is
    allowed to IPv4 by the letter; here it is a fault, because nothing we send goes without."""
    if udp[6:8] == b"\0\0":
        return False
    words = source + destination + struct.pack("!II", len(udp), _UDP) + udp + bytes(len(udp) % 2)
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF
