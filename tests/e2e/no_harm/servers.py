# SPDX-License-Identifier: Apache-2.0
"""The servers of the rows. One replica runs many: the scripted one from the start, the others from the first row on that asks them."""

import contextlib
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from deploy.lab.servers import Knot, Server, round_trip
from harness.product import wait_until
from harness.recipes import Snmpd
from harness.servers import CoapServer, Memcached, Turnserver
from harness.unpaired import SinkServer
from no_harm.scripted import ScriptedServer

RADIUS_SECRET = "testing123"
TSIG_SECRET = "c2VjcmV0IG9mIHRoZSB1cGRhdGVz"
UPDATED = "updated.test"  # a zone of its own, for the standby has no copy of what is written there
TSIG = f"hmac-sha256:updater:{TSIG_SECRET}"
VPN_SERVER, VPN_CLIENT = "10.20.0.1", "10.20.0.2"
SHARED_COOKIE_SECRET = "0x000102030405060708090a0b0c0d0e0f"


class Replica(ScriptedServer):
    """What the rows find at one replica. The lab ends them all."""

    def __init__(self, host):
        super().__init__(host)
        self._others: dict[type, Server] = {}

    def get(self, kind: type[Server]) -> Server:
        if isinstance(self, kind):
            return self
        if kind not in self._others:
            self._others[kind] = kind(self.host).start()
        return self._others[kind]


class Primary(Knot):
    """With transfers, signed updates and DNS cookies; the servers share the cookies' secret, as the profile requires."""

    name = "knot-primary"

    def command(self) -> list[str]:
        command = super().command()
        config = Path(command[-1])
        text = config.read_text(encoding="ascii").replace("    udp-workers", "    nsid: same\n    identity: same\n    udp-workers")
        before, zone = text.split("zone:\n", 1)
        config.write_text(
            f"{before}key:\n  - id: updater\n    algorithm: hmac-sha256\n    secret: {TSIG_SECRET}\n"
            "acl:\n  - id: read\n    action: transfer\n  - id: write\n    key: updater\n    action: update\n"
            f"mod-cookies:\n  - id: shared\n    secret: {SHARED_COOKIE_SECRET}\n"
            f"template:\n  - id: default\n    global-module: mod-cookies/shared\nzone:\n{zone}    acl: read\n"
            f"  - domain: {UPDATED}\n    storage: \"{self.folder}\"\n    file: updated\n    acl: write\n", encoding="ascii")
        (self.folder / "updated").write_text(f"{UPDATED}. 60 IN SOA ns. host. 1 3600 600 86400 60\n{UPDATED}. 60 IN NS ns.\n", encoding="ascii")
        return command


class Cache(Memcached):
    """Both caches hold the same."""

    def start(self) -> "Cache":
        super().start()
        self.store(b"same", b"the same everywhere")
        self.store(b"large", b"x" * 60_000)
        return self


class Syslog(SinkServer):
    def __init__(self, host):
        super().__init__(host, 514)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Turn(Turnserver):
    """With allocations, for one user."""

    def __init__(self, host):
        super().__init__(host, 3479)

    def command(self) -> list[str]:
        command = [word for word in super().command() if word != "--stun-only"]
        return [*command, "-a", "-r", "realm", "-u", "user:word", "--allow-loopback-peers"]


class _Ipv4(Server):
    """Serves the host's IPv4 address alone."""

    default_port = 0

    def __init__(self, host):
        super().__init__(host, self.default_port)

    @property
    def addresses(self) -> list[str]:
        return [self.host.ipv4]

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Made once, and then shared: a client may meet either server."""
    key, cert = folder / f"{name}.key", folder / f"{name}.pem"
    if not cert.exists():
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                        "-keyout", key, "-out", cert, "-subj", f"/CN={name}"], check=True, capture_output=True)
    return cert, key


class Dtls(_Ipv4):
    name, default_port = "dtls", 4433

    def command(self) -> list[str]:
        cert, key = certificate(self.folder.parent, "dtls")
        return ["sh", "-c", f"sleep infinity | openssl s_server -dtls1_2 -accept {self.host.ipv4}:{self.port} -cert {cert} -key {key} -quiet"]

    def answers(self, address: str) -> bool:
        return is_bound(self.host, self.port)


def is_bound(host, port: int) -> bool:
    return f":{port} " in host.run(["ss", "-Hunl"]).stdout


class OpenVpn(_Ipv4):
    name, default_port = "openvpn", 1194

    @staticmethod
    def _words(folder: Path, own: str, other: str) -> list[str]:
        cert, key = certificate(folder, own)
        shown = subprocess.run(["openssl", "x509", "-in", certificate(folder, other)[0], "-noout", "-fingerprint", "-sha256"], check=True,
                               capture_output=True, text=True).stdout
        return ["openvpn", "--proto", "udp", "--dev", "tun9", "--cert", str(cert), "--key", str(key), "--peer-fingerprint", shown.split("=")[1].strip()]

    def command(self) -> list[str]:
        return [*self._words(self.folder.parent, "vpn-server", "vpn-client"), "--server", "10.20.0.0", "255.255.255.0", "--topology", "subnet",
                "--dh", "none", "--local", self.host.ipv4, "--port", str(self.port), "--keepalive", "10", "60"]

    def answers(self, address: str) -> bool:
        return self.log.exists() and "Initialization Sequence Completed" in self.text()

    @classmethod
    @contextlib.contextmanager
    def tunnel(cls, at) -> Iterator["Tunnel"]:
        folder = at.host.scratch("openvpn")
        log = folder / "log"
        log.unlink(missing_ok=True)
        child = at.host.popen([*cls._words(folder.parent, "vpn-client", "vpn-server"), "--client", "--nobind", "--remote", at.address, "1194"], log=log)
        try:
            with Tunnel(at, log) as tunnel:
                yield tunnel
        finally:
            at.host.stop(child)


class Tunnel:
    """Datagrams from the client, which nothing answers, to the server's end."""

    def __init__(self, at, log: Path):
        self._at, self._log = at, log

    def __enter__(self) -> "Tunnel":
        wait_until(lambda: "Initialization Sequence Completed" in self._log.read_text(), timeout_s=20, what="the tunnel")
        self._far = self._at.leader_server.host.socket()
        self._far.bind((VPN_SERVER, 5140))
        self._far.settimeout(0.5)
        self._near = self._at.host.socket()
        return self

    def __exit__(self, *_exc) -> None:
        self._far.close()
        self._near.close()

    def send(self, text: str) -> None:
        self._near.sendto(text.encode(), (VPN_SERVER, 5140))

    def received(self) -> list[str]:
        found = []
        with contextlib.suppress(TimeoutError):
            while True:
                found.append(self._far.recv(2000).decode())
        return found


