# SPDX-License-Identifier: Apache-2.0
"""dnsmasq, the forwarder of home routers; here it answers from its own config and forwards nothing."""

from deploy.lab.servers import zone
from deploy.lab.servers.server import DnsServer


class Dnsmasq(DnsServer):
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
