# SPDX-License-Identifier: Apache-2.0
"""The closing line of `./dev test` counts what the runners reported, and nothing that did not run looks green."""

import pytest

from tests.runner import junit_counts

CTEST = """<testsuite name="Linux">
  <testcase name="a_test:A.Passes" classname="a_test:A.Passes" time="0.01" status="run"/>
  <testcase name="a_test:A.Fails" classname="a_test:A.Fails" time="0.01" status="fail">
    <failure message=""/><system-out>a.cc:3: Failure</system-out></testcase>
  <testcase name="a_test:A.Skips" classname="a_test:A.Skips" time="0.01" status="notrun">
    <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
    <system-out>a.cc:7: Skipped
no such device
[  SKIPPED ] A.Skips</system-out></testcase>
  <testcase name="b_test_NOT_BUILT" classname="b_test_NOT_BUILT" status="notrun">
    <skipped message="Unable to find executable"/></testcase>
</testsuite>"""

PYTEST = """<testsuites><testsuite name="pytest">
  <testcase classname="tests.e2e.test_x" name="test_passes" time="0.1"/>
  <testcase classname="tests.e2e.test_x" name="test_teardown" time="0.1"><error message="left a link">x</error></testcase>
  <testcase classname="tests.e2e.test_x" name="test_skips"><skipped type="pytest.skip" message="no IPv6"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(name="run")
def _run(tmp_path, capsys):
    def run(reports, skips="# none\n", slowest=0, cpu=None):
        arguments = [f"--slowest={slowest}", *([f"--cpu={cpu}"] if cpu else [])]
        for label, text, status in reports:
            path = tmp_path / f"{label}.xml"
            if text is not None:
                path.write_text(text)
            arguments.append(f"{label}:{path}:{status}")
        (tmp_path / "skips.txt").write_text(skips)
        status = junit_counts.main(["--skips", str(tmp_path / "skips.txt"), *arguments])
        return status, capsys.readouterr().out.splitlines()

    return run


def test_both_runners_are_counted_together(run):
    status, lines = run([("ctest", CTEST, 8), ("pytest", PYTEST, 1)], "*Skips  why\n*test_skips  why\n")
    assert (status, lines[-1]) == (1, "2 passed, 3 failed, 2 skipped")
    assert "skipped ctest/a_test:A.Skips: no such device" in lines


def test_an_unlisted_skip_is_a_failure(run):
    skipped = PYTEST.replace("error", "skipped")
    status, lines = run([("pytest", skipped, 0)], "pytest/*.test_skips  the host has no IPv6\n")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")
    assert "FAILED pytest/tests.e2e.test_x.test_teardown" in lines


def test_the_slowest_are_named_slowest_first(run):
    report = "".join(f'<testcase classname="m" name="{name}" time="{time}"/>' for name, time in (("a", 1), ("b", 3.5), ("c", 2)))
    lines = run([("pytest", f"<testsuite>{report}</testsuite>", 0)], slowest=2)[1]
    assert lines == ["    3.5 s  pytest/m.b", "    2.0 s  pytest/m.c", "3 passed, 0 failed, 0 skipped"]


GTEST = """<testsuites><testsuite name="A">
  <testcase classname="A" name="Passes" status="run" time="0.5"/>
  <testcase classname="A" name="Fails" status="run" time="0.1"><failure message="a.cc:3&#x0A;Expected"/></testcase>
  <testcase classname="A" name="Skips" status="run"><skipped message="a.cc:7&#x0A;no such device"/></testcase>
  <testcase classname="A" name="OfAnotherShard" status="notrun"/>
</testsuite></testsuites>"""


@pytest.mark.parametrize("gtest, status, closing", [
    (GTEST, 8, "1 passed, 1 failed, 1 skipped"),
    # It died after its report, or named nothing: the entry's own end counts too.
    (GTEST.replace("<failure", "<x"), 8, "2 passed, 1 failed, 1 skipped"),
    (GTEST.replace("<failure", "<x"), 0, "2 passed, 0 failed, 1 skipped"),
    ("<testsuites/>", 0, "1 passed, 0 failed, 0 skipped"),
    (None, 8, "0 passed, 1 failed, 0 skipped"),
], ids=["cases count one by one", "a bad end counts", "a good end does not", "nothing in it", "no report"])
def test_cases_of_a_gtest_program_are_read_from_its_own_report(tmp_path, capsys, gtest, status, closing):
    entry = f'<testcase name="a_test:1" classname="a_test:1" status="{"fail" if status else "run"}"/>'
    (tmp_path / "ctest.xml").write_text(f"<testsuite>{entry.replace('/>', '><failure/></testcase>') if status else entry}</testsuite>")
    if gtest is not None:
        (tmp_path / "a_test:1.xml").write_text(gtest)
    (tmp_path / "skips.txt").write_text("ctest/a_test:A.Skips  no device here\n")
    junit_counts.main(["--skips", str(tmp_path / "skips.txt"), f"ctest:{tmp_path / 'ctest.xml'}:{status}:{tmp_path}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == closing
    if gtest == GTEST:
        assert "FAILED ctest/a_test:A.Fails" in lines and "skipped ctest/a_test:A.Skips: no such device" in lines


def test_a_runner_without_a_report_is_a_failure(run):
    assert run([("pytest", None, 137)])[0] == 1
    assert run([("pytest", "<testsuites><testsu", 0)])[0] == 1


def test_a_bad_status_without_a_failed_test_is_a_failure(run):
    only_passes = '<testsuite><testcase name="a" classname="a" status="run"/></testsuite>'
    assert run([("ctest", only_passes, 0)]) == (0, ["1 passed, 0 failed, 0 skipped"])
    assert run([("ctest", only_passes, 124)])[1][-1] == "1 passed, 1 failed, 0 skipped"


def test_no_test_at_all_is_a_failure(run):
    assert run([("ctest", "<testsuite/>", 0)])[1][-1] == "0 passed, 1 failed, 0 skipped"


def test_a_skip_pattern_needs_a_reason(tmp_path):
    (tmp_path / "skips.txt").write_text("pytest/*\n")
    with pytest.raises(ValueError, match="skips.txt:1: 'pytest/\\*' has no reason"):
        junit_counts.read_skips(tmp_path / "skips.txt")


def test_the_files_that_took_most_of_a_processor_are_named(tmp_path, run):
    cpu = tmp_path / "cpu.tsv"
    cpu.write_text("chaos\t71.5\npage\t40.0\nlab\t3.1\n")
    status, lines = run([("pytest", PYTEST, 1)], "*test_skips  why\n", slowest=2, cpu=cpu)
    assert lines[2:4] == ["   71.5 s of a processor  chaos", "   40.0 s of a processor  page"]
    assert run([("pytest", PYTEST, 1)], "*test_skips  why\n", slowest=2, cpu=tmp_path / "none")[0] == status == 1
