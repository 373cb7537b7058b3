# SPDX-License-Identifier: Apache-2.0
"""hedgerow-endpoints: keeps the configuration of a proxy's daemon like a file (a mounted ConfigMap), with the endpoints of a
Kubernetes Service, or what DNS names stand for, as the backends of its services, and has the daemon reload it.

It runs beside the daemon (docs/adr/0051), which knows no registry and works on without it. What the daemon has was good
once: it stays until something better is known. So no error of a registry, no empty list and no configuration that the daemon
refuses changes the file. Nothing but the standard library and PyYAML.
"""

import argparse
import collections
import contextlib
import hashlib
import http.client
import ipaddress
import json
import os
import queue
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_BACKENDS, MAX_WEIGHT = 8, 256  # of a service: docs/config.md
MOST_TARGETS = 64  # of a name's SRV records are asked for addresses, those of the smallest priorities
NAME = re.compile(r"[a-z0-9-]{1,31}")
WATCH_S = 60  # the server ends a watch after this; a connection that is silent for longer than this and 15 s is cut
LONGEST_WAIT_S = 30
SHORTEST_TTL_S, EMPTY_TTL_S, LONGEST_TTL_S = 1, 5, 3600
ANSWER_S = 2  # of a DNS server, before the next one is asked
A, CNAME, AAAA, SRV = 1, 5, 28, 33
NOT_RUNNING = 3  # docs/cli.md, Exit codes
HEADER = "# Written by hedgerow-endpoints: changes are overwritten.\n"


_last_logged = ""
MOST_LINES = 1000  # wait for stderr; more are lost
_lines: queue.SimpleQueue[str] = queue.SimpleQueue()
_writer: threading.Thread | None = None


def log(text: str) -> None:
    """The same failure is told once, though each turn meets it. With a writer, a stderr that no process reads holds up it alone."""
    global _last_logged
    if text != _last_logged and _writer is None:
        write(text)
    elif text != _last_logged and _lines.qsize() < MOST_LINES:
        _lines.put(text)
    _last_logged = text


def write(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk, a reader that is gone
        os.write(2, f"hedgerow-endpoints: {text}\n".encode())


def write_log() -> None:
    while True:
        write(_lines.get())


# What an answer of a server, a file or a program can be: each is said, and tried again.
FAILURES = (OSError, http.client.HTTPException, subprocess.SubprocessError, struct.error, yaml.YAMLError, ValueError, AttributeError, LookupError, TypeError)


class Gone(Exception):
    """The server has forgotten the version that a watch was to go on from (410): everything is listed anew."""


class Api:
    """The EndpointSlices of one Service, by list and watch."""

    def __init__(self, url: str, folder: Path, namespace: str, service: str):
        self._folder = folder
        query = urllib.parse.urlencode({"labelSelector": f"kubernetes.io/service-name={service}"})
        self._url = f"{url}/apis/discovery.k8s.io/v1/namespaces/{urllib.parse.quote(namespace)}/endpointslices?{query}"

    def _open(self, more: str, timeout: float):
        request = urllib.request.Request(self._url + more, headers={"Accept": "application/json", "User-Agent": "hedgerow-endpoints"})
        # Read again each time: tokens are short-lived, and kubelet replaces the file.
        with contextlib.suppress(FileNotFoundError):
            request.add_header("Authorization", f"Bearer {(self._folder / 'token').read_text(encoding='ascii').strip()}")
        context = None
        if self._url.startswith("https:"):
            context = ssl.create_default_context(cafile=self._folder / "ca.crt")
        try:
            return urllib.request.urlopen(request, timeout=timeout, context=context)
        except urllib.error.HTTPError as error:
            if error.code == 410:
                raise Gone from error
            raise

    def list(self) -> tuple[dict[str, dict], str]:
        with self._open("", 15) as answer:
            body = json.load(answer)
        return {item["metadata"]["name"]: item for item in body.get("items") or []}, body["metadata"]["resourceVersion"]

    def watch(self, version: str) -> Iterator[tuple[str, dict]]:
        more = f"&watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={urllib.parse.quote(version)}"
        with self._open(more, WATCH_S + 15) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == 410:
                        raise Gone
                    raise OSError(f"the watch ended: {event['object'].get('message')}")
                yield event["type"], event["object"]


class Endpoint(NamedTuple):
    name: str
    address: str
    port: int
    priority: int = 0  # the smallest ones lead
    weight: int = 1


class Source(threading.Thread):
    """A registry, followed for ever. `known` is None until it was listed once."""

    def __init__(self, changed: threading.Event):
        super().__init__(daemon=True)
        self._changed = changed
        self.known: list | None = None

    def follow(self) -> Iterator[list]:
        raise NotImplementedError

    def endpoints(self, known: list, version: int) -> list[Endpoint]:
        """Those of an IP version."""
        raise NotImplementedError

    def run(self) -> None:
        wait_s = 0.5
        while True:
            try:
                for known in self.follow():
                    wait_s = 0.5
                    if known != self.known:
                        self.known = known
                        self._changed.set()
            except FAILURES as error:
                log(f"cannot follow {self}, and tries again: {type(error).__name__}: {error}")
                time.sleep(wait_s * random.uniform(0.8, 1.2))
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)


