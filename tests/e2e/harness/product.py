# SPDX-License-Identifier: Apache-2.0
"""The product under test: its commands, run in the lab's client host, and the checks of what it leaves.

`Product` writes a configuration, runs `hedgerow up`, `down`, `clean` and the rest as a user would, and compares the
machine before `up` with the machine after `down`. The conftest fixture makes one for each test.
"""

import contextlib
import copy
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deploy.lab import VIP_DNS, VIP_RAW, Lab
from deploy.lab.names import INNER, INNER_NET_IPV4, INNER_NET_IPV6
from harness import identity, machine

PROJECT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("HEDGEROW_BIN", PROJECT / "build" / "release" / "bin"))

DNS4, DNS6 = "dns4", "dns6"
METRICS = {"listen": "127.0.0.1:9464"}
VIP4, VIP6 = VIP_DNS
RAW4, RAW6 = VIP_RAW


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0, what: str = "the condition"):
    """Polls, and returns what the condition returned when it was true; fails the test when it never is."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {timeout_s} s"
        time.sleep(0.02)
    return value


class Product:
    def __init__(self, lab: Lab, instance: str):
        self.lab, self.instance = lab, instance
        self.folder = lab.client.scratch("hedgerow")
        self.socket, self.log = self.folder / "admin.sock", self.folder / "hedgerowd.log"
        self.before: machine.Snapshot | None = None
        self.bpf_objects: set[tuple[str, int]] = set()
        self.is_up = False
        self._config_up: dict | None = None
        self._baseline: dict = {}

    # -- configuration -------------------------------------------------------------------------------------

    def config(self, *, services: list[dict] | None = None, **top) -> dict:
        """A configuration for this lab: DNS on both families with the defaults of the product, and `top` over it."""
        base = {
            "instance": self.instance,
            "interface": "hr0",
            "admin": {"socket": str(self.socket)},
            "metrics": {"listen": ""},  # METRICS in the tests that want them, or the page
            "clock": {"tolerance": "100ms"},  # a machine that is busy with other tests is no reason to fail
            "services": services if services is not None else self.services("dns"),
        }
        return {**copy.deepcopy(base), **top}

    def services(self, kind: str, **changes) -> list[dict]:
        """One service for each family, `dns` or `raw`, with the same changes."""
        return [self.service(f"{kind}{family}", **changes) for family in (4, 6)]

    def service(self, name: str, **changes) -> dict:
        """A service by a name that ends with its family; its backends are the lab's replicas."""
        six = name.endswith("6")
        raw = name.startswith("raw")
        service = {
            "name": name,
            "vip": (RAW6 if six else RAW4) if raw else (VIP6 if six else VIP4),
            "port": 4000 if raw else 53,
            "profile": "raw" if raw else "dns",
            "primary": "a",
            "backends": [{"name": host.name, "address": host.ipv6 if six else host.ipv4, "port": 4000 if raw else 53}
                         for host in self.lab.replicas],
        }
        if INNER in self.lab.hosts:  # what the client host hides comes from its own address
            service["clients"] = ([INNER_NET_IPV6, self.lab.client.ipv6] if six else
                                  [INNER_NET_IPV4, self.lab.client.ipv4])
        if raw:
            service["raw"] = {"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4}
        return {**service, **copy.deepcopy(changes)}  # YAML would write what two services share as an alias

    def write(self, config: dict | str, name: str = "hedgerow.yaml") -> Path:
        path = self.folder / name
        text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
        path.touch(mode=0o600)  # it may hold keys
        path.write_text(text, encoding="utf-8")
        return path

    # -- commands ------------------------------------------------------------------------------------------

    def run(self, *words: str | os.PathLike, check: bool = False, timeout: float = 30.0,
            wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        """`hedgerow WORDS` in the client host. `wrapper` is a command before it, such as setpriv."""
        if words[0] == "up":
            words = (*words, "--log", self.log)  # not where the logs of the machine's own instances are
        return self.lab.client.run([*wrapper, BIN / "hedgerow", *words], check=check, timeout=timeout)

    def daemon(self, config: dict | str, *, wrapper: tuple[str, ...] = (), timeout: float = 30.0):
        """`hedgerowd --config FILE` to its end: for what must be refused."""
        return self.lab.client.run([*wrapper, BIN / "hedgerowd", "--config", self.write(config)], check=False,
                                   timeout=timeout)

    def admin(self, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        return self.run(*words, "--socket", self.socket, check=check)

    def ask(self, *words: str) -> dict:
        """An admin command with `--json`."""
        return json.loads(self.admin(*words, "--json").stdout)

    def measured_by_doctor(self, kind: str) -> str:
        """What `doctor` measured for a kind of clock. A kernel that lacks it skips the test."""
        details = {finding["check"]: finding["detail"] for finding in json.loads(self.run("doctor", "--json").stdout)["findings"]}
        if missing := re.search(r"the kernel has no sch_\w+", details[f"kernel {kind}"]):
            pytest.skip(missing[0])
        assert "took" in details[f"clock {kind}"], details
        return details[f"clock {kind}"]

    def up(self, config: dict | None = None, **top) -> "Product":
        """Up with this configuration. One that is up with it already stays; with another, it goes down first."""
        config = config or self.config(**top)
        if self.is_up and config != self._config_up:
            self.finish()
        if not self.is_up:
            self._start(config)
        self._baseline = self.status()
        return self

    def _start(self, config: dict) -> None:
        self.before = machine.take(self.lab.client, self.instance)
        self._config_up, self.is_up = config, True  # from here on there may be something to sweep
        said = self.run("up", "--json", "--config", self.write(config), check=True)
        self.bpf_objects = machine.bpf_objects(int(json.loads(said.stdout)["pid"]))
        assert self.bpf_objects, "the proxy is up, but its daemon holds no BPF object"

    def down(self) -> None:
        self.admin("down")
        self.is_up = False

    def clean(self) -> subprocess.CompletedProcess:
        return self.run("clean", "--instance", self.instance, check=True)

    # -- what it says --------------------------------------------------------------------------------------

    def status(self) -> dict:
        return self.ask("status")

    def service_status(self, name: str = DNS4) -> dict:
        return next(service for service in self.status()["services"] if service["name"] == name)

    def figure(self, key: str, service: str = DNS4) -> int:
        """A figure of a service, a field of its status, a counter or a reason: what was added since `up`."""
        return self._figure(self.status(), key, service) - self._figure(self._baseline, key, service)

    @staticmethod
    def _figure(status: dict, key: str, service: str) -> int:
        found = next(each for each in status["services"] if each["name"] == service)
        for place in (found, found["counters"], found["reasons"]):
            if key in place:
                return int(place[key])
        return 0

    def fired(self, service: str = DNS4) -> int:
        """Hedges and failovers sent by the clock, which notes how late each of them was."""
        return int(self.service_status(service)["fire_error_ns"]["count"])

    def won(self, service: str) -> dict[str, int]:
        """Requests each backend won since `up`, those it won none left out."""
        def by_backend(status: dict) -> dict[str, int]:
            found = next(each for each in status["services"] if each["name"] == service)
            return {backend["name"]: int(backend["won"]) for backend in found["backends"]}

        before = by_backend(self._baseline)
        return {name: won - before[name] for name, won in by_backend(self.status()).items() if won > before[name]}

    def metrics(self) -> str:
        """The Prometheus page, as a scraper on the client host gets it."""
        fetch = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=5).read().decode())"
        return self.lab.client.run(["/usr/bin/python3", "-c", fetch, "http://127.0.0.1:9464/metrics"]).stdout

    def metric(self, name: str, **labels: str) -> float:
        """A metric, summed over the label sets that contain `labels`."""
        found = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", self.metrics(), re.M)
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        return sum(float(value) for text, value in found if wanted <= set(text.split(",")))

    @property
    def pid(self) -> int:
        return int(self.status()["pid"])

    # -- checks --------------------------------------------------------------------------------------------

    def check_identity(self, status: dict | None = None, timeout_s: float = 10.0) -> None:
        """The books balance. Right after traffic a program may be between two counters; at rest it is not. `status`: one at hand."""
        deadline = time.monotonic() + timeout_s
        while wrong := identity.violations(status or self.status()):
            assert time.monotonic() < deadline, "\n".join(wrong)
            status = None
            time.sleep(0.02)

    def check_nothing_left(self, timeout_s: float = 20.0) -> None:
        """The machine is as before `up`, and the kernel has let go of the programs and maps. It does so late, and to ask for them
        takes far less time than to look at the machine."""
        assert self.before is not None
        deadline = time.monotonic() + timeout_s
        while True:
            wrong = [f"left behind: bpf {kind} {number}" for kind, number in sorted(self.bpf_objects)
                     if machine.bpf_object_exists(kind, number)]
            if not wrong or time.monotonic() > deadline:
                wrong += machine.differences(self.before, machine.take(self.lab.client, self.instance))
            if not wrong:
                return
            assert time.monotonic() < deadline, "\n".join(wrong)
            time.sleep(0.01)

    def finish(self) -> None:
        """What every test ends with: the identity at rest, `down`, and the machine as it was."""
        if self.is_up:
            self.check_identity()
            self.down()
            self.check_nothing_left()

    def describe(self) -> str:
        """For the report of a test that failed: what the daemon says that is not zero, and what it wrote."""
        said = self.run("status", "--json", "--socket", self.socket)
        lines = [line for line in said.stdout.splitlines() if not re.search(r'[\[{}\]],?$|: (0|""|false),?$', line)]
        logs = [f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([*lines, said.stderr, *logs])

    def sweep(self) -> None:
        """After a failure: no daemon, pin or link of this test may reach the next one."""
        for pid in self.lab.client.pids():
            with contextlib.suppress(OSError):  # it may end while we look
                if Path(f"/proc/{pid}/comm").read_text(encoding="ascii").startswith("hedgerowd"):
                    os.kill(pid, signal.SIGKILL)
        self.run("clean", "--instance", self.instance)


def answer_every_port_unreachable(*hosts) -> None:
    """Lifts the kernel's limit on ICMP errors (one a second and client), which earlier tests may have used up."""
    for host in hosts:
        host.run(["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"])
