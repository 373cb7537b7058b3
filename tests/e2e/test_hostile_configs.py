# SPDX-License-Identifier: Apache-2.0
"""A configuration that is wrong is refused by every command, with file, line, column, value and expectation, and
nothing is attached.

Each row exchanges one piece of a sound file. `line` is where the error must point; column and value follow from the
piece. The unit tests of proxy/config know every rule; these rows ask whether the commands keep to it.
"""

import dataclasses
import json
import os
import re

import pytest

from deploy.lab import Lab
from harness import machine
from harness.product import Product

SOUND = """\
instance: INSTANCE
interface: hr0
admin: {socket: SOCKET}
limits: {requests: 1024, parked: 64}
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    delay: 10ms
    deadline: 2s
    attempts: 2
    budget: 5%
    primary: a
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
"""


@dataclasses.dataclass(frozen=True)
class Row:
    piece: str
    instead: str
    value: str  # must be quoted in the message
    expectation: str  # a pattern the message must contain


ROWS = {
    "unknown key": Row("delay: 10ms", "dealy: 10ms", "dealy", "delay"),
    "unit missing": Row("delay: 10ms", "delay: 10", "10", "duration"),
    "unit unknown": Row("delay: 10ms", "delay: 10 parsecs", "10 parsecs", "duration"),
    "too short a delay": Row("delay: 10ms", "delay: 1us", "1us", "100us"),
    "a negative delay": Row("delay: 10ms", "delay: -10ms", "-10ms", "duration"),
    "delay not below the deadline": Row("delay: 10ms", "delay: 3s", "3s", "deadline"),
    "too many attempts": Row("attempts: 2", "attempts: 6", "6", r"1 (to|and) 5|between 1 and 5"),
    "no attempts": Row("attempts: 2", "attempts: 0", "0", "1"),
    "attempts in words": Row("attempts: 2", "attempts: two", "two", "number|integer"),
    "budget over 100": Row("budget: 5%", "budget: 101%", "101%", "100"),
    "budget without percent": Row("budget: 5%", "budget: lots", "lots", "%|percent"),
    "port 0": Row("port: 53\n    profile", "port: 0\n    profile", "0", "65535"),
    "port too high": Row("port: 53\n    profile", "port: 65536\n    profile", "65536", "65535"),
    "vip no address": Row("vip: 10.99.0.53", "vip: dns.example", "dns.example", "address"),
    "vip multicast": Row("vip: 10.99.0.53", "vip: 224.0.0.53", "224.0.0.53", "unicast"),
    "vip loopback": Row("vip: 10.99.0.53", "vip: 127.0.0.53", "127.0.0.53", "address"),
    "vip any": Row("vip: 10.99.0.53", "vip: 0.0.0.0", "0.0.0.0", "address"),
    "profile unknown": Row("profile: dns", "profile: sip", "sip", "dns"),
    "primary unknown": Row("primary: a", "primary: c", "c", "backend"),
    "backend of the other family": Row("address: 10.77.0.12", "address: fd77::c", "fd77::c", "IPv4"),
    "backend twice": Row("address: 10.77.0.12", "address: 10.77.0.11", "10.77.0.11", "no other"),
    "backend name twice": Row("{name: b,", "{name: a,", "a", "no other"),
    "backend is the vip": Row("address: 10.77.0.12", "address: 10.99.0.53", "10.99.0.53", "vip"),
    "interface name too long": Row("interface: hr0", "interface: hedgerow-interface0", "hedgerow-interface0",
                                   "interface|name|character"),
    "interface is a path": Row("interface: hr0", "interface: ../hr0", "../hr0", "name|character"),
    "limit below its minimum": Row("requests: 1024", "requests: 1", "1", "16"),
    "limit past its maximum": Row("parked: 64", "parked: 99999999999999999999", "99999999999999999999",
                                  "whole number between 16 and"),
    "a list where a value stands": Row("delay: 10ms", "delay: [10ms]", "", "value|scalar|duration"),
    "a value where a list stands": Row("services:\n", "services: none\nrest:\n", "none|services", "list"),
    "a key twice": Row("attempts: 2", "attempts: 2\n    attempts: 3", "attempts", "once|twice|already|again"),
    "not YAML": Row("    profile: dns", "\t profile: [dns", "", ""),
    "control characters": Row("name: dns", 'name: "d\\u0007s"', "", "name|a-z"),
}