class Slices(Source):
    def __init__(self, api: Api, port: str, changed: threading.Event):
        super().__init__(changed)
        self._api, self._port = api, port
        self._slices: dict[str, dict] = {}
        self._version = ""

    def __str__(self) -> str:
        return "the EndpointSlices"

    def listed(self) -> list[dict]:
        self._slices, self._version = self._api.list()
        return self._sorted()

    def _sorted(self) -> list[dict]:
        return [self._slices[name] for name in sorted(self._slices)]

    def follow(self) -> Iterator[list[dict]]:
        while True:
            try:
                if not self._version:
                    yield self.listed()
                for kind, item in self._api.watch(self._version):
                    self._version = item["metadata"]["resourceVersion"]
                    if kind in ("ADDED", "MODIFIED"):
                        self._slices[item["metadata"]["name"]] = item
                    elif kind == "DELETED":
                        self._slices.pop(item["metadata"]["name"], None)
                    yield self._sorted()  # after a BOOKMARK the same
            except Gone:
                log("the server has forgotten where the watch was: listing anew")
                self._version = ""
            time.sleep(0.1)  # a watch that ended in order goes on from where it was

    def endpoints(self, known: list[dict], version: int) -> list[Endpoint]:
        return [Endpoint(*each) for each in ready_backends(known, version, self._port)]


def read_name(message: bytes, at: int) -> tuple[str, int]:
    """A domain name of a DNS message, in lower case, and where it ends."""
    labels, end, hops = [], 0, 0
    while length := message[at]:
        if length < 64:
            labels.append(message[at + 1:at + 1 + length].decode("latin-1").lower())
            at += 1 + length
        else:
            at, end, hops = int.from_bytes(message[at:at + 2], "big") & 0x3FFF, end or at + 2, hops + 1
        if len(labels) + hops > 127:
            raise ValueError("a DNS answer with a name that does not end")
    return ".".join(labels), end or at + 1


