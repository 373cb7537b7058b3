# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus in a host of the lab, and what expressions of rules and dashboards ask it for.

It scrapes as deploy/prometheus/prometheus.yml says, twice a second. Nodes serve their metrics on their own hosts' loopback:
a Relay carries each of them to a port of the host where Prometheus is. Used by test_prometheus.py.
"""

import contextlib
import http.client
import json
import re
import select
import shutil
import socket
import threading
import time
import urllib.parse
from pathlib import Path

import yaml

from deploy.lab import Host

PROJECT = Path(__file__).resolve().parents[3]
RULES = PROJECT / "deploy" / "prometheus" / "hedgerow.rules.yml"
RULES_TESTS = sorted((PROJECT / "deploy" / "prometheus").glob("*rules_test.yml"))
EXAMPLE = PROJECT / "deploy" / "prometheus" / "prometheus.yml"
DASHBOARDS = sorted((PROJECT / "deploy" / "grafana").glob("*.json"))
PORT = 9090


def installed() -> bool:
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


# -- expressions -------------------------------------------------------------------------------------------


def selectors(expression: str) -> set[str]:
    """What an expression reads of ours: names with their label matchers."""
    found = re.finditer(r"\b(hedgerow_[a-z0-9_]+)\s*(\{[^}]*\})?", expression)
    return {match.group(1) + (match.group(2) or "") for match in found}


def rule_expressions(path: Path = RULES) -> dict[str, str]:
    """By alert."""
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def dashboard_expressions(path: Path) -> dict[str, str]:
    """By panel, annotation and variable, as Grafana would send them for all hosts and services."""
    board = json.loads(path.read_text(encoding="utf-8"))
    found = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for annotation in board["annotations"]["list"]:
        found[f"annotation {annotation['name']}"] = annotation["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            name, _, matchers = metric.rstrip("}").partition("{")
            found[f"variable {variable['name']}"] = f'{name}{{{",".join(filter(None, [matchers, f"{label}!=" + chr(34) * 2]))}}}'
    return {place: filled(text) for place, text in found.items()}


def filled(text: str) -> str:
    text = text.replace("$__rate_interval", "1m")
    text = re.sub(r'=~"\$\w+"', '=~".*"', text)
    assert "$" not in text, text
    return text


# -- the program -------------------------------------------------------------------------------------------


class Relay:
    """Connections to 127.0.0.1:`port` of `here` are carried to 127.0.0.1:`there_port` of `there`."""

    def __init__(self, here: Host, port: int, there: Host, there_port: int):
        self.there, self.there_port = there, there_port
        self.listener = here.socket(kind=socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen()
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> "Relay":
        self.thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self._carry(client)

    def _carry(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), self.there.socket(kind=socket.SOCK_STREAM) as server:
            server.settimeout(5)
            server.connect(("127.0.0.1", self.there_port))
            while ready := select.select([client, server], [], [], 5)[0]:
                for source in ready:
                    chunk = source.recv(65536)
                    if not chunk:
                        return
                    (server if source is client else client).sendall(chunk)


class Prometheus:
    def __init__(self, host: Host, targets: dict[str, list[str]]):
        """`targets`: addresses by job."""
        self.host, self.targets = host, targets
        self.folder = host.scratch("prometheus")

    def __enter__(self) -> "Prometheus":
        config = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
        jobs = {job["job_name"] for job in config["scrape_configs"]}
        assert jobs == set(self.targets), "the jobs of the example"
        config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        config["rule_files"] = [str(RULES)]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": self.targets[job["job_name"]]}]
        file = self.folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.process = self.host.popen(["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.folder}/data",
                                        f"--web.listen-address=127.0.0.1:{PORT}", "--log.level=warn"],
                                       log=self.folder / "log")
        return self

    def __exit__(self, *_exc) -> None:
        self.host.stop(self.process)
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def get(self, path: str, **parameters: str):
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        connection.sock = self.host.socket(kind=socket.SOCK_STREAM)  # one of the lab's host, not of ours
        with contextlib.closing(connection):
            try:
                connection.sock.connect(("127.0.0.1", PORT))
            except ConnectionRefusedError:
                return None  # it does not listen yet
            connection.request("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
            answer = json.loads(connection.getresponse().read())
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]

    def query(self, expression: str) -> list[dict]:
        return self.get("/api/v1/query", query=expression)["result"]

    def wait_for_samples(self, timeout_s: float = 20.0) -> None:
        """Each target was scraped some times, so that rates are known."""
        wanted = sum(map(len, self.targets.values()))
        deadline = time.monotonic() + timeout_s
        while True:
            data = self.get("/api/v1/query", query="count_over_time(up[1m]) > 6 and up == 1")
            if data is not None and len(data["result"]) == wanted:
                return
            assert time.monotonic() < deadline, (data, (self.folder / "log").read_text(encoding="utf-8")[-2000:])
            time.sleep(0.3)

    def alerts(self) -> dict[str, str]:
        """Of those that are not at rest: pending or firing, by name."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self.get("/api/v1/alerts")["alerts"]}
