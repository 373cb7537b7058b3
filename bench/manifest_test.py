# SPDX-License-Identifier: Apache-2.0
"""The command that a manifest names is the one that makes the run again."""

import pytest

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