class Resolver:
    """Asks DNS servers by TCP, and by UDP where that is not served: over UDP a registry may leave addresses out without saying so."""

    def __init__(self, servers: list[tuple[str, int]]):
        self._servers = servers

    def ask(self, name: str, kind: int, aliases: int = 8) -> tuple[list[str | tuple], float]:
        """The records of a name that may be an alias, and for how long they are good. A name that does not exist has none."""
        labels = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split("."))
        query = os.urandom(2) + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, 1)
        records, ttl, alias = self._exchange(query, name, kind)
        if alias == name.lower() or records:
            return records, ttl
        if not aliases:
            raise ValueError(f"{name} is an alias of an alias, and so on")
        records, shorter = self.ask(alias, kind, aliases - 1)
        return records, min(ttl, shorter)

    def _exchange(self, query: bytes, name: str, kind: int) -> tuple[list, float, str]:
        servers, failed = self._servers or [
            (words[1], 53) for words in map(str.split, Path("/etc/resolv.conf").read_text(encoding="utf-8").splitlines()) if words[:1] == ["nameserver"] and words[1:]], []
        for server, protocol in ((server, protocol) for server in servers for protocol in (socket.SOCK_STREAM, socket.SOCK_DGRAM)):
            try:
                answer = self._answer(server, protocol, query)
                flags = int.from_bytes(answer[2:4], "big")
                if answer[:2] != query[:2] or answer[12:len(query)].lower() != query[12:].lower() or not flags & 0x8000:
                    raise ValueError("an answer to another question")
                if flags & 0x0200:
                    raise ValueError("an answer that was cut short")
                if flags & 15 not in (0, 3):
                    raise ValueError(f"DNS error {flags & 15}")
                return self._read(answer, len(query), name, kind)
            except (OSError, ValueError, LookupError, struct.error) as error:
                failed.append(f"{server[0]}: {error}")
        raise OSError("; ".join(dict.fromkeys(failed)) or "no DNS server is known")

    @staticmethod
    def _answer(server: tuple[str, int], protocol: int, query: bytes) -> bytes:
        """Within ANSWER_S, also of a server that sends a byte now and then."""
        until = time.monotonic() + ANSWER_S
        with socket.socket(socket.AF_INET6 if ":" in server[0] else socket.AF_INET, protocol) as asked:
            asked.settimeout(ANSWER_S)
            asked.connect(server)
            if protocol == socket.SOCK_DGRAM:
                asked.send(query)
                return asked.recv(65535)
            asked.sendall(len(query).to_bytes(2, "big") + query)
            answer = b""
            while len(answer) < 2 + int.from_bytes(answer[:2].ljust(2, b"\xff"), "big"):
                if (left := until - time.monotonic()) <= 0:
                    raise TimeoutError("timed out")
                asked.settimeout(left)
                if not (more := asked.recv(65535)):
                    raise ValueError("an answer that was cut short")
                answer += more
            return answer[2:]

    @staticmethod
    def _read(answer: bytes, at: int, name: str, kind: int) -> tuple[list, float, str]:
        aliases, found, ttls = {}, [], []
        for _ in range(int.from_bytes(answer[6:8], "big")):
            owner, at = read_name(answer, at)
            is_of, _, ttl, length = struct.unpack_from("!HHIH", answer, at)
            at += 10
            if is_of == CNAME:
                aliases[owner] = read_name(answer, at)[0]
            elif is_of == kind:
                found.append((owner, (*struct.unpack_from("!3H", answer, at), read_name(answer, at + 6)[0]) if kind == SRV else
                              str((ipaddress.IPv4Address if kind == A else ipaddress.IPv6Address)(answer[at:at + length]))))
            ttls.append(ttl)
            at += length
        alias = name.lower()
        for _ in aliases:
            alias = aliases.get(alias, alias)
        return [record for owner, record in found if owner == alias], min(ttls, default=EMPTY_TTL_S), alias


class Names(Source):
    """A DNS name: addresses with a port of ours, or SRV records, which have ports of their own."""

    def __init__(self, resolver: Resolver, name: str, port: int, template: Path, service: str, changed: threading.Event):
        super().__init__(changed)
        self._resolver, self._name, self._port, self._template, self._service = resolver, name, port, template, service
        self._ttl: float = 0

    def __str__(self) -> str:
        return f"{self._name} ({'addresses' if self._port else 'SRV records'})"

    def listed(self) -> list[Endpoint]:
        _, version = service_in(self._template, read_tree(self._template), self._service)
        self._ttl, found = LONGEST_TTL_S, {}
        targets = [(0, 1, self._port, self._name)] if self._port else self._ask(self._name, SRV)[:MOST_TARGETS]
        for priority, weight, port, target in targets:
            for address in self._ask(target, A if version == 4 else AAAA) if target else []:
                name = backend_name({}, address) if self._port else f"{target.split('.')[0]}-{port}"
                found.setdefault((address, port), Endpoint(name, address, port, priority, weight))
        names = collections.Counter(each.name for each in found.values())
        return sorted(each if names[each.name] == 1 and NAME.fullmatch(each.name) else each._replace(name=backend_name({}, f"{each.address}-{each.port}"))
                      for each in found.values())

    def _ask(self, name: str, kind: int) -> list:
        records, ttl = self._resolver.ask(name, kind)
        self._ttl = min(self._ttl, ttl)
        return sorted(records)

    def follow(self) -> Iterator[list[Endpoint]]:
        while True:
            yield self.listed()
            time.sleep(max(self._ttl, SHORTEST_TTL_S))

    def endpoints(self, known: list[Endpoint], version: int) -> list[Endpoint]:
        return [each for each in known if ipaddress.ip_address(each.address).version == version]


