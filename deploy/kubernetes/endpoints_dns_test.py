# SPDX-License-Identifier: Apache-2.0
"""hedgerow-endpoints with DNS names: nsd is the registry, whose zone changes, empties, turns round and goes away. The daemon is a
script that notes what it is asked; tests/e2e/test_backends_by_name.py has a real one."""

import contextlib
import itertools
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes import endpoints
from deploy.kubernetes.endpoints_test import PROGRAM, TEMPLATE, Controller, ordered, until

ZONE, FAR = "example.test", "far.test"
PORTS = itertools.count(5400)


class Registry:
    """An authoritative server of two zones, at an address of loopback that no other process of the tests has; `serve` gives the first
    one another content."""

    def __init__(self, folder: Path):
        self.folder, self.port, self.process = folder, next(PORTS), None
        self.address = f"127.{os.getpid() >> 16 & 63 | 64}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        folder.mkdir()
        (folder / "far").write_text(f"$ORIGIN {FAR}.\n@ 60 SOA ns hostmaster 1 3600 600 86400 0\n@ 60 NS ns\nns 60 A {self.address}\npool 60 A 10.1.0.1\n", encoding="ascii")

    @property
    def resolver(self) -> endpoints.Resolver:
        return endpoints.Resolver([(self.address, self.port)])

    def serve(self, *records: str, ttl: int = 0) -> None:
        # A name of its own for each content tells when the server has read it.
        self._serial = f"serial-{time.monotonic_ns()}"
        lines = [f"$ORIGIN {ZONE}.", f"$TTL {ttl}", "@ SOA ns hostmaster 1 3600 600 86400 0", "@ NS ns", f"ns A {self.address}", f"{self._serial} A {self.address}", *records]
        (self.folder / "zone").write_text("\n".join(lines) + "\n", encoding="ascii")
        if self.process is None:
            self.start()
        self._asked = 0
        until(self._has_read, "the zone is served")

    def _has_read(self) -> bool:
        if self.process.poll() is not None:
            self.start()  # its port was not free yet
        with contextlib.suppress(OSError):
            if self.resolver.ask(f"{self._serial}.{ZONE}", endpoints.A)[0]:
                return True
            # It serves, so a signal does not end it; now and then again, for it may overlook one while it reads.
            if self._asked % 50 == 0:
                self.process.send_signal(signal.SIGHUP)
            self._asked += 1
        return False

    def start(self) -> None:
        (self.folder / "nsd.conf").write_text(f"""
server:
  ip-address: {self.address}
  port: {self.port}
  server-count: 1
  round-robin: yes
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
  name: {ZONE}
  zonefile: {self.folder}/zone
zone:
  name: {FAR}
  zonefile: {self.folder}/far
""", encoding="ascii")
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(["/usr/sbin/nsd", "-d", "-c", self.folder / "nsd.conf"], stderr=log)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=20)
            self.process = None


class ByName(Controller):
    """`names` are its `--dns` options."""

    def __init__(self, folder: Path, registry: Registry, *names: str):
        super().__init__(folder, None)
        self.registry, self.names = registry, names

    def words(self, *more: str) -> list[str]:
        return [sys.executable, str(PROGRAM), "--config", str(self.template), "--out", str(self.out), "--resolver", f"{self.registry.address}:{self.registry.port}",
                *(word for name in self.names for word in ("--dns", name)), "--hedgerow", str(self.folder / "hedgerow"), "--debounce", "0.1", "--node", "node-1", *more]

    def addresses(self) -> list[str]:
        return [each.split(maxsplit=1)[1] for each in self.backends()]


@pytest.fixture
def registry(tmp_path) -> Iterator[Registry]:
    made = Registry(tmp_path / "registry")
    yield made
    made.stop()


@pytest.fixture
def by_name(tmp_path, registry):
    made = []

    def make(*names: str) -> ByName:
        made.append(ByName(tmp_path, registry, *names))
        return made[-1]

    yield make
    for each in made:
        each.end()


