# SPDX-License-Identifier: Apache-2.0
"""What `./dev clean` takes for a lab's or an ended test's, in folders of our own: nothing of the machine is touched."""

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.lab import names, netns, node_pins, proxy_pins
from deploy.lab.lab import Lab
from deploy.lab.registry import Registry, kill_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch) -> Path:
    """Everywhere a lab leaves something, empty."""
    for folder in ("netns", "lab", "run", "bpf/hedgerow", "data"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(names, "NETNS_DIR", tmp_path / "netns")
    monkeypatch.setattr(names, "RUN_DIR", tmp_path / "lab")
    for mode in names.DATA:
        monkeypatch.setitem(names.DATA, mode, tmp_path / "data")
    monkeypatch.setattr(node_pins, "PINS", tmp_path / "bpf/hedgerow")
    monkeypatch.setattr(proxy_pins, "RUN_DIR", tmp_path / "run")
    return tmp_path


@pytest.fixture
def inhabitant() -> Iterator[subprocess.Popen]:
    """Sleeps in a network namespace of its own."""
    process = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    space, deadline = f"/proc/{process.pid}/ns/net", time.monotonic() + 10
    while netns.identity(space) == netns.identity("/proc/self/ns/net"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


def named(inhabitant: subprocess.Popen, name: str) -> None:
    names.NETNS_DIR.joinpath(name).symlink_to(f"/proc/{inhabitant.pid}/ns/net")


def ended_pid() -> int:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_a_living_tests_namespace_is_no_labs_and_its_processes_live(inhabitant):
    named(inhabitant, f"hr-zz-{inhabitant.pid}")
    Registry("zz").kill_all()
    kill_in(names.ended_netns())
    assert inhabitant.poll() is None
    assert names.tags() == [] and netns.of_lab("zz") == []


def test_an_ended_tests_namespace_and_the_processes_in_it_are_found(inhabitant):
    name = f"hr-zz-{ended_pid()}"
    named(inhabitant, name)
    assert names.tags() == [] and names.ended_netns() == [name]
    kill_in(names.ended_netns())
    assert inhabitant.wait(5) != 0


def test_every_host_of_a_lab_is_found():
    hosts = [*Lab("zz", replicas=len(names.REPLICAS), inner=True, clients=names.MOST_CLIENTS).hosts, names.SWITCH]
    for host in hosts:
        path = names.NETNS_DIR / names.netns_name("zz", host)
        path.touch()
        assert names.tags() == ["zz"] and netns.of_lab("zz") == [path.name] and names.ended_netns() == []
        path.unlink()


@pytest.mark.parametrize("lock, stays", [("held", True), ("free", False), ("none", False)])
def test_pins_stay_where_a_living_daemon_has_the_instances_name(machine, lock, stays):
    pins, path = node_pins.PINS / "demo", proxy_pins.RUN_DIR / "demo.lock"
    pins.mkdir()
    (machine / "lab/zz/client-hedgerow-demo").mkdir(parents=True)
    if lock != "none":
        path.touch()
    with open(path if lock == "held" else machine / "other.lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert Lab.clean("zz")
    assert pins.exists() == stays and not (machine / "lab/zz").exists()


@pytest.mark.parametrize("name", ["", ".."])
def test_a_folder_that_names_no_instance_takes_no_others_pins(machine, name):
    (node_pins.PINS / "other").mkdir()
    (machine / f"lab/zz/client-hedgerow-{name}").mkdir(parents=True)
    assert Lab.clean("zz")
    assert (node_pins.PINS / "other").exists()
