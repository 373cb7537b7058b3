# SPDX-License-Identifier: Apache-2.0
"""docs/examples, which the packages install: configurations are sound, and programs do what they say against a node."""

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.manifest import binary

PROJECT = Path(__file__).resolve().parents[1]
EXAMPLES = PROJECT / "docs" / "examples"
CONFIGURATIONS = sorted(EXAMPLES.glob("*.yaml"))


def written(example: Path, folder: Path, **instead: str) -> Path:
    """A copy whose key files are in `folder`, with keys that are drawn for it. `instead`: other text for a key's value."""
    text = example.read_text(encoding="utf-8")
    for number, key in enumerate(sorted(set(re.findall(r"/etc/\S+?\.key", text)))):
        held = folder / Path(key).name
        held.write_text(f"{number + 1:032x}\n", encoding="ascii")
        held.chmod(0o600)
        text = text.replace(key, str(held))
    for key, value in instead.items():
        text, found = re.subn(rf"(?m)^{key}: .*$", f"{key}: {value}", text)
        assert found == 1, key
    copy = folder / example.name
    copy.write_text(text, encoding="utf-8")
    copy.chmod(0o600)
    return copy


@pytest.mark.parametrize("example", CONFIGURATIONS, ids=lambda path: path.stem)
def test_an_example_is_sound(example, tmp_path):
    program = "hedgerow-node" if example.name.startswith("node") else "hedgerow"
    done = subprocess.run([binary(program), "validate", "--config", written(example, tmp_path)], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_an_example_for_each_use_and_each_has_comments():
    assert len([each for each in CONFIGURATIONS if each.name.startswith("hedgerow")]) >= 8
    assert len([each for each in CONFIGURATIONS if each.name.startswith("node")]) >= 4
    for each in CONFIGURATIONS:
        assert each.read_text(encoding="utf-8").startswith("# "), each.name


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The port of the node of node-alone.yaml."""
    folder = tmp_path_factory.mktemp("node")
    peer, serve = free_port(), free_port()
    config = written(EXAMPLES / "node-alone.yaml", folder, data_dir=folder / "data", admin_socket=folder / "admin.sock")
    config.write_text(config.read_text(encoding="utf-8").replace(":4802", f":{peer}").replace(":4801", f":{serve}"), encoding="utf-8")
    with subprocess.Popen([binary("hedgerow-node"), "run", "--config", config], stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + 30
            while subprocess.run([binary("hedgerow-node"), "status", "--ready", "--socket", folder / "admin.sock"], capture_output=True, check=False,
                                 timeout=20).returncode != 0:
                assert running.poll() is None and time.monotonic() < deadline, running.communicate()[1] if running.poll() is not None else "not ready"
                time.sleep(0.05)
            yield serve
        finally:
            running.terminate()
            running.communicate(timeout=30)


@pytest.mark.parametrize(("program", "says"), [
    ([sys.executable, EXAMPLES / "store.py", "127.0.0.1", "PORT"],
     r"name: alice\nvisits: \d+\ncas: True\nname: None\nrefused: NOT_A_NUMBER\n"),
    ([sys.executable, EXAMPLES / "store-wire.py", "127.0.0.1", "PORT"], r"wire: hello\n"),
    (["store_example", "127.0.0.1:PORT"], r"name: alice\nvisits: \d+\ncas: 1\n"),
], ids=["python", "bytes", "c++"])
def test_a_program_against_a_node(node, program, says):
    command = [str(word).replace("PORT", str(node)) for word in program]
    if command[0] == "store_example":
        command[0] = str(binary("store_example"))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30,
                          env={"PYTHONPATH": str(PROJECT / "cluster" / "client"), "PATH": "/usr/bin:/bin"})
    assert re.fullmatch(says, done.stdout), done.stdout + done.stderr