def text_with(row: Row, product) -> str:
    text = SOUND.replace("INSTANCE", product.instance).replace("SOCKET", str(product.socket))
    assert row.piece in text, f"the sound file has no {row.piece!r}"
    return text.replace(row.piece, row.instead, 1)


def error_of(done) -> str:
    assert done.returncode not in (0, None) and done.returncode > 0, f"accepted, or crashed: {done}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def product():
    """One lab for all rows: nothing is ever attached, and that is checked when the last row is through."""
    with Lab(f"self{os.getpid()}2") as lab:
        product = Product(lab, instance=f"e2e{os.getpid()}")
        product.before = machine.take(lab.client, product.instance)
        yield product
        product.check_nothing_left()


@pytest.mark.parametrize("name", ROWS)
def test_every_command_names_place_value_and_expectation(product, name):
    row = ROWS[name]
    path = product.write(text_with(row, product), "hostile.yaml")
    for command in (["validate"], ["plan"], ["up"]):
        message = error_of(product.run(*command, "--config", path, timeout=15))
        place = re.search(rf"{re.escape(str(path))}:(\d+):(\d+)", message)
        assert place, f"{command}: no file:line:column in {message!r}"
        line, column = int(place.group(1)), int(place.group(2))
        lines = path.read_text().splitlines()
        assert 1 <= line <= len(lines) + 1 and column >= 1
        if row.value:
            assert re.search(row.value if "|" in row.value else re.escape(row.value), message), message
        assert re.search(row.expectation, message), f"{message!r} does not say what was expected"


@pytest.mark.parametrize("name", ["unit unknown", "backend twice", "not YAML"])
def test_the_daemon_itself_refuses_alike(product, name):
    message = error_of(product.daemon(text_with(ROWS[name], product), timeout=15))
    assert re.search(r"hedgerow\.yaml:\d+:\d+", message)


def test_the_place_is_exact(product):
    path = product.write(text_with(ROWS["unit unknown"], product), "hostile.yaml")
    assert f"{path}:10:12" in error_of(product.run("validate", "--config", path))


def test_all_errors_are_told_at_once_and_as_json(product):
    text = text_with(ROWS["unit unknown"], product).replace("attempts: 2", "attempts: 77").replace("5%", "500%")
    path = product.write(text, "hostile.yaml")
    message = error_of(product.run("validate", "--config", path))
    assert all(value in message for value in ("10 parsecs", "77", "500%"))
    report = json.loads(product.run("validate", "--config", path, "--json").stdout)
    assert report["ok"] is False
    assert [(error["line"], error["column"]) for error in report["errors"]] == [(10, 12), (12, 15), (13, 13)]


@pytest.mark.parametrize("text", [
    "", "\0\0\0", "[]", "a", "services:", "services: []", "&a [*a, *a]", "--- {}\n--- {}", "{" * 5000, "- " * 5000,
    "a: &x [1]\n" + "".join(f"b{i}: [*x, *x, *x, *x]\n" for i in range(1000)), "\xff\xfe\x00", "? ? ? ?",
    "services: [" + "{name: a}, " * 2000 + "]",
], ids=lambda text: repr(text[:12]))
def test_files_that_are_no_configuration_at_all_are_refused_quickly(product, text):
    path = product.write(text, "hostile.yaml")
    message = error_of(product.run("validate", "--config", path, timeout=10))
    assert "hostile.yaml" in message and len(message) < 100_000


def test_a_file_that_cannot_be_read_is_named(product):
    for path in (product.folder / "missing.yaml", product.folder):
        assert str(path) in error_of(product.run("validate", "--config", path))


def test_a_message_shows_no_control_character_of_the_file(product):
    path = product.write(SOUND.replace("name: dns", 'name: "\\e[31mred\\a"'), "hostile.yaml")
    message = error_of(product.run("validate", "--config", path))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", message)
