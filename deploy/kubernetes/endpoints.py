#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hedgerow-endpoints: keeps the configuration of a proxy's daemon like a file (a mounted ConfigMap), with the endpoints of one
Kubernetes Service as the backends of one of its services, and has the daemon reload it.

It runs beside the daemon (docs/adr/0051), which knows nothing of Kubernetes and works on without it. What the daemon has was good
once: it stays until something better is known. So no error of the API server, no empty list and no configuration that the daemon
refuses changes the file. Nothing but the standard library and PyYAML.
"""

import argparse
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
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_BACKENDS = 8  # of a service: docs/config.md
NAME = re.compile(r"[a-z0-9-]{1,31}")
WATCH_S = 60  # the server ends a watch after this; a connection that is silent for longer than this and 15 s is cut
LONGEST_WAIT_S = 30
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
FAILURES = (OSError, http.client.HTTPException, subprocess.SubprocessError, yaml.YAMLError, ValueError, AttributeError, LookupError, TypeError)


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


class Slices(threading.Thread):
    """What the server knows, followed for ever. `known` is None until it was listed once."""

    def __init__(self, api: Api, changed: threading.Event):
        super().__init__(daemon=True, name="slices")
        self._api, self._changed = api, changed
        self._slices: dict[str, dict] = {}
        self.known: list[dict] | None = None

    def run(self) -> None:
        version, wait_s = "", 0.5
        while True:
            try:
                if not version:
                    self._slices, version = self._api.list()
                    self._publish()
                for kind, item in self._api.watch(version):
                    version = item["metadata"]["resourceVersion"]
                    wait_s = 0.5
                    if kind in ("ADDED", "MODIFIED"):
                        self._slices[item["metadata"]["name"]] = item
                    elif kind == "DELETED":
                        self._slices.pop(item["metadata"]["name"], None)
                    else:
                        continue  # BOOKMARK: the version alone
                    self._publish()
                time.sleep(0.1)  # a watch that ended in order goes on from where it was
            except Gone:
                log("the server has forgotten where the watch was: listing anew")
                version = ""
                time.sleep(0.1)
            except FAILURES as error:
                log(f"cannot follow the EndpointSlices, and tries again: {type(error).__name__}: {error}")
                time.sleep(wait_s * random.uniform(0.8, 1.2))
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    def _publish(self) -> None:
        self.known = [self._slices[name] for name in sorted(self._slices)]
        self._changed.set()


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


# The configuration is changed as a tree of nodes, whose scalars keep their spelling: `on` is no boolean there.


def value_of(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def service_of(tree: yaml.Node | None, name: str) -> yaml.MappingNode | None:
    services = value_of(tree, "services") if isinstance(tree, yaml.MappingNode) else None
    for service in services.value if isinstance(services, yaml.SequenceNode) else []:
        found = value_of(service, "name") if isinstance(service, yaml.MappingNode) else None
        if found is not None and found.value == name:
            return service
    return None


def backends_of(service: yaml.MappingNode | None) -> dict[tuple[str, int], yaml.Node]:
    """The entries of a service by address and port."""
    backends = value_of(service, "backends") if service is not None else None
    return {(value_of(each, "address").value, int(value_of(each, "port").value)): each
            for each in (backends.value if isinstance(backends, yaml.SequenceNode) else [])}


def entry(name: str, address: str, port: int) -> yaml.Node:
    return yaml.compose(f"{{name: {json.dumps(name)}, address: {json.dumps(address)}, port: {port}}}", yaml.SafeLoader)


class Wanted:
    """What the daemon's file should say, of the template, the slices and what it says now."""

    def __init__(self, arguments: argparse.Namespace):
        self._template, self._out = Path(arguments.config), Path(arguments.out)
        self._service, self._port, self._node = arguments.service, arguments.port, arguments.node

    def text(self, slices: list[dict] | None) -> str:
        template = self._template.read_text(encoding="utf-8")
        if not self._service:
            return template
        tree = yaml.compose(template, yaml.SafeLoader)
        service = service_of(tree, self._service)
        if service is None:
            raise ValueError(f"{self._template} has no service {self._service!r}: --service names one of its services")
        in_template = backends_of(service)
        vip = ipaddress.ip_address(value_of(service, "vip").value)
        ready = {(address, port): name for name, address, port in ready_backends(slices or [], vip.version, self._port)}
        if not ready:
            if slices is not None:
                log("no endpoint is ready: the backends stay as they are")
            entries = list((self._now() or in_template).values())
        else:
            # The first one is the primary. Each node has an order of its own, in which an endpoint that comes or goes moves no other.
            order = sorted(ready, key=self._rank)
            if len(order) > MAX_BACKENDS:
                log(f"{len(order)} endpoints are ready, and a service has at most {MAX_BACKENDS} backends: this node takes {MAX_BACKENDS} of them")
            # An entry of the template has more to say than an endpoint: `node`, and a name of its own.
            entries = [in_template.get(key) or entry(ready[key], *key) for key in order[:MAX_BACKENDS]]
        names = {value_of(each, "name").value for each in entries}
        service.value = [(key, value) for key, value in service.value
                         if key.value != "backends" and not (key.value == "primary" and value.value not in names)]
        service.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", "backends"),
                              yaml.SequenceNode("tag:yaml.org,2002:seq", entries, flow_style=False)))
        return HEADER + yaml.serialize(tree, Dumper=yaml.SafeDumper)

    def _rank(self, endpoint: tuple[str, int]) -> bytes:
        """Rendezvous hashing: all nodes together use all endpoints alike."""
        return hashlib.sha256(f"{self._node} {endpoint[0]} {endpoint[1]}".encode()).digest()

    def _now(self) -> dict[tuple[str, int], yaml.Node]:
        try:
            return backends_of(service_of(yaml.compose(self._out.read_text(encoding="utf-8"), yaml.SafeLoader), self._service))
        except (OSError, yaml.YAMLError, AttributeError, ValueError):
            return {}


