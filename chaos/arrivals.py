# SPDX-License-Identifier: Apache-2.0
"""How many requests reached a node, counted by its host's kernel: the counters of a node die with it, and what it received
in its last moments would be missing.

A datagram counts if a socket was there to take it, so what was sent to a dead node is left out. That is a rule of
nftables for each host; an experiment that cannot count goes without the figure, and says so.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence

from deploy.lab import CommandFailed, Host

_TABLE = "hedgerow_arrivals"


class Arrivals:
    def __init__(self, hosts: Sequence[Host], port: int):
        self._hosts, self._port = hosts, port

    def total(self) -> int:
        return sum(self._count(host) for host in self._hosts)

    def _count(self, host: Host) -> int:
        listed = json.loads(host.run(["nft", "-j", "list", "counter", "inet", _TABLE, "requests"]).stdout)
        return next(entry["counter"]["packets"] for entry in listed["nftables"] if "counter" in entry)

    def install(self) -> None:
        for host in self._hosts:
            # `socket mark` matches only where there is a socket; ours carry no mark.
            host.run(["nft", "-f", "-"], stdin=f"""table inet {_TABLE} {{
                counter requests {{ }}
                chain arriving {{
                    type filter hook input priority 0;
                    udp dport {self._port} socket mark 0 counter name requests
                }}
            }}
            """)

    def remove(self) -> None:
        for host in self._hosts:
            host.run(["nft", "delete", "table", "inet", _TABLE], check=False)


@contextlib.contextmanager
def counted(hosts: Sequence[Host], port: int) -> Iterator[Arrivals | None]:
    """Counts from zero inside the block; None where the kernel or nft cannot."""
    arrivals = Arrivals(hosts, port)
    try:
        try:
            arrivals.install()
        except CommandFailed as error:
            print(f"chaos: requests that arrive are not counted: {error}", flush=True)
            yield None
            return
        yield arrivals
    finally:
        arrivals.remove()
