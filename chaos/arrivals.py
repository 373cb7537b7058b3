# SPDX-License-Identifier: Apache-2.0
"""How many requests reached a node, counted by its host's kernel: the counters of a node die with it, and what it received
in its last moments would be missing.

A datagram counts if a socket was there to take it, so what was sent to a dead node is left out. That is a rule of
nftables for each host; an experiment that cannot count goes without the figure, and says so.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence

from deploy.lab import CommandFailed, Host

_TABLE = "hedgerow_arrivals"


@contextlib.contextmanager
def counted(hosts: Sequence[Host], port: int) -> Iterator[Callable[[], int] | None]:
    """Counts from zero inside the block: how many so far, at all hosts. None where the kernel or nft cannot."""
    # `socket mark` matches only where there is a socket; ours carry no mark.
    rules = f"""table inet {_TABLE} {{
        counter requests {{ }}
        chain arriving {{
            type filter hook input priority 0;
            udp dport {port} socket mark 0 counter name requests
        }}
    }}
    """

    def count(host: Host) -> int:
        listed = json.loads(host.run(["nft", "-j", "list", "counter", "inet", _TABLE, "requests"]).stdout)
        return next(entry["counter"]["packets"] for entry in listed["nftables"] if "counter" in entry)

    try:
        try:
            for host in hosts:
                host.run(["nft", "-f", "-"], stdin=rules)
        except CommandFailed as error:
            print(f"chaos: requests that arrive are not counted: {error}", flush=True)
            yield None
            return
        yield lambda: sum(map(count, hosts))
    finally:
        for host in hosts:
            host.run(["nft", "delete", "table", "inet", _TABLE], check=False)