def backend_name(endpoint: dict, address: str) -> str:
    target = (endpoint.get("targetRef") or {}).get("name") or address
    name = re.sub(r"[^a-z0-9-]", "-", target.lower())
    if name == target and NAME.fullmatch(name):
        return name
    return f"{name[:22]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"


def port_of(item: dict, wanted: str) -> int | None:
    ports = [port for port in item.get("ports") or [] if port.get("port")]
    if wanted:
        ports = [port for port in ports if port.get("name") == wanted]
    elif len(ports) > 1:
        ports = [port for port in ports if port.get("protocol") == "UDP"]
    return ports[0]["port"] if len(ports) == 1 else None


def ready_backends(slices: list[dict], version: int, port_name: str) -> list[tuple[str, str, int]]:
    """Name, address and port of every endpoint that is ready, of the VIP's IP version. Without a condition it is ready."""
    found = {}
    for item in slices:
        port = port_of(item, port_name)
        if port is None or item.get("addressType") != f"IPv{version}":
            continue
        for endpoint in item.get("endpoints") or []:
            conditions = endpoint.get("conditions") or {}
            if conditions.get("ready") is False or conditions.get("terminating"):
                continue
            address = str(ipaddress.ip_address(endpoint["addresses"][0]))
            found[address, port] = backend_name(endpoint, address)
    return sorted((name, address, port) for (address, port), name in found.items())


# The configuration is changed as a tree of nodes, whose scalars keep their spelling: `on` is no boolean there. It may hold keys, also in
# a wrong place, so that no error repeats any of it.


def read_tree(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"{path} is no YAML{f', line {mark.line + 1}' if mark else ''}: `hedgerow validate --config {path}` says more") from None


