# SPDX-License-Identifier: Apache-2.0
"""The wire: a bridge with a tap for each card, in a network namespace of its own.

Taps and not QEMU's sockets or hubs, because only a tap passes on what a card leaves to the next one (segmentation and partial
checksums, as between the machines of one cloud host): behind a socket QEMU takes virtio-net's offloads away. The host's own
network is not touched: the namespace ends with the process that holds it, and that one with this process.
"""

import os
import subprocess

from deploy.vm.kernels import Broken, Unavailable

# What a jumbo frame and a VLAN tag need, on every tap.
_MTU = 9100


class Network:
    """`with Network() as network`: then add_tap(), and run QEMU behind command()."""

    def __init__(self) -> None:
        # Without root the namespace belongs to a user namespace, in which we are root.
        self._own_user = ["--user"] if os.geteuid() != 0 else []
        self._holder: subprocess.Popen | None = None
        self._taps = 0

    def __enter__(self) -> "Network":
        map_root = ["--map-root-user"] if self._own_user else []
        # It ends when its standard input does: with this process, however that ends.
        self._holder = subprocess.Popen(["unshare", *self._own_user, *map_root, "--net", "sh", "-c", "echo up; read -r end"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._holder.stdout.readline() != "up\n":
            self.__exit__()
            raise Unavailable("no network namespace can be made here (root, or unprivileged user namespaces, make one)")
        self._ip("link add sw type bridge stp_state 0 forward_delay 0 mcast_snooping 0", "link set sw up")
        return self

    def __exit__(self, *_) -> None:
        if self._holder is not None:
            self._holder.stdin.close()
            self._holder.wait()
            self._holder.stdout.close()
            self._holder = None

    def command(self, words: list[str]) -> list[str]:
        """The words that run a command in the network's namespace."""
        as_root = ["--user", "--preserve-credentials"] if self._own_user else []
        return ["nsenter", "--target", str(self._holder.pid), *as_root, "--net", "--", *words]

    def add_tap(self, queues: int) -> str:
        """A new tap on the bridge, by its name."""
        name = f"tap{self._taps}"
        self._taps += 1
        several = " multi_queue" if queues > 1 else ""
        self._ip(f"tuntap add dev {name} mode tap vnet_hdr{several}", f"link set {name} mtu {_MTU} master sw up")
        return name

    def _ip(self, *lines: str) -> None:
        done = subprocess.run(self.command(["ip", "-batch", "-"]), input="\n".join(lines) + "\n", capture_output=True,
                              text=True, check=False)
        if done.returncode == 0:
            return
        if "/dev/net/tun" in done.stderr:
            raise Unavailable(f"no tap can be made here: {' '.join(done.stderr.split())}")
        raise Broken(f"the software network: {done.stderr.strip()}")


