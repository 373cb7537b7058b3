# SPDX-License-Identifier: Apache-2.0
"""The product under test: `hedgerow up` in the client host, its status as JSON, `hedgerow down`.

Only the CLI is used, as an operator would. Each instance has its own name, socket and configuration, so that a
benchmark never touches an installation on the same machine.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from bench.manifest import binary
from deploy.lab import CommandFailed, Host

_PINS = Path("/sys/fs/bpf/hedgerow")


def service(name: str, vip: str, port: int, profile: str, backends: Mapping[str, str], **settings) -> dict:
    """One service for a configuration: `backends` maps a name to an address; what is not given is the default."""
    entry = {"name": name, "vip": vip, "port": port, "profile": profile}
    if profile == "raw":
        entry["raw"] = {"request_offset": 0, "request_length": 4, "reply_offset": 0, "reply_length": 4}
    entry.update(settings)
    entry["backends"] = [{"name": backend, "address": address, "port": port} for backend, address in backends.items()]
    return entry


class Product:
    """Up inside the `with` block."""

    def __init__(self, host: Host, instance: str, services: list[dict], **top_level):
        self.host = host
        folder = host.scratch(f"hedgerow-{instance}")
        self.socket = folder / "admin.sock"
        self.config = {"instance": instance, "admin": {"socket": str(self.socket)}, **top_level,
                       "services": services}
        self.file = folder / "hedgerow.yaml"
        self.file.touch(mode=0o600)  # it may hold keys
        self.file.write_text(yaml.safe_dump(self.config, sort_keys=False), encoding="ascii")

    def __enter__(self) -> "Product":
        self.up()
        return self

    def __exit__(self, *_exc) -> None:
        self.down()

    def up(self) -> None:
        if (_PINS / self.config["instance"]).exists():
            self.clean()  # A run that was killed left it.
        binary("hedgerowd")  # which `up` starts, for the manifest
        try:
            self.host.run([binary("hedgerow"), "up", "--config", self.file], timeout=60)
        except BaseException:
            self.clean()
            raise

    def down(self) -> None:
        try:
            self.host.run([binary("hedgerow"), "down", "--socket", self.socket], timeout=60)
        except CommandFailed:
            self.clean()
            raise

    def clean(self) -> None:
        """What a daemon that crashed or never came up left behind; nothing is fine."""
        self.host.run([binary("hedgerow"), "clean", "--instance", self.config["instance"]], check=False, timeout=60)

    def status(self) -> dict:
        done = self.host.run([binary("hedgerow"), "status", "--json", "--socket", self.socket])
        return json.loads(done.stdout)

    def reload(self) -> None:
        """The configuration and the key files as they are now."""
        self.host.run([binary("hedgerow"), "reload", "--socket", self.socket], timeout=60)

    def drain(self, backend: str, undo: bool = False) -> None:
        """It gets no new requests and no hedges from now on."""
        self.host.run([binary("hedgerow"), "undrain" if undo else "drain", backend, "--socket", self.socket])

    def status_at_rest(self, within_s: float = 5.0) -> dict:
        """The status once nothing is in flight any more, which is when the accounting identity must hold."""
        deadline = time.monotonic() + within_s
        while True:
            status = self.status()
            if all(number(entry.get("in_flight")) == 0 for entry in status["services"]):
                return status
            if time.monotonic() > deadline:
                return status
            time.sleep(0.1)


def number(value: object) -> int:
    """An integer from the status: 64-bit ones arrive as text, absent ones are 0."""
    return int(value or 0)


def service_figures(status: Mapping, name: str) -> dict:
    """What the experiments take from the status of one service."""
    entry = next(each for each in status["services"] if each["name"] == name)
    fire_error = entry.get("fire_error_ns", {})
    counters = {key: number(value) for key, value in entry.get("counters", {}).items()}
    return {"requests": number(entry.get("requests")), "hedges": number(entry.get("hedges")),
            "identity_ok": bool(entry.get("identity_ok")), "idle_copies": number(entry.get("idle_copies")),
            "fire_error_p50_us": number(fire_error.get("p50")) / 1e3,
            "fire_error_p99_us": number(fire_error.get("p99")) / 1e3,
            "fire_error_max_us": number(fire_error.get("max")) / 1e3,
            "suspected": counters.get("suspected", 0), "failover_sends": counters.get("failover_sends", 0),
            "clock_laps": number(status.get("clock", {}).get("laps")),
            "delay_line_full": number(entry.get("reasons", {}).get("delay_line_full")),
            "passed_through": number(entry.get("passed_through")), "state": entry.get("state", "")}