def value_of(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def service_of(tree: yaml.Node | None, name: str) -> yaml.MappingNode | None:
    services = value_of(tree, "services") if isinstance(tree, yaml.MappingNode) else None
    for service in services.value if isinstance(services, yaml.SequenceNode) else []:
        found = value_of(service, "name") if isinstance(service, yaml.MappingNode) else None
        if found is not None and found.value == name:
            return service
    return None


def service_in(template: Path, tree: yaml.Node | None, name: str) -> tuple[yaml.MappingNode, int]:
    """The service, and the IP version of its VIP."""
    service = service_of(tree, name)
    if service is None:
        raise ValueError(f"{template} has no service {name!r}: --service and --dns name one of its services")
    try:
        return service, ipaddress.ip_address(value_of(service, "vip").value).version
    except (ValueError, AttributeError):
        raise ValueError(f"{template}, line {service.start_mark.line + 1}: service {name!r} has no `vip` that is an address") from None


def backends_of(service: yaml.MappingNode | None) -> dict[tuple[str, int], yaml.Node]:
    """The entries of a service by address and port."""
    backends = value_of(service, "backends") if service is not None else None
    return {(value_of(each, "address").value, int(value_of(each, "port").value)): each
            for each in (backends.value if isinstance(backends, yaml.SequenceNode) else [])}


def entry(endpoint: Endpoint, weight: int | None) -> yaml.Node:
    more = "" if weight is None else f", weight: {weight}"
    return yaml.compose(f"{{name: {json.dumps(endpoint.name)}, address: {json.dumps(endpoint.address)}, port: {endpoint.port}{more}}}", yaml.SafeLoader)


class Wanted:
    """What the daemon's file should say, of the template, the registries and what it says now."""

    def __init__(self, arguments: argparse.Namespace, sources: dict[str, Source]):
        self._template, self._out = Path(arguments.config), Path(arguments.out)
        self._sources, self._node = sources, arguments.node

    def text(self, known: dict[str, list | None]) -> str:
        if not known:
            return self._template.read_text(encoding="utf-8")
        tree = read_tree(self._template)
        for name in known:
            self._fill(tree, name, known[name])
        return HEADER + yaml.serialize(tree, Dumper=yaml.SafeDumper)

    def _fill(self, tree: yaml.Node | None, name: str, known: list | None) -> None:
        service, version = service_in(self._template, tree, name)
        try:
            in_template = backends_of(service)
        except (ValueError, AttributeError):
            raise ValueError(f"{self._template}: a backend of {name!r} has no `address` and `port`") from None
        ready = {(each.address, each.port): each for each in self._sources[name].endpoints(known or [], version)}
        if not ready:
            if known is not None:
                log(f"{name}: no endpoint is ready: the backends stay as they are")
            entries = list((self._now(name) or in_template).values())
        else:
            # The first one is the primary. Each node has an order of its own, in which an endpoint that comes or goes moves no other.
            order = sorted(ready.values(), key=self._rank)
            if len(order) > MAX_BACKENDS:
                log(f"{name}: {len(order)} endpoints are ready, and a service has at most {MAX_BACKENDS} backends: this node takes {MAX_BACKENDS} of them")
            # An entry of the template has more to say than an endpoint: `node`, and a name of its own.
            entries = [in_template.get((each.address, each.port)) or entry(each, self._weight(service, each, order[0])) for each in order[:MAX_BACKENDS]]
        names = {value_of(each, "name").value for each in entries}
        service.value = [(key, value) for key, value in service.value
                         if key.value != "backends" and not (key.value == "primary" and value.value not in names)]
        service.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", "backends"),
                              yaml.SequenceNode("tag:yaml.org,2002:seq", entries, flow_style=False)))

    @staticmethod
    def _weight(service: yaml.MappingNode, endpoint: Endpoint, first: Endpoint) -> int | None:
        """Where requests are shared, those of a later priority (SRV) are standbys."""
        prefer = value_of(service, "prefer")
        if prefer is None or prefer.value not in ("each", "source"):
            return None
        return min(max(endpoint.weight, 1), MAX_WEIGHT) if endpoint.priority == first.priority else 0

    def _rank(self, endpoint: Endpoint) -> tuple[int, bytes]:
        """Rendezvous hashing: all nodes together use all endpoints of a priority alike."""
        return endpoint.priority, hashlib.sha256(f"{self._node} {endpoint.address} {endpoint.port}".encode()).digest()

    def _now(self, name: str) -> dict[tuple[str, int], yaml.Node]:
        try:
            return backends_of(service_of(yaml.compose(self._out.read_text(encoding="utf-8"), yaml.SafeLoader), name))
        except (OSError, yaml.YAMLError, AttributeError, ValueError):
            return {}


