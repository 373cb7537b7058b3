# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, slow or go away: a node that starts on a full disk waits for room and then serves by itself; one that reads its
log answers meanwhile; one whose folder is removed while it runs ends; an answer that cannot be written is no success."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

from bench.manifest import binary

# Loopback addresses of this test alone; nothing else listens there.
HOST = "127.91.7.3"
CONFIG = """cluster_id: 91
cluster_key: 0123456789abcdef0123456789abcdef
node: 1
data_dir: {folder}/disk/log
admin_socket: {folder}/admin.sock
metrics_listen: "{host}:4803"
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


@contextlib.contextmanager
def node_of(tmp_path):
    config = tmp_path / "node.yaml"
    config.write_text(CONFIG.format(folder=tmp_path, host=HOST), encoding="utf-8")
    config.chmod(0o600)
    with open(tmp_path / "log", "ab") as log, subprocess.Popen([binary("hedgerow-node"), "run", "--config", config], stderr=log) as node:
        try:
            yield node
        finally:
            node.kill()


def hkv(*words, out=subprocess.PIPE):
    return subprocess.run([binary("hkv"), "--server", f"{HOST}:4801", "--timeout", "2s", *words], stdout=out, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=20)


def test_an_answer_that_cannot_be_written_is_no_success(tmp_path):
    (tmp_path / "disk").mkdir()
    with node_of(tmp_path):
        wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
        assert hkv("put", "colour", "green").returncode == 0
        with open("/dev/full", "wb") as full:  # as a disk without room
            for words in (("get", "colour"), ("incr", "visits"), ("--help",)):
                done = hkv(*words, out=full)
                assert (done.returncode, done.stderr) == (1, "hkv: the output could not be written: is its disk full?\n"), words
            asked = subprocess.run([binary("hedgerow-node"), "status", "--socket", tmp_path / "admin.sock"], stdout=full, stderr=subprocess.PIPE,
                                   text=True, check=False, timeout=10)
            assert asked.returncode == 1 and "could not be written" in asked.stderr
        assert hkv("get", "visits").stdout == "1\n", "which was done all the same"


def test_a_node_whose_folder_is_removed_acknowledges_nothing_more(tmp_path):
    (tmp_path / "disk").mkdir()
    with node_of(tmp_path) as node:
        wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
        assert hkv("put", "colour", "green").returncode == 0
        shutil.rmtree(tmp_path / "disk" / "log")

        def has_ended():
            hkv("put", "colour", "blue")
            return node.poll() is not None

        wait_for("it ends", has_ended)
        assert node.returncode == 1
        assert "was removed, moved or mounted over while the node ran" in (tmp_path / "log").read_text(encoding="utf-8")


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


def ask(folder, *words):
    return subprocess.run([binary("hedgerow-node"), *words, "--socket", folder / "admin.sock"], capture_output=True, text=True, check=False,
                          timeout=20)


def metric(name):
    with urllib.request.urlopen(f"http://{HOST}:4803/metrics", timeout=5) as page:
        return next(float(line.split()[-1]) for line in page.read().decode().splitlines() if line.startswith(name + " "))


# A pipe among the files that the start reads holds it there, as a log of many GiB or a disk that hangs does.
@pytest.mark.parametrize("held, doing", [("segments/ffff", "checks the log in"), ("identity", "opens")])
def test_a_node_that_reads_its_log_answers_and_is_not_ready(tmp_path, held, doing):
    (tmp_path / "disk").mkdir()
    with node_of(tmp_path) as node:
        wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
        assert hkv("put", "colour", "green").returncode == 0
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=20) == 0
    pipe, contents = tmp_path / "disk/log" / held, b""
    if pipe.exists():
        contents = pipe.read_bytes()
        pipe.unlink()
    os.mkfifo(pipe, 0o600)
    with node_of(tmp_path) as node:
        wait_for("it answers", lambda: (now := status(tmp_path)) is not None and doing in now["starting"])
        now = status(tmp_path)
        assert (now["role"], now["ready"], now["problems"]) == ("starting", False, [])
        assert ask(tmp_path, "status", "--ready").returncode == 1
        assert f"starting     {doing}" in ask(tmp_path, "status").stdout
        assert (metric("hedgerow_node_starting"), metric("hedgerow_node_ready")) == (1, 0)
        for words in (["snapshot"], ["members"], ["settings"], ["settings", "set", "sessions.max=20000"], ["keys"], ["transfer"],
                      ["backup", "--out", tmp_path / "backup"], ["purge", "--prefix", "a"], ["members", "add", "2", "10.0.0.2:4800"],
                      ["members", "rejoin", "1", "2"]):
            refused = ask(tmp_path, *words)
            assert refused.returncode == 1 and "the node is starting" in refused.stderr and doing in refused.stderr, (words, refused)
        assert node.poll() is None
        with open(pipe, "wb", buffering=0) as held_here:  # the start reads what is written here; later readers find the file
            (tmp_path / "put back").write_bytes(contents)
            os.replace(tmp_path / "put back", pipe)
            held_here.write(contents)
        wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
        assert (status(tmp_path)["role"], status(tmp_path)["starting"], metric("hedgerow_node_starting")) == ("leader", "", 0)
        assert hkv("get", "colour").stdout == "green\n"


def test_a_node_that_reads_its_log_is_stopped_at_once(tmp_path):
    (tmp_path / "disk").mkdir()
    with node_of(tmp_path) as node:
        wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=20) == 0
    os.mkfifo(tmp_path / "disk/log/segments/ffff", 0o600)
    with node_of(tmp_path) as node:
        wait_for("it answers", lambda: (now := status(tmp_path)) is not None and now["role"] == "starting")
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=20) == -signal.SIGTERM
        assert ask(tmp_path, "status").returncode == 3
        os.remove(tmp_path / "disk/log/segments/ffff")
    with node_of(tmp_path):
        wait_for("it serves", lambda: (now := status(tmp_path)) is not None and now["ready"])
