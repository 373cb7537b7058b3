# SPDX-License-Identifier: Apache-2.0
"""`hedgerow sysdump`: one archive for a report of a fault."""

import json
import os
import signal
import socket
import stat
import subprocess
import tarfile
import time
from pathlib import Path

from harness.dns import who_answers
from harness.product import BIN, VIP4, wait_until
from harness.steer import Group, Netns

KEY = "5eed" * 8


def read(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {Path(member.name).name: tar.extractfile(member).read().decode(errors="replace")
                for member in tar.getmembers() if member.isfile()}


def test_it_has_what_a_reader_needs_and_neither_keys_nor_payloads(stack, tmp_path):
    product = stack.product
    config = product.config()
    config["services"][0]["cluster"] = {"id": 7, "key": KEY}
    product.up(config)
    assert who_answers(stack.lab.client, VIP4)
    archive = tmp_path / "dump.tar.gz"
    done = json.loads(product.admin("sysdump", "--out", str(archive), "--json").stdout)
    assert done["file"] == str(archive) and stat.S_IMODE(archive.stat().st_mode) == 0o600
    parts = read(archive)
    assert sorted(parts) == sorted(done["parts"]) and len(parts) > 20
    assert json.loads(parts["status.json"])["instance"] == product.instance
    for part, text in (("status.txt", "requests"), ("qdiscs.txt", "qdisc"), ("routes.txt", VIP4), ("links.txt", "hr0"),
                       ("programs.txt", "hr_splitter"), ("config.yaml", "delay"), ("machine.txt", "Linux")):
        assert text in parts[part], f"{part}: {parts[part][:2000]}"
    assert KEY not in "".join(parts.values()) and "(hidden)" in parts["config.yaml"]
    assert "fastopen_key" not in parts["network-settings.txt"] and "tcp_fastopen" in parts["network-settings.txt"]
    assert "every backend is reached" in parts["doctor.txt"]


def test_groups_of_steer_are_in_it(stack, tmp_path):
    """Only those of the default folder, so the group has a name that no other one has."""
    group = Group(Netns(stack.lab.client.netns), tmp_path, f"sysdump-{os.getpid()}")
    group.run_dir = Path("/run/hedgerow-steer")
    try:
        group.start(workers=1)
        archive = tmp_path / "dump.tar.gz"
        done = stack.product.run("sysdump", "--socket", tmp_path / "none.sock", "--out", archive)
        assert done.returncode == 0, done.stderr
        text, shown = read(archive)["steer.json"], []
        while text:
            found, end = json.JSONDecoder().raw_decode(text)
            shown.append(found)
            text = text[end:].lstrip()
        assert {"name": group.name, "slots": 1} in [{"name": each.get("name"), "slots": len(each.get("slots", []))} for each in shown]
    finally:
        group.stop()


def test_without_a_daemon_it_says_so_in_the_part_and_packs_the_rest(stack, tmp_path):
    archive = tmp_path / "dump.tar.gz"
    done = stack.product.run("sysdump", "--socket", tmp_path / "none.sock", "--out", archive)
    assert done.returncode == 0, done.stderr
    parts = read(archive)
    assert "exit code 3" in parts["status.txt"] and "Linux" in parts["machine.txt"]


def test_a_daemon_that_hangs_is_waited_for_once(tmp_path):
    """61 s before: each command that asks the daemon waited for it."""
    stopped = socket.socket(socket.AF_UNIX)
    stopped.bind(str(tmp_path / "stopped.sock"))
    stopped.listen(64)
    archive, begin = tmp_path / "dump.tar.gz", time.monotonic()
    done = subprocess.run([BIN / "hedgerow", "sysdump", "--socket", tmp_path / "stopped.sock", "--out", archive], check=False, timeout=60)
    assert done.returncode == 0 and time.monotonic() - begin < 35
    assert "does not answer in time" in read(archive)["leader.txt"]
    stopped.close()


def test_a_configuration_with_errors_shows_their_places_and_no_value(stack, tmp_path):
    config = stack.product.config()
    config["services"][0]["delay"] = KEY  # a key in a wrong place
    archive = tmp_path / "dump.tar.gz"
    file = stack.product.write(config, "broken.yaml")
    said = stack.product.run("validate", "--config", file).stderr
    assert "services[0].delay" in said and KEY not in said
    assert stack.product.run("sysdump", "--config", file, "--out", archive).returncode == 0
    parts = read(archive)
    assert "services[0].delay" in parts["config.yaml"] and KEY not in "".join(parts.values())


def test_what_stands_under_the_archives_name_is_not_written_to(stack, tmp_path):
    (tmp_path / "theirs").write_text("", encoding="ascii")
    (tmp_path / "dump.tar.gz").symlink_to(tmp_path / "theirs")
    done = stack.product.run("sysdump", "--out", tmp_path / "dump.tar.gz")
    assert done.returncode == 1 and "exists" in done.stderr and (tmp_path / "theirs").read_text(encoding="ascii") == ""


def test_a_folder_that_does_not_exist_is_an_error_that_names_it(stack, tmp_path):
    done = stack.product.run("sysdump", "--out", tmp_path / "none/dump.tar.gz")
    assert done.returncode == 1 and str(tmp_path / "none") in done.stderr


def test_an_interrupted_one_leaves_nothing(tmp_path):
    (tmp_path / "nft").write_text("#!/bin/sh\nsleep 3\n", encoding="ascii")
    (tmp_path / "nft").chmod(0o755)
    archive = tmp_path / "dump.tar.gz"
    before = set(Path("/tmp").glob("hedgerow-sysdump.*"))
    child = subprocess.Popen([BIN / "hedgerow", "sysdump", "--socket", tmp_path / "none.sock", "--out", archive],
                             env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, stderr=subprocess.PIPE,
                             text=True, start_new_session=True)
    folder = wait_until(lambda: set(Path("/tmp").glob("hedgerow-sysdump.*")) - before, what="its folder").pop()
    wait_until(lambda: list(folder.glob("*/pins.txt")), what="the parts before the slow one")
    os.killpg(child.pid, signal.SIGINT)
    assert "interrupted" in child.communicate(timeout=30)[1] and child.returncode == 1
    assert not folder.exists() and not archive.exists()