class File:
    """The daemon's file: exchanged as a whole, and only for one that the daemon's own check accepts."""

    def __init__(self, arguments: argparse.Namespace):
        self._path, self._template, self._hedgerow = Path(arguments.out), Path(arguments.config), arguments.hedgerow

    def text(self) -> str | None:
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def replace(self, text: str) -> None:
        # Of the same folder, so that the rename is one step. A configuration may hold keys.
        new = self._path.with_name(f".{self._path.name}.new")
        new.unlink(missing_ok=True)
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "w", encoding="utf-8") as out:
                with contextlib.suppress(PermissionError):  # a container without that right, whose daemon is of its user
                    os.fchown(out.fileno(), -1, self._template.stat().st_gid)
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            done = self.command("validate", "--config", str(new))
            if done.returncode != 0:
                raise ValueError(f"the configuration has errors, and the former one stays:\n{done.stdout}{done.stderr}".rstrip())
            new.rename(self._path)
        finally:
            new.unlink(missing_ok=True)

    def restore(self, text: str | None) -> None:
        if text is not None:
            self.replace(text)

    def command(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([self._hedgerow, *words], capture_output=True, text=True, check=False, timeout=60)


def configure_once(arguments: argparse.Namespace, sources: dict[str, Source], changed: threading.Event) -> int:
    """Before the daemon starts: what is known within the patience, whatever a registry does, else the last known list, else the template."""
    deadline = time.monotonic() + arguments.patience
    for source in sources.values():
        source.start()
    while any(source.known is None for source in sources.values()) and (left := deadline - time.monotonic()) > 0:
        changed.wait(left)
        changed.clear()
    known = {name: source.known for name, source in sources.items()}
    file = File(arguments)
    try:
        file.replace(Wanted(arguments, sources).text(known))
    except FAILURES as error:
        log(str(error))
        return 0 if file.text() is not None else 1
    return 0


class Keeper:
    """Brings the file and the daemon to what is wanted, again and again."""

    def __init__(self, arguments: argparse.Namespace, sources: dict[str, Source]):
        self._wanted = Wanted(arguments, sources)
        self._file = File(arguments)
        self._socket = arguments.socket
        self.changed_at: collections.deque[float] = collections.deque(maxlen=arguments.changes)
        self._refused: str | None = None
        self._refused_at = 0.0
        self._in_force: str | None = None  # what the daemon has certainly read

    def step(self, known: dict[str, list | None]) -> bool:
        """False: there is something left to do, with the same input."""
        try:
            text = self._wanted.text(known)
        except FAILURES as error:
            return self._refuse(str(error), f"the configuration cannot be used, and the former one stays: {error}")
        if text == self._in_force:
            return True
        # The daemon's reason may go, a route that is missing for instance; an error of the file goes with a change alone.
        if text == self._refused and time.monotonic() - self._refused_at < LONGEST_WAIT_S:
            return False
        if len(self.changed_at) == self.changed_at.maxlen and time.monotonic() - self.changed_at[0] < 60:
            log(f"{len(self.changed_at)} changes in a minute: further ones wait for its end")
            return False
        before = self._file.text()
        try:
            if before != text:
                self._file.replace(text)
        except ValueError as error:  # what the system refuses is tried again soon
            return self._refuse(text, str(error))
        done = self._file.command("reload", "--socket", self._socket)
        if done.returncode == 0:
            log(f"reloaded: {done.stdout.strip()}")
            self.changed_at.append(time.monotonic())
            self._in_force, self._refused = text, None
            return True
        if done.returncode == NOT_RUNNING:
            return False  # it will read the file when it starts; asked again until it runs
        self._file.restore(before)
        return self._refuse(text, f"the daemon refuses the configuration, and the former one stays:\n{done.stdout}{done.stderr}".rstrip())

    def _refuse(self, what: str, reason: str) -> bool:
        if self._refused != what:
            log(reason)
        self._refused, self._refused_at = what, time.monotonic()
        return False


def keep(arguments: argparse.Namespace, sources: dict[str, Source], changed: threading.Event) -> None:
    for source in sources.values():
        source.start()
    keeper, template, seen, done = Keeper(arguments, sources), Path(arguments.config), None, False
    while True:
        fired = changed.wait(timeout=2 * arguments.debounce)  # the template is looked at as often
        with contextlib.suppress(OSError):  # while a volume's files are exchanged
            seen_now = template.read_bytes()
            if seen_now != seen:
                keeper.changed_at.clear()  # an operator's change waits for no minute
            fired, seen = fired or seen_now != seen, seen_now
        if not fired and done:
            continue
        # A rollout changes many endpoints: they are waited for while they come, at most four times as long.
        deadline = time.monotonic() + 4 * arguments.debounce
        while fired and time.monotonic() < deadline:
            changed.clear()
            if not changed.wait(timeout=arguments.debounce):
                break
        known = {name: source.known for name, source in sources.items()}
        if known and all(each is None for each in known.values()):
            continue  # nothing is known yet: what the file says stays
        try:
            done = keeper.step(known)
        except FAILURES as error:
            log(f"trying again: {error}")
            done = False


def sources_of(arguments: argparse.Namespace, changed: threading.Event) -> dict[str, Source]:
    """By the name of the service whose backends they give."""
    sources: dict[str, Source] = {}
    if arguments.endpoints:
        sources[arguments.service] = Slices(Api(arguments.api, arguments.account, *arguments.endpoints.split("/")), arguments.port, changed)
    for service, name, port in arguments.dns:
        sources[service] = Names(Resolver(arguments.resolver), name, port, Path(arguments.config), service, changed)
    return sources


def dns_name(word: str) -> tuple[str, str, int]:
    found = re.fullmatch(r"([a-z0-9-]+)=((?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63})\.?(?::(\d{1,5}))?", word)
    if found is None or len(found[2]) > 253 or not 0 < int(found[3] or 1) < 65536:
        raise argparse.ArgumentTypeError(f"got {word!r}, expected SERVICE=NAME (SRV records) or SERVICE=NAME:PORT (addresses), such as dns=dns.example.test:53")
    return found[1], found[2], int(found[3] or 0)


def dns_server(word: str) -> tuple[str, int]:
    try:
        at = urllib.parse.urlsplit(f"//{word}")
        return str(ipaddress.ip_address(at.hostname or "")), at.port or 53
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {word!r}, expected ADDRESS or ADDRESS:PORT, such as 127.0.0.1:8600 or [::1]:8600") from error


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hedgerow-endpoints", description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", required=True, metavar="FILE", help="the configuration as its author wrote it")
    parser.add_argument("--out", required=True, metavar="FILE", help="the daemon's configuration, which this program writes")
    parser.add_argument("--service", default="", metavar="NAME", help="the service of the configuration whose backends are replaced")
    parser.add_argument("--endpoints", default="", metavar="NAMESPACE/SERVICE", help="the Kubernetes Service whose endpoints they become")
    parser.add_argument("--port", default="", metavar="NAME", help="the name of the Service's port (default: the only one, or the only UDP one)")
    parser.add_argument("--dns", type=dns_name, action="append", default=[], metavar="SERVICE=NAME[:PORT]",
                        help="a service of the configuration whose backends are the addresses of a DNS name, or without a port its SRV records; for each service again")
    parser.add_argument("--resolver", type=dns_server, action="append", default=[], metavar="ADDRESS[:PORT]", help="a DNS server (default: those of /etc/resolv.conf)")
    parser.add_argument("--node", default=os.environ.get("NODE_NAME") or socket.gethostname(), metavar="NAME", help="this node, by which endpoints are ordered (default: $NODE_NAME, or the host's name)")
    parser.add_argument("--once", action="store_true", help="write the file and end, before the daemon starts")
    parser.add_argument("--patience", type=float, default=10, metavar="SECONDS", help="with --once: how long registries are waited for (10)")
    parser.add_argument("--debounce", type=float, default=0.5, metavar="SECONDS", help="how long further changes are waited for (0.5)")
    parser.add_argument("--changes", type=int, default=20, metavar="N", help="at most so many changes a minute (20); those of the template are not counted")
    parser.add_argument("--socket", default="/run/hedgerow/admin.sock", metavar="PATH", help="the daemon's socket")
    parser.add_argument("--hedgerow", default="/usr/bin/hedgerow", metavar="PATH", help="the command line")
    parser.add_argument("--api", default="", metavar="URL", help="the API server (default: the one of this pod's cluster)")
    parser.add_argument("--account", type=Path, default=MOUNTED, metavar="FOLDER", help="a service account's `token` and `ca.crt`")
    arguments = parser.parse_args(words)
    if arguments.changes < 1:
        parser.error(f"--changes: got {arguments.changes}, expected 1 or more")
    followed = [service for service, _, _ in arguments.dns] + [arguments.service]
    if len(set(followed)) < len(followed):
        parser.error("--dns: a service has one source of backends")
    if bool(arguments.service) != bool(arguments.endpoints):
        parser.error("--service and --endpoints go together: which backends are replaced, and by what")
    if arguments.endpoints and not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", arguments.endpoints):
        parser.error(f"--endpoints: got {arguments.endpoints!r}, expected NAMESPACE/SERVICE, such as default/dns")
    if arguments.endpoints and not arguments.api:
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if not host:
            parser.error("no API server: this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set); give --api URL")
        host = f"[{host}]" if ":" in host else host
        arguments.api = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    return arguments


def main() -> int:
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:  # where standard descriptors are closed, the log would go to what is opened next
        pass
    os.close(null)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup's stays
            signal.signal(number, lambda which, _: log(f"{signal.Signals(which).name} is ignored: the template is read whenever it changes"))
    arguments = parse()
    changed = threading.Event()
    sources = sources_of(arguments, changed)
    global _writer
    try:
        if arguments.once:
            return configure_once(arguments, sources, changed)
        _writer = threading.Thread(target=write_log, daemon=True)
        _writer.start()
        keep(arguments, sources, changed)
    except RuntimeError as error:
        write(f"{error}: raise the container's limit of processes (pids), and start again")
    return 1


if __name__ == "__main__":
    sys.exit(main())
