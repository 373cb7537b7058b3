# SPDX-License-Identifier: Apache-2.0
"""Network namespaces: make, enter, list, remove.

Only the *network* namespace is entered, never the mount namespace as `ip netns exec` does: that would put a
fresh /sys over the machine's and hide bpffs from the programs under test.
"""

import contextlib
import ctypes
import ipaddress
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError
from pyroute2 import netns as pyroute2_netns

from deploy.lab import names

_CLONE_NEWNET = 0x40000000
_IFA_F_NODAD = 0x02
_RTN_LOCAL = 2
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(name: str) -> Path:
    return names.NETNS_DIR / name


def create(name: str) -> None:
    pyroute2_netns.create(name)


def remove(name: str) -> None:
    """Takes the name away. The kernel frees the namespace when its last process and socket are gone."""
    with contextlib.suppress(FileNotFoundError):
        pyroute2_netns.remove(name)


def add_addresses(route: IPRoute, index: int, ipv4: str, ipv6: str) -> None:
    """One of each family, with the lab's prefixes, of an interface that is up; IPv6 without duplicate address detection."""
    # Real hosts have a broadcast address. libcoap 4.3.4 takes an address without one for a broadcast address and serves nothing there.
    broadcast = ipaddress.ip_interface(f"{ipv4}/{names.PREFIX_IPV4}").network.broadcast_address
    route.addr("add", index=index, address=ipv4, prefixlen=names.PREFIX_IPV4, broadcast=str(broadcast))
    route.addr("add", index=index, address=ipv6, prefixlen=names.PREFIX_IPV6, flags=_IFA_F_NODAD)
    wait_for_own_route(route, ipv6)


def wait_for_own_route(route: IPRoute, ipv6: str, timeout_s: float = 10.0) -> None:
    """A worker of the kernel makes an IPv6 address's own route some time after the address, also without duplicate address detection.
    Until then what is sent to it is lost."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(NetlinkError):  # there is no route at all
            if any(found["type"] == _RTN_LOCAL for found in route.route("get", dst=ipv6)):
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the kernel makes no route to the own address {ipv6}")
        time.sleep(0.001)


def of_lab(tag: str) -> list[str]:
    if not names.NETNS_DIR.is_dir():
        return []
    found = (entry.name for entry in names.NETNS_DIR.iterdir())
    return sorted(name for name in found if names.host_of_netns(tag, name))


def is_namespace(name: str) -> bool:
    return os.path.ismount(path_of(name))


def identity(path: Path | str) -> tuple[int, int]:
    """Device and inode of a namespace file: equal for equal namespaces, whatever they are called."""
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


def _set_netns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"setns: {os.strerror(error)}")


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """The calling thread is in the namespace inside the block. Sockets opened there stay there, and processes
    started there are born there, so no wrapper program is needed."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(path_of(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_netns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _set_netns(home)
    finally:
        os.close(home)


def write_sysctl(name: str, key: str, value: int | str, *, optional: bool = False) -> None:
    """`key` is a path below /proc/sys. With `optional`, a key this kernel does not have is passed over."""
    with entered(name):
        try:
            Path("/proc/sys", key).write_text(f"{value}\n", encoding="ascii")
        except FileNotFoundError:
            if not optional:
                raise


def read_sysctl(name: str, key: str) -> str:
    with entered(name):
        return Path("/proc/sys", key).read_text(encoding="ascii").strip()


def pids_in(identities: set[tuple[int, int]]) -> list[int]:
    """Every process whose network namespace is one of those, children and detached daemons included."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            # A process may end, or be one we may not look at, while we read.
            with contextlib.suppress(OSError):
                if identity(f"/proc/{entry}/ns/net") in identities:
                    found.append(int(entry))
    return found
