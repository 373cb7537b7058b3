# SPDX-License-Identifier: Apache-2.0
"""DNS servers for the lab's replicas, in the foreground with a config made on the spot."""

from collections.abc import Iterable
from pathlib import Path

from deploy.lab.servers import zone
from deploy.lab.servers.server import DnsServer


class Nsd(DnsServer):
    """NSD, an authoritative server that answers from forked children."""

    name = "nsd"

    def command(self) -> list[str]:
        zone_file, file = self.folder / "zone", self.folder / "nsd.conf"
        zone_file.write_text(zone.master_file(self.identity), encoding="ascii")
        file.write_text(nsd_config(self.folder, (self.host.ipv4, self.host.ipv6), self.port), encoding="ascii")
        return ["/usr/sbin/nsd", "-d", "-c", str(file)]


def nsd_config(folder: Path | str, addresses: Iterable[str], port: int = 53) -> str:
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


class Knot(DnsServer):
    """Knot DNS, an authoritative server with threads."""

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


class Unbound(DnsServer):
    """Unbound, a resolver; here it answers from local data and resolves nothing."""

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


class Dnsmasq(DnsServer):
    """dnsmasq, the forwarder of home routers; here it answers from its own config and forwards nothing."""

    name = "dnsmasq"

    def command(self) -> list[str]:
        config = self.folder / "dnsmasq.conf"
        addresses = [f"host-record={r.name},{r.value}" for r in zone.records(self.identity) if r.kind != "TXT"]
        texts = [f"txt-record={r.name},{zone.quoted(r)}" for r in zone.records(self.identity) if r.kind == "TXT"]
        config.write_text("\n".join([
            f"listen-address={self.host.ipv4}", f"listen-address={self.host.ipv6}", "bind-interfaces",
            f"port={self.port}", "no-resolv", "no-hosts", "no-poll", f"local=/{zone.ORIGIN}/",
            "edns-packet-max=4096", f"local-ttl={zone.TTL_S}", "user=root", "group=root",
            f"pid-file={self.folder}/dnsmasq.pid", "log-facility=-", *addresses, *texts]) + "\n",
            encoding="ascii")
        return ["/usr/sbin/dnsmasq", "--keep-in-foreground", f"--conf-file={config}"]


DNS_SERVERS = {"nsd": Nsd, "knot": Knot, "unbound": Unbound, "dnsmasq": Dnsmasq}
