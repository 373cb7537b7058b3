# SPDX-License-Identifier: Apache-2.0
"""The published technique in Hedgerow's place: hr-delay-line (bench/delay_line) hedges the requests that the client
host sends to the first backend of a service. To a benchmark it looks like product.Product: up inside the `with` block, and a
status of the same shape.
"""

import json
import subprocess

from bench.product import Product
from bench.replicas import BenchServer
from deploy.lab import Host
from deploy.lab.host import UPLINK

# Mode of a benchmark to the queueing discipline in which the clones wait.
MODES = {f"qdisc-{line}": line for line in ("netem", "fq", "htb")}


class DelayLine(BenchServer):
    """Clients send to the first backend's own address: there is no VIP."""

    def __init__(self, host: Host, service: dict, line: str, attach: str = "auto", id_bytes: int = 4):
        self.service = service
        primary, standby = (f"{backend['address']}:{backend['port']}" for backend in service["backends"][:2])
        super().__init__(host, "hr-delay-line", [f"--primary={primary}", f"--standby={standby}", f"--delay={service.get('delay', '10ms')}",
                                                 f"--qdisc={line}", f"--attach={attach}", f"--id_bytes={id_bytes}", f"--uplink={UPLINK}"],
                         stdin=subprocess.PIPE)

    def __exit__(self, *exc) -> None:
        super().__exit__(*exc)
        self._child.stdin.close()

    def figures(self) -> dict:
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return json.loads(self._child.stdout.readline())

    def status(self) -> dict:
        """As `hedgerow status --json`, as far as benchmarks read it."""
        figures = self.figures()
        return {"pid": self.pid, "services": [{
            "name": self.service["name"], "requests": figures["requests"], "hedges": figures["hedges"],
            "identity_ok": figures["won_by_hedge"] <= figures["hedges"], "fire_error_ns": figures["fire_error_ns"],
            "counters": {"won_by_hedge": figures["won_by_hedge"], "losers_dropped": figures["losers_dropped"]},
            "reasons": {"delay_line_full": figures["line_full"]}}]}

    status_at_rest = status


Hedger = Product | DelayLine


def hedger(host: Host, instance: str, service: dict, mode: str) -> Hedger:
    """What hedges in this mode of a benchmark."""
    return DelayLine(host, service, MODES[mode]) if mode in MODES else Product(host, instance, [service])
