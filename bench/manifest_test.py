# SPDX-License-Identifier: Apache-2.0
"""The command that a manifest names is the one that makes the run again, and its commit says whether files had changed."""

import subprocess

import pytest

from bench import manifest
from bench.manifest import command


@pytest.mark.parametrize("module, arguments, text", [
    ("bench.raft_hedge", ["--rounds", "2"], "./dev bench raft-hedge --rounds 2"),
    ("bench.parking", ["--into", "/tmp/x", "--rounds=2"], "./dev bench parking --rounds=2"),
    ("bench.parking", ["--into=/tmp/x"], "./dev bench parking"),
    ("chaos.run", ["leader-kill", "--lab", "x", "--kills", "20"], "./dev chaos leader-kill --kills 20"),
    ("chaos.flood", ["--quick"], "./dev chaos flood --quick"),
    ("demo.kv", [], "./dev demo"),
    ("demo.pictures", [], "./dev pictures"),
    ("demo.dns", ["--seconds", "5"], "./dev demo dns --seconds 5"),
    ("", [], "unknown"),
])
def test_a_manifest_names_the_command_that_makes_the_run(module, arguments, text):
    assert command(module, arguments) == text


def test_changes_to_files_that_a_run_itself_writes_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.test"]
    for file in ("kept.txt", "record/6.1.json"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("before", encoding="ascii")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "first"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "record/6.1.json").write_text("after", encoding="ascii")
    assert [manifest.commit(apart)["uncommitted_changes"] for apart in ((), ["record"])] == [True, False]
    (tmp_path / "kept.txt").write_text("after", encoding="ascii")
    assert manifest.commit(["record"])["uncommitted_changes"]
