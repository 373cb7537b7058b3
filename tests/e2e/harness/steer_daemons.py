# SPDX-License-Identifier: Apache-2.0
"""Daemons of the distribution as they are steered, and what speaks to them: softflowd (NetFlow 9) and gobgpd (BMP). Each is started
in the network namespace of a test and ends with it."""

import contextlib
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from deploy.lab.servers import zone
from harness.product import wait_until
from harness.steer import PORT, Netns

ADDRESS = "127.0.0.1"
# Said by the plugin that prints, last of all. Before that nfacctd receives, and loses what it received.
NFACCTD_READY = "JSON: setting object handlers"
FLOWS = 12  # that one export of softflowd has


ECHO = f"""
import os, socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
sock.bind(("{ADDRESS}", {PORT}))
while True:
    sock.sendto(str(os.getpid()).encode(), sock.recvfrom(2048)[1])
"""


class Daemons:
    """Started in `net`, with their files in `folder`."""

    def __init__(self, net: Netns, folder: Path):
        self.net, self.folder = net, folder
        self._children: list[subprocess.Popen] = []

    def path(self, name: str, text: str | None = None) -> str:
        path = self.folder / name
        if text is not None:
            path.write_text(text, encoding="ascii")
        return str(path)

    def start(self, *words: str, **options) -> subprocess.Popen:
        with self.net.entered(), open(self.folder / f"{Path(words[0]).name}.log", "ab") as log:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options)
        self._children.append(child)
        return child

    def stop(self, child: subprocess.Popen, sig: int = signal.SIGTERM) -> None:
        child.send_signal(sig)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(5)
        self._children.remove(child)

    def stop_all(self) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # pmacct takes 10 s to end by itself
            child.wait(5)
        self._children.clear()

    def sockets(self, kind: str, port: int = PORT) -> int:
        """How many sockets of the port are there. `kind` as ss(8) has it: u or t."""
        with self.net.entered():
            listed = subprocess.run(["ss", f"-Hanl{kind}", f"sport = :{port}"], capture_output=True, text=True, check=True)
        return len(listed.stdout.splitlines())

    def wait_sockets(self, count: int, kind: str = "u", port: int = PORT) -> None:
        wait_until(lambda: self.sockets(kind, port) == count, 10, f"{count} sockets of port {port} ({kind})")

    def wait_said(self, program: str, text: str, times: int) -> None:
        log = self.folder / f"{program}.log"
        wait_until(lambda: log.read_text(encoding="utf-8", errors="replace").count(text) >= times, 15, f"{program} says {text} {times} times")

    # -- exporters ---------------------------------------------------------------------------------------------

    def speaks_as(self, source: str) -> None:
        """Programs that bind no address send to ADDRESS from this one."""
        with self.net.entered():
            subprocess.run(["ip", "route", "replace", "local", ADDRESS, "dev", "lo", "table", "local", "proto", "kernel", "scope", "host",
                            "src", source], check=True)

    def export(self, source: str, port: int = PORT) -> None:
        """NetFlow 9 with FLOWS flows, of a capture file. softflowd reads it to its end, and exports. Not IPFIX, in which softflowd 1.1.1
        names an exporter "::" that nfacctd believes."""
        capture = self.folder / "flows.pcap"
        if not capture.exists():
            capture.write_bytes(capture_of(FLOWS))
        self.speaks_as(source)
        with self.net.entered():
            subprocess.run(["/usr/sbin/softflowd", "-r", capture.name, "-n", f"{ADDRESS}:{port}", "-v", "9"], cwd=self.folder, check=True,
                           capture_output=True, timeout=10)

    def speak_bmp(self, source: str, port: int) -> subprocess.Popen:
        """A BGP speaker that reports itself by BMP."""
        self.speaks_as(source)
        config = self.path(f"gobgp-{source}.toml", f"""
[global.config]
  as = 65001
  router-id = "{source}"
  port = -1
[[bmp-servers]]
  [bmp-servers.config]
    address = "{ADDRESS}"
    port = {port}
""")
        return self.start("/usr/bin/gobgpd", "-f", config, "--api-hosts", f"{source}:50051")

    def echo(self) -> subprocess.Popen:
        """A process that sets SO_REUSEPORT itself, and answers UDP with its pid; as nobody."""
        return self.start("/usr/bin/python3", "-c", ECHO, user=65534, group=65534, extra_groups=[])

    # -- daemons' files ----------------------------------------------------------------------------------------

    def nginx(self, workers: int, *, reuseport: bool) -> list[str]:
        listen = f"listen {ADDRESS}:{PORT}"
        extra = " reuseport" if reuseport else ""
        return ["/usr/sbin/nginx", "-e", self.path("nginx.error"), "-c", self.path(f"nginx-{workers}.conf", f"""
daemon off;
worker_processes {workers};
pid {self.path("nginx.pid")};
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
events {{ worker_connections 256; }}
stream {{
  server {{ {listen} udp{extra}; return "$pid"; }}
  server {{ {listen}{extra}; return "$pid"; }}
}}
""")]

    def nsd(self, workers: int, *, reuseport: bool) -> list[str]:
        self.path("zone", zone.master_file("steered"))
        return ["/usr/sbin/nsd", "-d", "-c", self.path("nsd.conf", f"""
server:
  ip-address: {ADDRESS}
  port: {PORT}
  server-count: {workers}
  reuseport: {"yes" if reuseport else "no"}
  username: ""
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
  zonesdir: "{self.folder}"
  zonelistfile: "{self.folder}/zone.list"
  xfrdfile: "{self.folder}/xfrd.state"
  xfrdir: "{self.folder}"
  pidfile: ""
  database: ""
remote-control:
  control-enable: no
zone:
  name: {zone.ORIGIN}
  zonefile: zone
""")]

    def knot(self, workers: int, *, reuseport: bool, name: str = "knot") -> list[str]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "zone").write_text(zone.master_file("steered"), encoding="ascii")
        return ["/usr/sbin/knotd", "-c", self.path(f"{name}.conf", f"""
server:
    rundir: "{folder}"
    user: root:root
    listen: {ADDRESS}@{PORT}
    udp-workers: {workers}
    tcp-workers: {workers}
    tcp-reuseport: {"on" if reuseport else "off"}
database:
    storage: "{folder}"
zone:
  - domain: {zone.ORIGIN}
    file: "{folder}/zone"
    journal-content: none
    zonefile-sync: -1
""")]

    def unbound_of_systemd(self) -> list[str]:
        """Takes its sockets from LISTEN_FDS, where it believes that systemd runs."""
        return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$@"', "sh",
                *self.unbound(1, reuseport=False, more="use-systemd: yes")]

    def unbound(self, workers: int, *, reuseport: bool, more: str = "") -> list[str]:
        return ["/usr/sbin/unbound", "-d", "-c", self.path("unbound.conf", f"""
server:
  {more}
  interface: {ADDRESS}@{PORT}
  access-control: 127.0.0.0/8 allow
  num-threads: {workers}
  so-reuseport: {"yes" if reuseport else "no"}
  chroot: ""
  username: ""
  directory: "{self.folder}"
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  module-config: "iterator"
  local-zone: "{zone.ORIGIN}" static
  local-data: "www.{zone.ORIGIN} A 192.0.2.1"
remote-control:
  control-enable: no
""")]

    def nfacctd(self, name: str, *, bmp: bool = False) -> list[str]:
        """What it collects is in NAME.json, each second."""
        more = f"bmp_daemon: true\nbmp_daemon_ip: {ADDRESS}\nbmp_daemon_port: {PORT}\nbmp_daemon_msglog_file: {self.folder}/{name}.bmp\n" if bmp else ""
        return ["/usr/sbin/nfacctd", "-f", self.path(f"{name}.conf", f"""
daemonize: false
nfacctd_ip: {ADDRESS}
nfacctd_port: {PORT}
plugins: print[a]
aggregate[a]: peer_src_ip
print_output[a]: json
print_output_file[a]: {self.folder}/{name}.json
print_output_file_append[a]: true
print_refresh_time[a]: 1
{more}""")]

    def pmbmpd(self, name: str) -> list[str]:
        return ["/usr/sbin/pmbmpd", "-f", self.path(f"{name}.conf", f"""
daemonize: false
bmp_daemon_ip: {ADDRESS}
bmp_daemon_port: {PORT}
bmp_daemon_msglog_file: {self.folder}/{name}.bmp
""")]

    def exporters_in(self, name: str) -> dict[str, int]:
        """Packets by exporter, of what nfacctd has printed."""
        path = self.folder / f"{name}.json"
        found: dict[str, int] = {}
        for source, packets in re.findall(r'"peer_ip_src": "([^"]+)".*?"packets": (\d+)', path.read_text(encoding="ascii") if path.exists() else ""):
            found[source] = found.get(source, 0) + int(packets)
        return found

    def routers_in(self, name: str) -> set[str]:
        """Those that have said who they are by BMP."""
        path = self.folder / f"{name}.bmp"
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return {line.split('"bmp_router": "')[1].split('"')[0] for line in text.splitlines() if '"bmp_msg_type": "init"' in line}

    def flows_in(self, folder: Path) -> dict[str, int]:
        """Flows by exporter, of files of nfcapd that are complete."""
        listed = subprocess.run(["/usr/bin/nfdump", "-q", "-R", folder, "-o", "fmt:%ra"], capture_output=True, text=True, check=False)
        found: dict[str, int] = {}
        for source in listed.stdout.split():
            found[source] = found.get(source, 0) + 1
        return found


def capture_of(flows: int) -> bytes:
    """A capture file of one UDP packet for each flow."""
    packets = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for number in range(flows):
        udp = struct.pack(">HHHH", 1000 + number, 53, 28, 0) + bytes(20)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, bytes([198, 51, 100, 1]), bytes([198, 51, 100, 2]))
        frame = bytes.fromhex("020202020202040404040404" "0800") + ip + udp
        packets.append(struct.pack("<IIII", 1700000000, number, len(frame), len(frame)) + frame)
    return b"".join(packets)


def dns_question(name: str = f"www.{zone.ORIGIN}") -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\0\0\x01\0\x01"


def is_answer(reply: bytes) -> bool:
    return reply[:2] == b"\x12\x34" and reply[3] & 15 == 0 and reply[7] > 0


@contextlib.contextmanager
def daemons_in(net: Netns, folder: Path) -> Iterator[Daemons]:
    daemons = Daemons(net, folder)
    try:
        yield daemons
    finally:
        daemons.stop_all()
        daemons.speaks_as(ADDRESS)


