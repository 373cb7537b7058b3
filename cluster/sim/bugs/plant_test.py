# SPDX-License-Identifier: Apache-2.0
"""Patches are planted where their text stands once, and refused by name where it does not."""

from pathlib import Path

import pytest

from cluster.sim.bugs import plant

SOURCE = "int Majority(int voters) {\n  return voters / 2 + 1;\n}\n\nint Other() { return 0; }\n"
BUGS = """# A topic.

bug too_few
One voter is enough.
in a.cc
<<<<
  return voters / 2 + 1;
====
  if (PLANTED) {
    return 1;
  }
  return voters / 2 + 1;
>>>>

bug too_many
All voters are needed.
in a.cc
<<<<
  return voters / 2 + 1;
====
  if (PLANTED) return voters;
  return voters / 2 + 1;
>>>>
"""


def run(tmp_path: Path, source: str, bugs: str) -> int:
    (tmp_path / "a.cc").write_text(source, encoding="utf-8")
    (tmp_path / "some.bugs").write_text(bugs, encoding="utf-8")
    return plant.main([str(tmp_path), str(tmp_path / "some.bugs"), "--into", str(tmp_path / "out")])


def test_all_mistakes_stand_in_one_copy_and_the_lines_keep_their_numbers(tmp_path):
    assert run(tmp_path, SOURCE, BUGS) == 0
    copy = (tmp_path / "out" / "a.cc").read_text(encoding="utf-8").splitlines()
    assert copy[copy.index("  if (::hedgerow::sim::IsPlanted(1)) {") + 1] == "    return 1;"
    assert "  if (::hedgerow::sim::IsPlanted(2)) return voters;" in copy
    assert copy[copy.index("  return voters / 2 + 1;") - 1] == '#line 2 "a.cc"'
    assert '{"too_many", "All voters are needed."}' in (tmp_path / "out" / "planted_bugs.cc").read_text(encoding="utf-8")


def test_what_has_not_changed_is_not_written_again(tmp_path):
    run(tmp_path, SOURCE, BUGS)
    before = (tmp_path / "out" / "a.cc").stat().st_mtime_ns
    run(tmp_path, SOURCE, BUGS)
    assert (tmp_path / "out" / "a.cc").stat().st_mtime_ns == before


@pytest.mark.parametrize("source, bugs, message", [
    (SOURCE.replace("/ 2", "/ 3"), BUGS, "too_few: the text to search for stands 0 times in a.cc"),
    (SOURCE + SOURCE, BUGS, "too_few: the text to search for stands 2 times in a.cc"),
    (SOURCE, BUGS.replace("  if (PLANTED) return voters;\n  return", "  return"), "too_many: nothing in it asks whether it is PLANTED"),
    (SOURCE, BUGS.replace("too_many", "too_few"), "too_few: this name stands twice"),
    (SOURCE, BUGS.replace("All voters are needed.\n", ""), "too_many: it has no description"),
    (SOURCE, BUGS.replace("in a.cc", "in a.h"), "a.h is not a .cc file"),
    (SOURCE, BUGS.replace("in a.cc", "in b.cc"), "there is no b.cc"),
    (SOURCE, BUGS.removesuffix(">>>>\n"), "the last patch has no end"),
    (SOURCE, BUGS + "more\n", "what is 'more'?"),
])
def test_a_patch_that_does_not_fit_is_named(tmp_path, capsys, source, bugs, message):
    assert run(tmp_path, source, bugs) == 1
    assert message in capsys.readouterr().err
