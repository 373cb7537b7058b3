# SPDX-License-Identifier: Apache-2.0
"""NSD, an authoritative server that answers from forked children."""

from deploy.lab.servers import zone
from deploy.lab.servers.server import DnsServer


class Nsd(DnsServer):
    name = "nsd"

    def command(self) -> list[str]:
        zone_file, config = self.folder / "zone", self.folder / "nsd.conf"
        zone_file.write_text(zone.master_file(self.identity), encoding="ascii")
        # EDNS 4096 so that a big answer is fragmented; Debian's build limits equal answers to 200/s by default.
        config.write_text(f"""
server:
  ip-address: {self.host.ipv4}
  ip-address: {self.host.ipv6}
  port: {self.port}
  server-count: 1
  ipv4-edns-size: 4096
  ipv6-edns-size: 4096
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
  username: ""
  zonesdir: "{self.folder}"
  zonelistfile: "{self.folder}/zone.list"
  xfrdfile: "{self.folder}/xfrd.state"
  xfrdir: "{self.folder}"
  pidfile: "{self.folder}/nsd.pid"
  database: ""
remote-control:
  control-enable: no
zone:
  name: {zone.ORIGIN}
  zonefile: {zone_file}
""", encoding="ascii")
        return ["/usr/sbin/nsd", "-d", "-c", str(config)]
