# SPDX-License-Identifier: Apache-2.0
"""Knot DNS, an authoritative server with threads."""

from deploy.lab.servers import zone
from deploy.lab.servers.server import DnsServer


class Knot(DnsServer):
    name = "knot"

    def command(self) -> list[str]:
        (self.folder / "example.test.zone").write_text(zone.master_file(self.identity), encoding="ascii")
        config = self.folder / "knot.conf"
        # The journal's database is mapped whole: its default of 20 GB fails on small machines.
        config.write_text(f"""
server:
    listen: [ {self.host.ipv4}@{self.port}, {self.host.ipv6}@{self.port} ]
    rundir: "{self.folder}"
    pidfile: "{self.folder}/knot.pid"
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    udp-max-payload: 4096
database:
    storage: "{self.folder}"
    journal-db-max-size: 16M
    kasp-db-max-size: 16M
    timer-db-max-size: 16M
    catalog-db-max-size: 16M
log:
  - target: stderr
    any: info
zone:
  - domain: {zone.ORIGIN}
    storage: "{self.folder}"
    file: example.test.zone
    zonefile-load: whole
    journal-content: none
""", encoding="ascii")
        return ["/usr/sbin/knotd", "-c", str(config)]
