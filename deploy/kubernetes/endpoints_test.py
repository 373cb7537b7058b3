# SPDX-License-Identifier: Apache-2.0
"""hedgerow-endpoints against an API server that says what the test wants: lists, watch events, errors, connections that break. The
daemon is a script that notes what it is asked; tests/e2e/test_kubernetes.py has a real one."""

import fcntl
import hashlib
import http.server
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes import endpoints

PROGRAM = Path(endpoints.__file__)
TEMPLATE = """\
services:
  - name: other
    vip: 10.99.0.54
    port: 53
    profile: dns
    dry_run: on
    backends:
      - {name: o, address: 10.77.0.99, port: 53}
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    delay: 10ms
    primary: a
    backends:
      - {name: a, address: 10.77.0.11, port: 53, node: 7}
      - {name: b, address: 10.77.0.12, port: 53}
"""
DAEMON = """\
#!/bin/sh
echo "$*" >>"{folder}/asked"
if [ "$1" = validate ] && grep -q invalid "$3"; then echo "line 1: no"; exit 2; fi
code=$(cat "{folder}/reload_exit" 2>/dev/null)  # once: a test takes it away meanwhile
if [ "$1" = reload ] && [ -n "$code" ]; then echo "no route"; exit "$code"; fi
"""


def endpoint(address: str, name: str, **conditions: bool) -> dict:
    return {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": name}}


def piece(name: str, *of: dict, family: str = "IPv4", ports=({"name": "dns", "port": 5353, "protocol": "UDP"},)) -> dict:
    return {"metadata": {"name": name, "resourceVersion": "1"}, "addressType": family, "ports": list(ports), "endpoints": list(of)}


class FakeApi(http.server.ThreadingHTTPServer):
    """`slices` and `version` are what a list says; `send` gives an event to the watch that is open."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.slices: list[dict] = []
        self.version = 10
        self.asked: list[dict] = []  # the queries, in order
        self.fail = 0  # a status for every request
        self.events: queue.Queue = queue.Queue()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def send(self, kind: str, item: dict) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.events.put({"type": kind, "object": item})

    def watches(self) -> list[dict]:
        return [query for query in self.asked if "watch" in query]

    def lists(self) -> int:
        return len(self.asked) - len(self.watches())

    def handle_error(self, request, client_address):
        pass  # connections that the test cuts


class Handler(http.server.BaseHTTPRequestHandler):
    server: FakeApi

    def do_GET(self):
        at = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(at.query))
        assert at.path == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", self.path
        assert query["labelSelector"] == "kubernetes.io/service-name=dns"
        assert self.headers["Authorization"] == "Bearer secret"
        self.server.asked.append(query)
        if self.server.fail:
            self.send_error(self.server.fail)
            return
        self.send_response(200)
        self.end_headers()
        if "watch" not in query:
            self.wfile.write(json.dumps({"metadata": {"resourceVersion": str(self.server.version)}, "items": self.server.slices}).encode())
            return
        mine = len(self.server.watches())
        while mine == len(self.server.watches()):
            try:
                event = self.server.events.get(timeout=0.02)
            except queue.Empty:
                continue
            if event == "cut":
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.wfile.write(json.dumps(event).encode() + b"\n")

    def log_message(self, *_):
        pass


class Controller:
    def __init__(self, folder: Path, api: FakeApi):
        self.folder, self.api = folder, api
        self.template, self.out = folder / "template.yaml", folder / "hedgerow.yaml"
        self.template.write_text(TEMPLATE, encoding="utf-8")
        (folder / "account").mkdir()
        (folder / "account/token").write_text("secret\n", encoding="ascii")
        daemon = folder / "hedgerow"
        daemon.write_text(DAEMON.format(folder=folder), encoding="ascii")
        daemon.chmod(0o755)
        self.process: subprocess.Popen | None = None

    def words(self, *more: str) -> list[str]:
        return [sys.executable, str(PROGRAM), "--config", str(self.template), "--out", str(self.out), "--service", "dns",
                "--endpoints", "default/dns", "--api", self.api.url, "--account", str(self.folder / "account"),
                "--hedgerow", str(self.folder / "hedgerow"), "--debounce", "0.1", "--node", "node-1", *more]

    def start(self) -> None:
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.words(), stderr=log)

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(timeout=10) == 0

    def once(self, *more: str) -> int:
        return subprocess.run(self.words("--once", *more), check=False, timeout=30, capture_output=True).returncode

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def asked(self, what: str) -> int:
        asked = self.folder / "asked"
        return sum(line.startswith(what) for line in asked.read_text(encoding="ascii").splitlines()) if asked.exists() else 0

    def backends(self) -> list[str]:
        if not self.out.exists():
            return []
        service = yaml.safe_load(self.out.read_text(encoding="utf-8"))["services"][1]
        return [f"{each['name']} {each['address']} {each['port']}" for each in service["backends"]]


def until(condition, what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    server = FakeApi()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def controller(tmp_path, api) -> Iterator[Controller]:
    made = Controller(tmp_path, api)
    yield made
    made.end()


def ordered(*backends: str, node: str = "node-1") -> list[str]:
    """As this node orders them: the backend with the smallest hash of node and endpoint leads."""
    return sorted(backends, key=lambda each: hashlib.sha256(" ".join([node, *each.split()[1:]]).encode()).digest())


A, B, C = "dns-a 10.1.0.1 5353", "dns-b 10.1.0.2 5353", "dns-c 10.1.0.3 5353"
ONE, TWO, THREE = endpoint("10.1.0.1", "dns-a", ready=True), endpoint("10.1.0.2", "dns-b", ready=True), endpoint("10.1.0.3", "dns-c")


def test_endpoints_come_go_and_are_not_ready(controller, api):
    api.slices = [piece("dns-1", ONE, TWO)]
    controller.start()
    until(lambda: controller.backends() == ordered(A, B), "the list")
    until(lambda: controller.asked("reload") == 1, "the reload")
    api.send("ADDED", piece("dns-2", THREE))  # without a condition it is ready
    until(lambda: controller.backends() == ordered(A, B, C), "added")
    api.send("MODIFIED", piece("dns-1", endpoint("10.1.0.1", "dns-a", ready=False), TWO))
    until(lambda: controller.backends() == ordered(B, C), "not ready")
    api.send("MODIFIED", piece("dns-1", ONE, TWO))
    until(lambda: controller.backends() == ordered(A, B, C), "ready again")
    api.send("MODIFIED", piece("dns-1", ONE, endpoint("10.1.0.2", "dns-b", ready=True, terminating=True)))
    until(lambda: controller.backends() == ordered(C, A), "terminating")
    api.send("DELETED", piece("dns-2"))
    until(lambda: controller.backends() == [A], "a slice is deleted")
    text = controller.out.read_text(encoding="utf-8")
    assert "dry_run: on" in text and "primary" not in text and "10.77.0.99" in text, "the rest is as its author wrote it"
    assert controller.out.stat().st_mode & 0o7777 == 0o640


def test_no_list_of_backends_is_ever_empty(controller, api):
    api.slices = [piece("dns-1", ONE, TWO)]
    controller.start()
    until(lambda: controller.backends() == ordered(A, B), "the list")
    api.send("MODIFIED", piece("dns-1", endpoint("10.1.0.1", "dns-a", ready=False)))
    until(lambda: "no endpoint is ready" in controller.log(), "it is logged")
    api.send("DELETED", piece("dns-1"))
    time.sleep(0.3)
    assert controller.backends() == ordered(A, B)
    assert controller.asked("reload") == 1


def test_a_watch_goes_on_where_it_was_cut(controller, api):
    api.slices = [piece("dns-1", ONE)]
    controller.start()
    until(lambda: controller.backends() == [A], "the list")
    api.send("ADDED", piece("dns-2", TWO))
    until(lambda: controller.backends() == ordered(A, B), "added")
    api.send("BOOKMARK", {"metadata": {}})
    version = str(api.version)
    api.events.put("cut")
    until(lambda: len(api.watches()) >= 2, "a second watch")
    assert api.watches()[-1]["resourceVersion"] == version
    assert api.lists() == 1
    api.send("ADDED", piece("dns-3", THREE))
    until(lambda: controller.backends() == ordered(A, B, C), "what came after the cut")


@pytest.mark.parametrize("how", ["event", "status"])
def test_a_version_that_the_server_has_forgotten_is_listed_anew(controller, api, how):
    api.slices = [piece("dns-1", ONE), piece("dns-2", TWO)]
    controller.start()
    until(lambda: controller.backends() == ordered(A, B), "the list")
    until(lambda: api.watches(), "the watch")
    api.slices = [piece("dns-2", TWO), piece("dns-3", THREE)]  # dns-1 went unseen
    if how == "event":
        api.events.put({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
    else:
        api.fail = 410
        api.events.put("cut")
        until(lambda: len(api.watches()) >= 2, "the refused watch")
        api.fail = 0
    until(lambda: controller.backends() == ordered(B, C), "listed anew")


def test_what_was_known_stays_while_the_server_fails(controller, api):
    api.slices = [piece("dns-1", ONE)]
    controller.start()
    until(lambda: controller.backends() == [A], "the list")
    api.fail = 503
    api.events.put("cut")
    until(lambda: "503" in controller.log(), "the failure is logged")
    assert controller.backends() == [A]
    # The controller starts anew, and the server does not answer: the file stays.
    controller.end()
    before = controller.out.read_bytes()
    controller.start()
    until(lambda: controller.log().count("503") >= 2, "the failure is logged")
    assert controller.once("--patience", "0.2") == 0
    assert controller.backends() == [A]
    assert controller.out.read_bytes() == before
    api.fail, api.slices = 0, [piece("dns-1", ONE, TWO)]
    until(lambda: controller.backends() == ordered(A, B), "the server is there again", 15)


def test_many_changes_in_a_row_are_one_reload(controller, api):
    api.slices = [piece("dns-1", ONE)]
    controller.start()
    until(lambda: controller.asked("reload") == 1, "the first reload")
    for count in range(20):
        api.send("MODIFIED", piece("dns-1", ONE, *([TWO] if count % 2 else [THREE])))
    until(lambda: controller.backends() == ordered(A, B), "the last one")
    until(lambda: controller.asked("reload") >= 2, "the reload")
    assert controller.asked("reload") <= 3


def test_a_configuration_that_is_refused_leaves_the_former_one(controller, api):
    api.slices = [piece("dns-1", ONE)]
    controller.start()
    until(lambda: controller.asked("reload") == 1, "the first reload")
    former = controller.out.read_text(encoding="utf-8")
    controller.template.write_text(TEMPLATE.replace("10ms", "invalid"), encoding="utf-8")
    until(lambda: "has errors" in controller.log(), "the error")
    assert controller.out.read_text(encoding="utf-8") == former
    # Valid, and the daemon cannot apply it.
    (controller.folder / "reload_exit").write_text("1", encoding="ascii")
    controller.template.write_text(TEMPLATE.replace("10ms", "20ms"), encoding="utf-8")
    until(lambda: "no route" in controller.log(), "the daemon's reason")
    until(lambda: controller.out.read_text(encoding="utf-8") == former, "the former file")
    (controller.folder / "reload_exit").unlink()
    controller.template.write_text(TEMPLATE.replace("10ms", "30ms"), encoding="utf-8")
    until(lambda: "30ms" in controller.out.read_text(encoding="utf-8"), "a good one")


def test_a_daemon_that_does_not_run_yet_is_asked_again(controller, api):
    api.slices = [piece("dns-1", ONE)]
    (controller.folder / "reload_exit").write_text("3", encoding="ascii")
    controller.start()
    until(lambda: controller.asked("reload") >= 2, "asked again")
    assert controller.backends() == [A], "the file that it will start with"
    (controller.folder / "reload_exit").unlink()
    until(lambda: "reloaded" in controller.log(), "it runs")


def test_the_server_is_known_by_the_accounts_authority(controller, api):
    account = controller.folder / "account"
    for name in ("ca", "other"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", account / f"{name}.key", "-out", account / f"{name}.crt"],
                       check=True, timeout=20, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", account / "ca.key")
    api.socket = context.wrap_socket(api.socket, server_side=True)
    api.slices = [piece("dns-1", ONE)]
    at = ("--api", api.url.replace("http:", "https:"))
    assert controller.once(*at) == 0
    assert controller.backends() == [A]
    api.slices = [piece("dns-1", ONE, TWO)]
    (account / "other.crt").rename(account / "ca.crt")
    assert controller.once(*at, "--patience", "2") == 0
    assert controller.backends() == [A], "nothing is believed of a server that another authority has signed"


def test_neither_signals_nor_a_log_that_no_process_reads_end_it(controller, api):
    api.slices = [piece("dns-1", ONE)]
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"x" * 4096)  # full
    controller.process = subprocess.Popen(controller.words(), stderr=writing)
    os.close(writing)
    until(lambda: controller.backends() == [A], "the first endpoints")
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        controller.process.send_signal(number)
    api.send("MODIFIED", piece("dns-1", ONE, TWO))
    until(lambda: controller.backends() == ordered(A, B), "the second one")
    assert b"SIGUSR2 is ignored" not in os.read(reading, 4096)
    until(lambda: b"SIGUSR2 is ignored" in os.read(reading, 4096), "the log goes on where it is read")
    os.close(reading)
    controller.process.send_signal(signal.SIGHUP)
    api.send("MODIFIED", piece("dns-1", ONE))
    until(lambda: controller.backends() == [A], "without a reader")


def test_nothing_takes_the_place_of_a_standard_descriptor_that_is_closed(controller, api):
    api.slices = [piece("dns-1", ONE)]
    controller.process = subprocess.Popen(controller.words(), preexec_fn=lambda: [os.close(each) for each in range(3)])
    until(lambda: controller.backends() == [A], "the first endpoints")
    assert [os.readlink(f"/proc/{controller.process.pid}/fd/{each}") for each in range(3)] == ["/dev/null"] * 3


def test_a_slice_that_makes_no_sense_ends_nothing(controller, api):
    api.slices = [piece("dns-1", ONE)]
    controller.start()
    until(lambda: controller.backends() == [A], "the first endpoints")
    api.send("MODIFIED", piece("dns-1", {"addresses": []}))
    until(lambda: "the former one stays" in controller.log(), "it is said")
    api.send("MODIFIED", piece("dns-1", ONE, TWO))
    until(lambda: sorted(controller.backends()) == [A, B], "the next one")


def test_before_the_daemon_starts_the_template_is_enough(controller, api):
    api.fail = 500
    assert controller.once("--patience", "0.1") == 0
    assert controller.backends() == ["a 10.77.0.11 53", "b 10.77.0.12 53"]
    api.fail, api.slices = 0, [piece("dns-1", ONE)]
    assert controller.once() == 0
    assert controller.backends() == [A]
    # An endpoint that the template names keeps what the template says of it.
    api.slices = [piece("dns-1", endpoint("10.77.0.11", "dns-x"), ports=[{"name": "dns", "port": 53, "protocol": "UDP"}])]
    assert controller.once() == 0
    assert controller.backends() == ["a 10.77.0.11 53"]
    text = controller.out.read_text(encoding="utf-8")
    assert "node: 7" in text and "primary: a" in text


@pytest.mark.parametrize("what, item, port, expected", [
    ("the only UDP port", piece("s", ONE, ports=[{"name": "x", "port": 1, "protocol": "TCP"}, {"name": "y", "port": 2, "protocol": "UDP"}]), "",
     [("dns-a", "10.1.0.1", 2)]),
    ("a port by its name", piece("s", ONE, ports=[{"name": "x", "port": 1, "protocol": "UDP"}, {"name": "y", "port": 2, "protocol": "UDP"}]), "x",
     [("dns-a", "10.1.0.1", 1)]),
    ("ambiguous", piece("s", ONE, ports=[{"name": "x", "port": 1, "protocol": "UDP"}, {"name": "y", "port": 2, "protocol": "UDP"}]), "", []),
    ("another family", piece("s", endpoint("fd00::1", "dns-a"), family="IPv6"), "", []),
    ("without ports", piece("s", ONE, ports=[]), "", []),
    ("without an object", piece("s", {"addresses": ["10.1.0.9"]}), "", [(f"10-1-0-9-{hashlib.sha256(b'10.1.0.9').hexdigest()[:8]}", "10.1.0.9", 5353)]),
])
def test_what_of_a_slice_becomes_a_backend(what, item, port, expected):
    assert endpoints.ready_backends([item], 4, port) == expected, what


def test_a_name_that_is_no_backends_name_gets_one_of_its_own():
    long = endpoints.backend_name({"targetRef": {"name": "a-stateful-set-with-a-very-long-name-0"}}, "10.1.0.1")
    other = endpoints.backend_name({"targetRef": {"name": "a-stateful-set-with-a-very-long-name-1"}}, "10.1.0.2")
    assert endpoints.NAME.fullmatch(long) and endpoints.NAME.fullmatch(other) and long != other


def test_a_service_has_no_more_backends_than_the_daemon_takes(controller, api):
    api.slices = [piece("dns-1", *(endpoint(f"10.1.0.{n}", f"dns-{n:02}") for n in range(1, 12)))]
    assert controller.once() == 0
    assert len(controller.backends()) == endpoints.MAX_BACKENDS


def test_nodes_lead_to_different_endpoints_and_one_that_goes_moves_no_other(controller, api):
    """Of 100 nodes each of four endpoints is the first for about 25; without one of them only its own nodes have another first one."""
    every = [f"dns-{n} 10.1.0.{n} 5353" for n in range(1, 5)]
    nodes = [f"node-{n}" for n in range(100)]
    firsts = [ordered(*every, node=node)[0] for node in nodes]
    assert all(10 <= firsts.count(each) <= 45 for each in every)
    gone = every[0]
    for node, first in zip(nodes, firsts, strict=True):
        assert first == gone or ordered(*every[1:], node=node)[0] == first
    seen = set()
    for node in nodes[:20]:  # the program has the same order
        api.slices = [piece("dns-1", *(endpoint(f"10.1.0.{n}", f"dns-{n}") for n in range(1, 5)))]
        assert controller.once("--node", node) == 0
        assert controller.backends() == ordered(*every, node=node)
        seen.add(controller.backends()[0])
    assert seen == set(every)


@pytest.mark.parametrize("words, reason", [(["--service", "dns"], "go together"), (["--service", "dns", "--endpoints", "dns"], "NAMESPACE/SERVICE"),
                                           (["--service", "dns", "--endpoints", "default/dns"], "no API server")])
def test_what_is_missing_is_named(words, reason, capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SystemExit) as ended:
        endpoints.parse(["--config", "a", "--out", "b", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