class File:
    """The daemon's file: exchanged as a whole, and only for one that the daemon's own check accepts."""

    def __init__(self, path: Path, hedgerow: str):
        self._path, self._hedgerow = path, hedgerow

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


def configure_once(arguments: argparse.Namespace, api: Api | None) -> int:
    """Before the daemon starts: what can be known within a few seconds, else the last known list, else the template."""
    slices, deadline = None, time.monotonic() + arguments.patience
    while api is not None and slices is None:
        try:
            slices = list(api.list()[0].values())
        except (Gone, *FAILURES) as error:
            log(f"cannot list the EndpointSlices: {type(error).__name__}: {error}")
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
    file = File(Path(arguments.out), arguments.hedgerow)
    try:
        file.replace(Wanted(arguments).text(slices))
    except FAILURES as error:
        log(str(error))
        return 0 if file.text() is not None else 1
    return 0


class Keeper:
    """Brings the file and the daemon to what is wanted, again and again."""

    def __init__(self, arguments: argparse.Namespace):
        self._wanted = Wanted(arguments)
        self._file = File(Path(arguments.out), arguments.hedgerow)
        self._socket = arguments.socket
        self._refused: str | None = None
        self._refused_at = 0.0
        self._in_force: str | None = None  # what the daemon has certainly read

    def step(self, slices: list[dict] | None) -> bool:
        """False: there is something left to do, with the same input."""
        try:
            text = self._wanted.text(slices)
        except FAILURES as error:
            return self._refuse(str(error), f"the configuration cannot be used, and the former one stays: {error}")
        if text == self._in_force:
            return True
        # The daemon's reason may go, a route that is missing for instance; an error of the file goes with a change alone.
        if text == self._refused and time.monotonic() - self._refused_at < LONGEST_WAIT_S:
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


def keep(arguments: argparse.Namespace, api: Api | None) -> None:
    changed = threading.Event()
    slices = Slices(api, changed) if api is not None else None
    if slices is not None:
        slices.start()
    keeper, template, seen, done = Keeper(arguments), Path(arguments.config), None, False
    while True:
        fired = changed.wait(timeout=2 * arguments.debounce)  # the template is looked at as often
        with contextlib.suppress(OSError):  # while a volume's files are exchanged
            seen_now = template.read_bytes()
            fired, seen = fired or seen_now != seen, seen_now
        if not fired and done:
            continue
        # A rollout changes many endpoints: they are waited for while they come, at most four times as long.
        deadline = time.monotonic() + 4 * arguments.debounce
        while fired and time.monotonic() < deadline:
            changed.clear()
            if not changed.wait(timeout=arguments.debounce):
                break
        if slices is not None and slices.known is None:
            continue  # nothing is known yet: what the file says stays
        try:
            done = keeper.step(slices.known if slices is not None else None)
        except FAILURES as error:
            log(f"trying again: {error}")
            done = False


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hedgerow-endpoints", description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", required=True, metavar="FILE", help="the configuration as its author wrote it")
    parser.add_argument("--out", required=True, metavar="FILE", help="the daemon's configuration, which this program writes")
    parser.add_argument("--service", default="", metavar="NAME", help="the service of the configuration whose backends are replaced")
    parser.add_argument("--endpoints", default="", metavar="NAMESPACE/SERVICE", help="the Kubernetes Service whose endpoints they become")
    parser.add_argument("--port", default="", metavar="NAME", help="the name of the Service's port (default: the only one, or the only UDP one)")
    parser.add_argument("--node", default=os.environ.get("NODE_NAME", ""), metavar="NAME", help="this node, by which endpoints are ordered (default: $NODE_NAME)")
    parser.add_argument("--once", action="store_true", help="write the file and end, before the daemon starts")
    parser.add_argument("--patience", type=float, default=10, metavar="SECONDS", help="with --once: how long the API server is waited for (10)")
    parser.add_argument("--debounce", type=float, default=0.5, metavar="SECONDS", help="how long further changes are waited for (0.5)")
    parser.add_argument("--socket", default="/run/hedgerow/admin.sock", metavar="PATH", help="the daemon's socket")
    parser.add_argument("--hedgerow", default="/usr/bin/hedgerow", metavar="PATH", help="the command line")
    parser.add_argument("--api", default="", metavar="URL", help="the API server (default: the one of this pod's cluster)")
    parser.add_argument("--account", type=Path, default=MOUNTED, metavar="FOLDER", help="a service account's `token` and `ca.crt`")
    arguments = parser.parse_args(words)
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
    api = Api(arguments.api, arguments.account, *arguments.endpoints.split("/")) if arguments.endpoints else None
    if arguments.once:
        return configure_once(arguments, api)
    global _writer
    _writer = threading.Thread(target=write_log, daemon=True)
    try:
        _writer.start()
        keep(arguments, api)
    except RuntimeError as error:
        write(f"{error}: raise the container's limit of processes (pids), and start again")
    return 1


if __name__ == "__main__":
    sys.exit(main())
