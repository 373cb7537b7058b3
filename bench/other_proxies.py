# SPDX-License-Identifier: Apache-2.0
"""nginx (stream, udp) and dnsdist as DNS proxies on the client's host, configured as an expert would, and
for the same task as Hedgerow: all to the first server, the second when the first is gone. Used by bench/proxy_cost.py;
docs/benchmarks.md gives the reasons for each setting.
"""

import os
from pathlib import Path

from deploy.lab.host import Host
from deploy.lab.servers.server import DnsServer

NGINX_PORT, DNSDIST_PORT = 5301, 5302
_NGINX_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")


class OtherProxy(DnsServer):
    """Listens on the client host's own IPv4 address; `servers` are address:port, the first preferred."""

    def __init__(self, host: Host, port: int, servers: list[str]):
        # Answers come from the first server, which names itself.
        super().__init__(host, port, identity="a")
        self.servers = servers

    @property
    def addresses(self) -> list[str]:
        return [self.host.ipv4]

    def config(self) -> str:
        raise NotImplementedError

    def pids(self) -> list[int]:
        """Its process group: a master and its workers."""
        group = self.process.pid
        return [pid for pid in self.host.pids() if os.getpgid(pid) == group]


class Nginx(OtherProxy):
    """One worker per CPU, each with a socket of its own (reuseport). A session ends with its answer (proxy_responses 1), as
    nginx's own DNS example says: without it a session lives until its time-out, and they pile up. No log."""

    name = "nginx"

    def config(self) -> str:
        first, *others = self.servers
        backups = "".join(f"    server {server} backup;\n" for server in others)
        return f"""load_module {_NGINX_MODULE};
user root;
worker_processes auto;
worker_rlimit_nofile 65536;
pid {self.folder}/nginx.pid;
error_log stderr crit;
events {{
  worker_connections 16384;
  multi_accept on;
}}
stream {{
  access_log off;
  upstream dns {{
    server {first};
{backups}  }}
  server {{
    listen {self.host.ipv4}:{self.port} udp reuseport rcvbuf=4m sndbuf=4m;
    proxy_pass dns;
    proxy_responses 1;
    proxy_timeout 2s;
  }}
}}
"""

    def command(self) -> list[str]:
        file = self.folder / "nginx.conf"
        file.write_text(self.config(), encoding="ascii")
        return ["/usr/sbin/nginx", "-p", str(self.folder), "-c", str(file), "-g", "daemon off;"]


class Dnsdist(OtherProxy):
    """A listener thread per CPU (reusePort), several sockets to each server, the first server that is up. No packet cache:
    an answer from the cache is no answer of the server's. No ring of recent queries, no web server, no security polling."""

    name = "dnsdist"

    def config(self) -> str:
        listen = f"addLocal('{self.host.ipv4}:{self.port}', {{reusePort=true}})\n" * (os.cpu_count() or 1)
        servers = "".join(
            f"newServer({{address='{server}', name='s{place}', order={place}, sockets=4, checkName='www.example.test.', "
            f"checkInterval=5, useClientSubnet=false}})\n" for place, server in enumerate(self.servers, 1))
        return (f"setACL({{'0.0.0.0/0', '::/0'}})\n{listen}{servers}setServerPolicy(firstAvailable)\n"
                "setSecurityPollSuffix('')\nsetRingBuffersSize(1, 1)\nsetUDPSocketBufferSizes(4194304, 4194304)\n")

    def command(self) -> list[str]:
        file = self.folder / "dnsdist.conf"
        file.write_text(self.config(), encoding="ascii")
        return ["/usr/bin/dnsdist", "--supervised", "--disable-syslog", "--config", str(file)]


def rss_bytes(pids: list[int], field: str = "Pss") -> int:
    """Resident memory; pages that processes share (nginx's workers and their master) count once (Pss), so that it changes as others of the
    same libraries begin and end. `Rss` does not."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{field}:"):
                total += int(line.split()[1]) * 1024
    return total
