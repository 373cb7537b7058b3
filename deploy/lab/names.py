# SPDX-License-Identifier: Apache-2.0
"""Names and addresses of the lab, in one place so that configs, tests and plots agree on them.

Everything a lab leaves on the machine carries its tag: namespaces are `hr-<tag>-<host>`, files live under
`/run/hedgerow-lab/<tag>`. That is what lets a later run find and remove what a killed one left.
"""

import re
from pathlib import Path

RUN_DIR = Path("/run/hedgerow-lab")
NETNS_DIR = Path("/run/netns")

# Where nodes keep their data. Debian's own places: /dev/shm is a tmpfs everywhere, /var/tmp outlives a boot and so is on a disk.
DATA = {"memory": Path("/dev/shm"), "disk": Path("/var/tmp")}

CLIENT = "client"
INNER = "inner"
SWITCH = "sw"
REPLICAS = "abcdefgh"  # a service has at most 8 backends

CLIENT_IPV4, CLIENT_IPV6 = "10.77.0.1", "fd77::1"
MOST_CLIENTS = 8
PREFIX_IPV4, PREFIX_IPV6 = 24, 64

# The container network: the client host is the gateway of the host `inner`.
INNER_GATEWAY_IPV4, INNER_GATEWAY_IPV6 = "10.78.0.1", "fd78::1"
INNER_IPV4, INNER_IPV6 = "10.78.0.2", "fd78::2"
INNER_NET_IPV4, INNER_NET_IPV6 = "10.78.0.0/24", "fd78::/64"

# Virtual addresses of the services: (IPv4, IPv6).
VIP_DNS = ("10.99.0.53", "fd99::53")
VIP_RAW = ("10.99.0.1", "fd99::1")
VIP_KV = ("10.99.0.48", "fd99::48")

_TAG = re.compile(r"[a-z0-9]{1,12}")
_HOST = re.compile(r"[a-z0-9]{1,10}")
_NETNS = re.compile(r"hr-([a-z0-9]+)-([a-z0-9]+)")


def check_tag(tag: str) -> str:
    """A tag holds no dash, so that the names of one lab are never a prefix of another's."""
    if not _TAG.fullmatch(tag):
        raise ValueError(f"lab tag {tag!r}: expected 1 to 12 characters of a-z and 0-9")
    return tag


def netns_name(tag: str, host: str) -> str:
    if not _HOST.fullmatch(host):
        raise ValueError(f"lab host {host!r}: expected 1 to 10 characters of a-z and 0-9")
    return f"hr-{check_tag(tag)}-{host}"


def host_of_netns(tag: str, name: str) -> str | None:
    """The host part of a namespace's name, or None when the namespace is not this lab's. Tests have some of their own,
    `hr-<kind>-<pid>`."""
    prefix = f"hr-{check_tag(tag)}-"
    host = name.removeprefix(prefix)
    return host if name.startswith(prefix) and is_host(host) else None


def run_dir(tag: str) -> Path:
    return RUN_DIR / check_tag(tag)


def tags() -> list[str]:
    """Of all labs that are up or have left something."""
    left = [path.name.partition("-")[0] for path in RUN_DIR.glob("*")]
    left += [found[1] for path in NETNS_DIR.glob("hr-*-*") if (found := _NETNS.fullmatch(path.name)) and is_host(found[2])]
    left += [path.name.split("-")[2] for parent in DATA.values() for path in parent.glob("hedgerow-lab-*-*")]
    return sorted(set(filter(_TAG.fullmatch, left)))


def ended_netns() -> list[str]:
    """Of no lab, `hr-<kind>-<pid>`, whose process is no more."""
    found = filter(None, (_NETNS.fullmatch(path.name) for path in NETNS_DIR.glob("hr-*-*")))
    return sorted(each[0] for each in found if each[2].isdigit() and not Path("/proc", each[2]).exists())


def client_name(number: int) -> str:
    """`client`, `client2`, `client3` and so on: hosts that are alike, each with an uplink of its own."""
    return CLIENT if number == 1 else f"{CLIENT}{number}"


def is_client(name: str) -> bool:
    return name in {client_name(number) for number in range(1, MOST_CLIENTS + 1)}


def is_host(name: str) -> bool:
    """Whether a lab may have a host, or its switch, of that name."""
    return is_client(name) or name in {INNER, SWITCH, *REPLICAS}


def client_addresses(number: int) -> tuple[str, str]:
    return f"10.77.0.{number}", f"fd77::{number}"


def replica_addresses(name: str) -> tuple[str, str]:
    """Replica a is 10.77.0.11 and fd77::b, b is 10.77.0.12 and fd77::c, and so on."""
    number = 10 + REPLICAS.index(name) + 1
    return f"10.77.0.{number}", f"fd77::{number:x}"
