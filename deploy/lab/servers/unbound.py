# SPDX-License-Identifier: Apache-2.0
"""Unbound, a resolver; here it answers from local data and resolves nothing."""

from deploy.lab.servers import zone
from deploy.lab.servers.server import DnsServer


class Unbound(DnsServer):
    name = "unbound"

    def command(self) -> list[str]:
        config = self.folder / "unbound.conf"
        data = "\n".join(f"  local-data: '{r.name}. {zone.TTL_S} IN {r.kind} {zone.quoted(r)}'"
                         for r in zone.records(self.identity))
        config.write_text(f"""
server:
  interface: {self.host.ipv4}
  interface: {self.host.ipv6}
  port: {self.port}
  access-control: 0.0.0.0/0 allow
  access-control: ::0/0 allow
  num-threads: 1
  max-udp-size: 4096
  edns-buffer-size: 4096
  username: ""
  chroot: ""
  directory: "{self.folder}"
  pidfile: "{self.folder}/unbound.pid"
  use-syslog: no
  logfile: ""
  do-daemonize: no
  module-config: "iterator"
  minimal-responses: yes
  local-zone: "{zone.ORIGIN}." static
{data}
remote-control:
  control-enable: no
""", encoding="ascii")
        return ["/usr/sbin/unbound", "-d", "-c", str(config)]