class PortMapper(_Ipv4):
    name, default_port = "rpcbind", 111

    def command(self) -> list[str]:
        return ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run && exec rpcbind -f -w -h "$0"', self.host.ipv4]

    def answers(self, address: str) -> bool:
        call = struct.pack("!10I", 7, 0, 2, 100000, 4, 0, 0, 0, 0, 0)
        answer = round_trip(self.host, address, self.port, call)
        return answer is not None and answer[:4] == call[:4]


class FreeRadius(_Ipv4):
    """Debian's configuration with a user and the lab's clients."""

    name, default_port = "freeradius", 1822

    def command(self) -> list[str]:
        folder = self.folder / "raddb"
        shutil.copytree("/etc/freeradius/3.0", folder, symlinks=False, dirs_exist_ok=True)
        with (folder / "clients.conf").open("a", encoding="utf-8") as clients:
            clients.write(f"client lab {{\n ipaddr = 10.77.0.0/24\n secret = {RADIUS_SECRET}\n}}\n")
        users = folder / "mods-config/files/authorize"
        users.write_text('alice Cleartext-Password := "secret"\n' + users.read_text(encoding="utf-8"), encoding="utf-8")
        main = folder / "radiusd.conf"
        text = main.read_text(encoding="utf-8")
        main.write_text(re.sub(r"^\s*(user|group) = .*$", "", text, flags=re.M).replace("/etc/freeradius/3.0", str(folder)).replace(
            "run_dir = ${localstatedir}/run/${name}", f"run_dir = {self.folder}"), encoding="utf-8")
        inner = folder / "sites-enabled/inner-tunnel"  # it has a socket of its own, for tests
        inner.write_text(inner.read_text(encoding="utf-8").replace("port = 18120", f"port = {self.port + 10000}"), encoding="utf-8")
        default = folder / "sites-enabled/default"
        authorize = default.read_text(encoding="utf-8").partition("\nauthorize {")  # behind its sockets
        default.write_text(f"server default {{\nlisten {{\n type = auth\n ipaddr = {self.host.ipv4}\n port = {self.port}\n}}\n"
                           + "".join(authorize[1:]), encoding="utf-8")
        for name in ("ca", "server"):
            certificate(folder / "certs", name)
        eap = folder / "mods-available/eap"
        text = re.sub(r"private_key_file = .*", f"private_key_file = {folder}/certs/server.key", eap.read_text(encoding="utf-8"))
        text = re.sub(r"certificate_file = .*", f"certificate_file = {folder}/certs/server.pem", text)
        text = re.sub(r"ca_file = .*", f"ca_file = {folder}/certs/server.pem", text)
        (folder / "mods-enabled/eap").write_text(text, encoding="utf-8")
        return ["/usr/sbin/freeradius", "-f", "-l", "stdout", "-d", str(folder)]

    def answers(self, address: str) -> bool:
        return is_bound(self.host, self.port)


class FreeRadiusPap(FreeRadius):
    default_port = 1832


class SnmpdV3(Snmpd):
    default_port = 1161


class CoapClock(CoapServer):
    def __init__(self, host):
        super().__init__(host, 5685)


class SipPhone(_Ipv4):
    """sipp's own answering side: rings, takes the call, and waits for its end."""

    name, default_port = "sipp", 5070

    def command(self) -> list[str]:
        return ["sh", "-c", f"cd {self.folder} && exec sipp -sn uas -i {self.host.ipv4} -p {self.port} -nostdin"]

    def answers(self, address: str) -> bool:
        return is_bound(self.host, self.port)