def at(*addresses: str) -> list[str]:
    """As this node orders them."""
    return [each.split(maxsplit=1)[1] for each in ordered(*(f"x {address}" for address in addresses))]


ONE, TWO, THREE = "10.1.0.1 5300", "10.1.0.2 5300", "10.1.0.3 5300"


def test_the_addresses_of_a_name_come_and_go(registry, by_name):
    registry.serve("dns A 10.1.0.1", "dns A 10.1.0.2", "dns AAAA fd00::1")
    program = by_name("dns=dns.example.test:5300")
    program.start()
    until(lambda: program.addresses() == at(ONE, TWO), "the addresses of the VIP's family")
    until(lambda: program.asked("reload") == 1, "the reload")
    registry.serve("dns A 10.1.0.2", "dns A 10.1.0.3", "dns A 10.1.0.1")
    until(lambda: program.addresses() == at(ONE, TWO, THREE), "one comes")
    registry.serve("dns A 10.1.0.3")
    until(lambda: program.addresses() == [THREE], "two go")
    assert all(re.fullmatch("[a-z0-9-]{1,31} .*", each) for each in program.backends())


def test_an_order_that_turns_round_changes_nothing(registry, by_name):
    """nsd answers each question in another order, and the program asks each second."""
    registry.serve("dns A 10.1.0.1", "dns A 10.1.0.2", "dns A 10.1.0.3")
    program = by_name("dns=dns.example.test:5300")
    program.start()
    until(lambda: program.addresses() == at(ONE, TWO, THREE), "the list")
    orders = set()
    until(lambda: orders.add(tuple(registry.resolver.ask(f"dns.{ZONE}", endpoints.A)[0])) or len(orders) > 1, "another order")
    time.sleep(3)  # of further questions
    assert program.addresses() == at(ONE, TWO, THREE)
    assert program.asked("reload") == 1


def test_a_registry_that_is_away_or_empties_leaves_the_list(registry, by_name):
    registry.serve("dns A 10.1.0.1", "dns A 10.1.0.2")
    program = by_name("dns=dns.example.test:5300")
    program.start()
    until(lambda: program.asked("reload") == 1, "the first list")
    registry.serve("other A 10.1.0.9")  # the name is gone (NXDOMAIN)
    until(lambda: "no endpoint is ready" in program.log(), "it is logged")
    registry.serve("dns TXT empty")  # the name is there, without an address
    registry.stop()
    until(lambda: "cannot follow dns.example.test" in program.log(), "it is logged")
    assert program.addresses() == at(ONE, TWO)
    # The program starts anew while the registry is away, before the daemon's start too.
    program.end()
    assert program.once("--patience", "0.1") == 0
    program.start()
    until(lambda: program.log().count("cannot follow") >= 2, "it is logged")
    assert program.addresses() == at(ONE, TWO)
    registry.serve("dns A 10.1.0.3")
    until(lambda: program.addresses() == [THREE], "the registry is there again")
    assert "Traceback" not in program.log()


def test_srv_records_have_ports_and_priorities(registry, by_name):
    registry.serve("_dns._udp SRV 10 1 5301 a", "_dns._udp SRV 10 1 5302 b", "_dns._udp SRV 20 1 5303 c", "_dns._udp SRV 10 1 5304 gone",
                   "a A 10.1.0.1", "b A 10.1.0.2", "c A 10.1.0.3")
    program = by_name("dns=_dns._udp.example.test")
    assert program.once() == 0
    assert program.backends() == [*ordered("a-5301 10.1.0.1 5301", "b-5302 10.1.0.2 5302"), "c-5303 10.1.0.3 5303"], "the smallest priority leads"
    registry.serve("_dns._udp SRV 30 1 5301 a", "_dns._udp SRV 20 1 5303 c", "a A 10.1.0.1", "c A 10.1.0.3")
    assert program.once() == 0
    assert program.backends() == ["c-5303 10.1.0.3 5303", "a-5301 10.1.0.1 5301"]
    registry.serve("_dns._udp SRV 0 0 0 .")  # RFC 2782: decidedly not available
    assert program.once() == 0
    assert program.backends() == ["c-5303 10.1.0.3 5303", "a-5301 10.1.0.1 5301"]


