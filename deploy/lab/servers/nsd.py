# SPDX-License-Identifier: Apache-2.0
"""NSD, an authoritative server that answers from forked children."""

from collections.abc import Iterable
from pathlib import Path

from deploy.lab.servers import zone
from deploy.lab.servers.server import DnsServer


class Nsd(DnsServer):
    name = "nsd"

    def command(self) -> list[str]:
        zone_file, file = self.folder / "zone", self.folder / "nsd.conf"
        zone_file.write_text(zone.master_file(self.identity), encoding="ascii")
        file.write_text(config(self.folder, (self.host.ipv4, self.host.ipv6), self.port), encoding="ascii")
        return ["/usr/sbin/nsd", "-d", "-c", str(file)]


def config(folder: Path | str, addresses: Iterable[str], port: int = 53) -> str:
    """Of a server of the zone in FOLDER/zone. EDNS 4096 so that a big answer is fragmented; Debian's build limits equal answers to 200/s
    by default."""
    listen = "\n".join(f"  ip-address: {address}" for address in addresses)
    return f"""
server:
{listen}
  port: {port}
  server-count: 1
  ipv4-edns-size: 4096
  ipv6-edns-size: 4096
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
  username: ""
  zonesdir: "{folder}"
  zonelistfile: "{folder}/zone.list"
  xfrdfile: "{folder}/xfrd.state"
  xfrdir: "{folder}"
  pidfile: "{folder}/nsd.pid"
  database: ""
remote-control:
  control-enable: no
zone:
  name: {zone.ORIGIN}
  zonefile: {folder}/zone
"""
