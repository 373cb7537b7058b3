# SPDX-License-Identifier: Apache-2.0
"""A node that starts on a full disk waits for room, says so to an operator who asks, and then serves by itself."""

import contextlib
import json
import os
import signal
import subprocess
import time

from bench.manifest import binary

# Loopback addresses of this test alone; nothing else listens there.
HOST = "127.91.7.3"
CONFIG = """cluster_id: 91
cluster_key: 0123456789abcdef0123456789abcdef
node: 1
data_dir: {folder}/disk/log
admin_socket: {folder}/admin.sock
metrics_listen: ""
members:
  - {{id: 1, peer: "{host}:4802", serve: "{host}:4801"}}
"""
WITHIN_S = 20.0


def status(folder):
    done = subprocess.run([binary("hedgerow-node"), "status", "--json", "--socket", folder / "admin.sock"],
                          capture_output=True, text=True, check=False, timeout=10)
    return json.loads(done.stdout) if done.returncode == 0 else None


def wait_for(what, condition):
    until = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.1)


@contextlib.contextmanager
def small_disk(folder):
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_node_that_starts_on_a_full_disk_waits_for_room(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        with open(disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"\0" * 4096)
        config = tmp_path / "node.yaml"
        config.write_text(CONFIG.format(folder=tmp_path, host=HOST), encoding="utf-8")
        config.chmod(0o600)
        node = subprocess.Popen([binary("hedgerow-node"), "run", "--config", config], stderr=subprocess.DEVNULL)
        try:
            wait_for("it answers an operator", lambda: status(tmp_path) is not None)
            waiting = status(tmp_path)
            assert not waiting["ready"] and any("no space left" in problem for problem in waiting["problems"]), waiting
            time.sleep(1.5)  # it has tried again meanwhile
            assert node.poll() is None, "it ended"
            os.remove(disk / "filler")
            wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
            assert status(tmp_path)["problems"] == []
        finally:
            node.send_signal(signal.SIGTERM)
            assert node.wait(timeout=20) == 0
