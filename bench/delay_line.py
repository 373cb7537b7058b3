# SPDX-License-Identifier: Apache-2.0
"""The published technique in Hedgerow's place: hr-delay-line (bench/delay_line) hedges the requests that the client
host sends to the first backend of a service. To a benchmark it looks like product.Product: up inside the `with` block, and a
status of the same shape.
"""

import json
import signal
import subprocess

from bench.manifest import binary
from bench.product import Product
from bench.replicas import MAX_SECONDS
from deploy.lab import CommandFailed, Host
from deploy.lab.host import UPLINK

# Mode of a benchmark to the queueing discipline in which the clones wait.
MODES = {f"qdisc-{line}": line for line in ("netem", "fq", "htb")}


class DelayLine:
    """Clients send to the first backend's own address: there is no VIP."""

    def __init__(self, host: Host, service: dict, line: str, attach: str = "auto", id_bytes: int = 4):
        self.host, self.service = host, service
        primary, standby = (f"{backend['address']}:{backend['port']}" for backend in service["backends"][:2])
        self.argv = [str(binary("hr-delay-line")), f"--primary={primary}", f"--standby={standby}",
                     f"--delay={service.get('delay', '10ms')}", f"--qdisc={line}", f"--attach={attach}",
                     f"--id_bytes={id_bytes}", f"--uplink={UPLINK}", f"--seconds={MAX_SECONDS}"]

    def __enter__(self) -> "DelayLine":
        self._child = self.host.popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
        first_line = self._child.stdout.readline().strip()
        if first_line != "ready":
            self.host.stop(self._child, signal.SIGKILL)
            raise CommandFailed(f"{' '.join(self.argv)}: {first_line}")
        return self

    def __exit__(self, *_exc) -> None:
        self.host.stop(self._child)
        self._child.stdin.close()
        self._child.stdout.close()

    def figures(self) -> dict:
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return json.loads(self._child.stdout.readline())

    def status(self) -> dict:
        """As `hedgerow status --json`, as far as benchmarks read it."""
        figures = self.figures()
        return {"pid": self._child.pid, "services": [{
            "name": self.service["name"], "requests": figures["requests"], "hedges": figures["hedges"],
            "identity_ok": figures["won_by_hedge"] <= figures["hedges"], "fire_error_ns": figures["fire_error_ns"],
            "counters": {"won_by_hedge": figures["won_by_hedge"], "losers_dropped": figures["losers_dropped"]},
            "reasons": {"delay_line_full": figures["line_full"]}}]}

    status_at_rest = status


Hedger = Product | DelayLine


def hedger(host: Host, instance: str, service: dict, mode: str) -> Hedger:
    """What hedges in this mode of a benchmark."""
    return DelayLine(host, service, MODES[mode]) if mode in MODES else Product(host, instance, [service])
