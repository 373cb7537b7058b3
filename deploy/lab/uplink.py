# SPDX-License-Identifier: Apache-2.0
"""How a host is wired: the options of its uplink, and the two knobs pyroute2 does not cover.

A veth passes partial checksums through unchecked, so a wrong checksum stays hidden in a lab of veths. With
`tx_checksum=False` the uplink finalises checksums as a real card would, and the receiver verifies them.
"""

import array
import dataclasses
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_ETHTOOL_GTXCSUM, _ETHTOOL_STXCSUM = 0x16, 0x17


@dataclasses.dataclass(frozen=True)
class Uplink:
    """Options of one host's `eth0`. Rate and delay apply to what the host sends."""

    tx_checksum: bool = True
    mtu: int = 1500
    rate_kbit: int | None = None  # a tbf
    delay_ms: float | None = None  # a netem; not every kernel has it


def _ethtool(ifname: str, command: int, value: int) -> int:
    """The ioctl of `ethtool -k/-K tx`: one fewer program to depend on."""
    request = array.array("B", struct.pack("II", command, value))
    address, _ = request.buffer_info()
    ifreq = struct.pack("16sP", ifname.encode(), address) + bytes(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, ifreq)
    return struct.unpack("II", request.tobytes())[1]


def set_tx_checksum(ifname: str, on: bool) -> None:
    """The caller has entered the host's namespace."""
    _ethtool(ifname, _ETHTOOL_STXCSUM, int(on))


def get_tx_checksum(ifname: str) -> bool:
    return bool(_ethtool(ifname, _ETHTOOL_GTXCSUM, 0))
