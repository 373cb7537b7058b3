# SPDX-License-Identifier: Apache-2.0
"""What of the lane `./dev kube` can be judged without a cluster."""

import shutil
import subprocess

import pytest

from deploy.kube import events, programs


@pytest.mark.parametrize("name", ["kubernetes", "coredns"])
def test_its_programs_still_compile(name, tmp_path, monkeypatch):
    """Where they have been built: what they are built of is there."""
    if not (programs.cache_folder() / f"{name}.built").exists():
        pytest.skip("./dev kube has built nothing yet")
    built = programs.cache_folder() / "src" / name / "go.mod"
    assert set(programs.sources(name)[0].read_text(encoding="utf-8").split()) <= set(built.read_text(encoding="utf-8").split()), "of the same version"
    shutil.copy(programs.sources(name)[1], built.parent)
    programs.go(name, "list", "-export", ".")  # compiles, and links nothing


def test_a_nodes_script_is_one():
    subprocess.run(["bash", "-n", programs.HERE / "node.sh"], check=True)


def test_the_verdict_is_what_is_lost_with_the_product(capsys):
    cell = {"sent": 100, "lost": 0, "p999_ms": 12.3}
    assert events.table({"killed": {"kube-proxy": {**cell, "lost": 7}, "hedgerow": cell}, "installed": {"hedgerow": cell}}) == 0
    assert "| killed | 7 of 100, p99.9 12 ms | 0 of 100, p99.9 12 ms |" in capsys.readouterr().out
    assert events.table({"killed": {"hedgerow": {**cell, "lost": 1}}}) == 1