def test_a_named_primary_stays_the_primary(registry, by_name):
    registry.serve("_dns._udp SRV 0 1 53 a", "_dns._udp SRV 0 1 53 b", "a A 10.1.0.1", "b A 10.1.0.2")
    program = by_name("dns=_dns._udp.example.test")
    for primary in ("a-53", "b-53"):
        program.template.write_text(TEMPLATE.replace("primary: a", f"primary: {primary}"), encoding="utf-8")
        assert program.once() == 0
        assert f"primary: {primary}" in program.out.read_text(encoding="utf-8")


def test_weights_of_srv_records_share_requests_and_later_priorities_stand_by(registry, by_name):
    registry.serve("_dns._udp SRV 1 30 53 a", "_dns._udp SRV 1 60000 53 b", "_dns._udp SRV 2 30 53 c", "a A 10.1.0.1", "b A 10.1.0.2", "c A 10.1.0.3")
    program = by_name("dns=_dns._udp.example.test")

    def weights() -> dict:
        assert program.once() == 0
        return {each["name"]: each.get("weight") for each in yaml.safe_load(program.out.read_text(encoding="utf-8"))["services"][1]["backends"]}

    assert weights() == {"a-53": None, "b-53": None, "c-53": None}
    program.template.write_text(TEMPLATE.replace("primary: a", "prefer: each"), encoding="utf-8")
    assert weights() == {"a-53": 30, "b-53": 256, "c-53": 0}


def test_an_alias_is_followed_also_into_another_zone_and_not_for_ever(registry, by_name):
    registry.serve("dns CNAME middle", "middle CNAME pool", "pool A 10.1.0.2", f"out CNAME pool.{FAR}.", "loop CNAME pool2", "pool2 CNAME loop")
    program = by_name()
    for name, expected in (("dns", TWO), ("out", ONE), ("loop", ONE)):
        program.names = (f"dns={name}.{ZONE}:5300",)
        assert program.once("--patience", "2" if name == "loop" else "20") == 0
        assert program.addresses() == [expected], name


