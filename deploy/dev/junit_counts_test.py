# SPDX-License-Identifier: Apache-2.0
"""The closing line of `./dev test` counts what the runners reported, and nothing that did not run looks green."""

import pytest

from deploy.dev import junit_counts

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
    def run(reports, skips="# none\n", again=None):
        arguments = []
        if again is not None:
            (tmp_path / "again.xml").write_text(again)
            arguments.append(f"--again=pytest:{tmp_path / 'again.xml'}:0")
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


def case(name, inside="", module="tests.e2e.test_x"):
    return f'<testcase classname="{module}" name="{name}" time="0.1">{inside}</testcase>'


FAILURE = '<failure message="0.3 &gt; 0.2">late</failure>'


def test_what_passes_alone_is_passed_and_its_first_end_is_shown(run):
    first = f"<testsuites><testsuite>{case('a')}{case('b[1]', FAILURE)}{case('c', FAILURE)}</testsuite></testsuites>"
    second = f"<testsuites><testsuite>{case('b[1]')}{case('c', FAILURE)}</testsuite></testsuites>"
    status, lines = run([("pytest", first, 1)], again=second)
    assert (status, lines[-1]) == (1, "2 passed, 1 failed, 0 skipped")
    assert lines[:3] == ["passed only alone, in a second run: pytest/tests.e2e.test_x.b[1]", "  | 0.3 > 0.2", "  | late"]
    assert "FAILED pytest/tests.e2e.test_x.c" in lines
    assert run([("pytest", first, 1)], again="<testsuite/>")[1][-1] == "1 passed, 2 failed, 0 skipped"


def test_a_test_whose_end_fails_again_has_failed(run):
    """pytest names a test twice whose teardown fails, too."""
    both = f"<testsuite>{case('a')}{case('a', FAILURE)}</testsuite>"
    assert run([("pytest", both, 1)], again=both)[1][-1] == "1 passed, 1 failed, 0 skipped"
    assert run([("pytest", both, 1)], again=f"<testsuite>{case('a')}</testsuite>")[1][-1] == "1 passed, 0 failed, 0 skipped"
    skipped = "<testsuite>" + case("a", '<skipped message="no"/>') + "</testsuite>"
    assert run([("pytest", both, 1)], again=skipped)[0] == 1


def test_few_end_to_end_tests_are_run_again_and_nothing_else(tmp_path, capsys):
    def asked(*cases):
        (tmp_path / "report.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        assert junit_counts.main(["--to-run-again", str(tmp_path / "report.xml")]) == 0
        return capsys.readouterr().out.split()

    assert asked(case("a[x-1]", FAILURE), case("a[x-1]", "<error/>"), case("b")) == ["tests/e2e/test_x.py::a[x-1]"]
    assert asked(case("b")) == []
    lost = '<failure message="assert 1 == 0">    row = 1\n&gt;   assert row["acked_lost"] == 0\nE   assert 1 == 0</failure>'
    other = '<failure message="assert 2 &lt; 1">    row["acked_lost"]\n&gt;   assert slow &lt; 1\nE   assert 2 &lt; 1</failure>'
    assert asked(case("a", other), case("b", lost)) == [] != asked(case("a", other))
    assert asked(case("a", FAILURE), case("a", FAILURE, "bench.kv_test")) == []
    assert len(asked(*(case(f"t{number}", FAILURE) for number in range(junit_counts.AGAIN_MAX)))) == junit_counts.AGAIN_MAX
    assert asked(*(case(f"t{number}", FAILURE) for number in range(junit_counts.AGAIN_MAX + 1))) == []


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