def test_an_answer_that_udp_would_cut_is_whole(registry, by_name):
    """40 records are more than 512 bytes: nsd cuts them over UDP. The program asks by TCP, and takes those of the smallest priority."""
    registry.serve(*(f"_dns._udp SRV {99 - number} 1 53 host-with-a-long-name-{number}" for number in range(40)),
                   *(f"host-with-a-long-name-{number} A 10.1.0.{number + 1}" for number in range(40)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(10)
        udp.connect((registry.address, registry.port))
        udp.send(struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\4_dns\4_udp\7example\4test\0" + struct.pack("!HH", endpoints.SRV, 1))
        assert udp.recv(4096)[2] & 2, "the control: truncated"
    program = by_name("dns=_dns._udp.example.test")
    assert program.once() == 0
    assert program.addresses() == [f"10.1.0.{40 - place} 53" for place in range(8)]


def test_a_registry_without_tcp_is_asked_by_udp(tmp_path, registry, by_name):
    """unbound, with data of its own."""
    (tmp_path / "unbound.conf").write_text(f"""
server:
  interface: {registry.address}@{registry.port}
  do-tcp: no
  do-daemonize: no
  use-syslog: no
  username: ""
  chroot: ""
  access-control: 127.0.0.0/8 allow
  pidfile: ""
  local-zone: "example.test." static
  local-data: "dns.example.test. 0 IN A 10.1.0.2"
""", encoding="ascii")
    unbound = subprocess.Popen(["/usr/sbin/unbound", "-c", tmp_path / "unbound.conf"], stderr=subprocess.DEVNULL)
    try:
        program = by_name("dns=dns.example.test:5300")
        assert program.once("--patience", "30") == 0
        assert program.addresses() == [TWO]
    finally:
        unbound.terminate()
        unbound.wait(timeout=20)


def test_two_services_have_names_of_their_own(registry, by_name):
    registry.serve("dns A 10.1.0.1", "other A 10.1.0.9")
    program = by_name("dns=dns.example.test:5300", "other=other.example.test:54")
    program.start()
    until(lambda: program.addresses() == [ONE] and "10.1.0.9" in program.out.read_text(encoding="utf-8"), "both")
    registry.serve("dns A 10.1.0.1", "other A 10.1.0.8")
    until(lambda: "10.1.0.8" in program.out.read_text(encoding="utf-8"), "the other's change")
    assert program.addresses() == [ONE]


def test_changes_are_so_many_a_minute_and_the_templates_are_not_counted(registry, by_name):
    registry.serve("dns A 10.1.0.1")
    program = by_name("dns=dns.example.test:5300")
    with open(program.folder / "log", "a", encoding="utf-8") as log:
        program.process = subprocess.Popen(program.words("--changes", "2"), stderr=log)
    until(lambda: program.asked("reload") == 1, "the first")
    registry.serve("dns A 10.1.0.2")
    until(lambda: program.asked("reload") == 2, "the second")
    registry.serve("dns A 10.1.0.3")
    until(lambda: "2 changes in a minute" in program.log(), "the third waits")
    assert program.addresses() == [TWO] and program.asked("reload") == 2
    program.template.write_text(TEMPLATE.replace("10ms", "20ms"), encoding="utf-8")
    until(lambda: program.asked("reload") == 3, "an operator's change")
    assert program.addresses() == [THREE] and "20ms" in program.out.read_text(encoding="utf-8")


def test_the_file_is_for_the_templates_group(registry, by_name):
    registry.serve("dns A 10.1.0.1")
    program = by_name("dns=dns.example.test:5300")
    if os.geteuid() == 0:
        os.chown(program.template, -1, 12345)
    assert program.once() == 0
    assert program.out.stat().st_gid == program.template.stat().st_gid
    assert program.out.stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize("before, after", [
    ("primary: a", 'primary: "SECRET'), ("vip: 10.99.0.53", "vip: SECRET"), ("port: 53, node: 7", "port: SECRET"), ("node: 7", "node: SECRET"), ("primary: a", "primary: {SECRET: [")])
def test_a_key_in_a_wrong_place_of_the_template_is_never_repeated(registry, by_name, before, after):
    registry.serve("dns A 10.1.0.1")
    program, secret = by_name("dns=dns.example.test:5300"), "5a" * 16
    assert before in TEMPLATE
    program.template.write_text(TEMPLATE.replace(before, after.replace("SECRET", secret)), encoding="utf-8")
    done = subprocess.run(program.words("--once", "--patience", "0.1"), check=False, timeout=60, capture_output=True, text=True)
    assert secret not in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert done.stderr or program.out.exists()


@pytest.mark.parametrize("answer", [
    pytest.param(lambda query: b"", id="nothing"), pytest.param(lambda query: query[:2], id="two-bytes"),
    pytest.param(lambda query: b"xx\x80\0" + query[4:], id="another-id"),
    pytest.param(lambda query: query[:2] + b"\x80\0\0\1\0\1\0\0\0\0" + query[12:].replace(b"dns", b"dnt"), id="another-question"),
    pytest.param(lambda query: query[:2] + b"\x82\0\0\1\0\1\0\0\0\0" + query[12:], id="cut-short"),
    pytest.param(lambda query: query[:2] + b"\x80\5\0\1\0\0\0\0\0\0" + query[12:], id="refused"),
    pytest.param(lambda query: query[:2] + b"\x80\0\0\1\0\1\0\0\0\0" + query[12:] + b"\xc0\x0c\0\1", id="half-a-record"),
    pytest.param(lambda query: query[:2] + b"\x80\0\0\1\0\1\0\0\0\0" + query[12:] + bytes([0xC0, len(query)]), id="a-name-without-an-end"),
    pytest.param(lambda query: query[:2] + b"\x80\0\0\1\0\1\0\0\0\0" + query[12:] + bytes([1, 65, 0xC0, len(query)]), id="a-name-that-grows"),
    pytest.param(lambda query: query[:2] + b"\x80\0\0\1\0\1\0\0\0\0" + query[12:] + b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 3) + b"\x0a\1\0", id="three-bytes-of-an-address"),
])
def test_an_answer_that_makes_no_sense_changes_nothing(registry, by_name, answer):
    place = registry.address, next(PORTS)
    with socket.create_server(place) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(place)

        def by_udp() -> None:
            with contextlib.suppress(OSError):
                while True:
                    query, client = udp.recvfrom(4096)
                    udp.sendto(answer(query), client)

        def by_tcp() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = tcp.accept()
                    with connection, contextlib.suppress(OSError):
                        text = answer(connection.recv(4096)[2:])
                        connection.sendall(len(text).to_bytes(2, "big") + text)

        for each in (by_udp, by_tcp):
            threading.Thread(target=each, daemon=True).start()
        program = by_name("dns=dns.example.test:5300")
        done = subprocess.run(program.words("--once", "--patience", "2", "--resolver", "{}:{}".format(*place)), check=False, timeout=60, capture_output=True, text=True)
        assert done.returncode == 0 and "cannot follow dns.example.test" in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert program.addresses() == ["10.77.0.11 53", "10.77.0.12 53"], "the template's"
        registry.serve("dns A 10.1.0.2")
        assert endpoints.Resolver([place, (registry.address, registry.port)]).ask(f"dns.{ZONE}", endpoints.A)[0] == ["10.1.0.2"]
        tcp.shutdown(socket.SHUT_RDWR)


def test_a_server_that_drips_has_its_two_seconds_and_the_next_one_is_asked(registry):
    place, dripped = (registry.address, next(PORTS)), []
    with socket.create_server(place) as tcp:

        def drip() -> None:
            with contextlib.suppress(OSError):
                connection, _ = tcp.accept()
                with connection:
                    while len(dripped) < 60:
                        connection.sendall(b"\xff")
                        dripped.append(1)
                        time.sleep(0.25)

        threading.Thread(target=drip, daemon=True).start()
        registry.serve("dns A 10.1.0.2")
        assert endpoints.Resolver([place, (registry.address, registry.port)]).ask(f"dns.{ZONE}", endpoints.A)[0] == ["10.1.0.2"]
    assert 1 <= len(dripped) < 40, "15 s of dripping were not waited for"


def test_before_the_daemon_starts_a_server_that_says_nothing_costs_the_patience_alone(registry, by_name):
    """20 servers, each of which is asked for 2 s, as the addresses of many SRV targets are."""
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(20)]
    program = by_name("dns=dns.example.test:5300")
    words = [word for each in silent for word in ("--resolver", "{}:{}".format(*each.getsockname()))]
    assert program.once("--patience", "1", *words) == 0, "within its 30 s"
    assert program.backends() == ["a 10.77.0.11 53", "b 10.77.0.12 53"], "the template's"
    for each in silent:
        each.close()


@pytest.mark.parametrize("words, reason", [
    (["--dns", "dns"], "expected SERVICE=NAME"), (["--dns", "dns=a..b"], "expected SERVICE=NAME"), (["--dns", "dns=a:0"], "expected SERVICE=NAME"),
    (["--dns", "dns=a:53", "--dns", "dns=b:53"], "one source"), (["--dns", "dns=a:53", "--resolver", "ns.example.test"], "expected ADDRESS"),
    (["--dns", "dns=a:53", "--changes", "0"], "1 or more")])
def test_what_is_wrong_of_a_name_is_named(words, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        endpoints.parse(["--config", "a", "--out", "b", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("word, server", [("127.0.0.1", ("127.0.0.1", 53)), ("127.0.0.1:8600", ("127.0.0.1", 8600)), ("[::1]:8600", ("::1", 8600)), ("[::1]", ("::1", 53))])
def test_a_resolver_has_an_address_and_perhaps_a_port(word, server):
    assert endpoints.dns_server(word) == server
