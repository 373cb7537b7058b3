# SPDX-License-Identifier: Apache-2.0
"""Merges the JUnit XML files of ctest and pytest into one count: `N passed, N failed, N skipped`.

Called by test.sh at the end of `./dev test`. It prints every failure with its output first, then every skip. A skip
that tests/skips.txt does not list counts as a failure, and so do a runner that ended badly without naming a failed
test and a report that is missing: a suite that did not run must never look green.

End-to-end tests share the processors with the simulator and the lane of stock kernels, and look at the clock. The few that
failed there are run once more, alone (`--again`): one that passes then is counted as passed, and its first end is printed all
the same, so that nobody has to miss a test that passes only sometimes. `--to-run-again` prints which those are: none when
anything was lost, done twice or miscounted, which no slow machine explains.
"""

import argparse
import dataclasses
import fnmatch
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

OUTPUT_LINES = 40
# When much fails it is for one reason, and the first few show it.
SHOWN_FAILURES = 20

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What more of them have failed at is no accident.
AGAIN_MAX = 4
AGAIN_PREFIX = "tests.e2e."
# What a slow machine is no excuse for, by the words of the line that failed and of its message.
NEVER_AGAIN = re.compile("acked_lost|acknowledged|double_applied|doubled|linearizable|identity|answers_changed|violation")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One test's end. `test` is RUNNER/NAME, which the patterns of tests/skips.txt are matched against."""

    test: str
    state: str
    text: str = ""


def outcome_of(label: str, case: ElementTree.Element) -> Outcome:
    """Reads one <testcase> of ctest's or pytest's dialect."""
    name, classname = case.get("name", "?"), case.get("classname", "")
    # ctest repeats the name as the class; pytest's class is the module.
    test = f"{label}/{name}" if classname in ("", name) else f"{label}/{classname}.{name}"
    output = case.findtext("system-out") or ""
    for tag in ("failure", "error"):
        found = case.find(tag)
        if found is not None:
            return Outcome(test, FAILED, "\n".join(filter(None, (found.get("message"), found.text, output))))
    skip = case.find("skipped")
    status = case.get("status", "run")
    if status == "notrun" and skip is not None and not skip.get("message", "").startswith("SKIP_"):
        # ctest's words for a program that is missing or could not be started.
        return Outcome(test, FAILED, f"not run: {skip.get('message', '')}\n{output}")
    if status == "disabled":
        return Outcome(test, SKIPPED, "disabled")
    if skip is not None:
        return Outcome(test, SKIPPED, skip_reason(skip, output))
    if status not in ("run", "passed"):
        return Outcome(test, FAILED, f"status {status}\n{output}")
    return Outcome(test, PASSED)


def skip_reason(skip: ElementTree.Element, output: str) -> str:
    message = skip.get("message", "")
    if not message.startswith("SKIP_"):
        return message
    # gtest prints "file:line: Skipped" and then the reason.
    lines = output.splitlines()
    for index, line in enumerate(lines):
        if line.endswith(": Skipped") and index + 1 < len(lines):
            return lines[index + 1].strip()
    return message


def read_report(report: str) -> list[Outcome]:
    """`LABEL:FILE:STATUS`: a runner's report and exit status. Without a FILE the status is the only outcome."""
    label, path, status_text = report.split(":")
    status = int(status_text)
    if not path:
        return [Outcome(label, PASSED if status == 0 else FAILED, f"ended with status {status}")]
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        if status == 0 and not Path(path).exists():
            return []  # The runner had nothing to run.
        return [Outcome(label, FAILED, f"no readable report ({error}); the runner ended with status {status}")]
    outcomes = [outcome_of(label, case) for case in cases]
    if status != 0 and not any(outcome.state == FAILED for outcome in outcomes):
        outcomes.append(Outcome(label, FAILED, f"the runner ended with status {status} but names no failed test"))
    return outcomes


def read_skips(path: Path) -> list[tuple[str, str]]:
    """Lines of `pattern  reason`; # starts a comment line."""
    allowed = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.strip().partition(" ")
        if not reason.strip():
            raise ValueError(f"{path}:{number}: '{pattern}' has no reason")
        allowed.append((pattern, reason.strip()))
    return allowed


def judge_skips(outcomes: list[Outcome], allowed: list[tuple[str, str]]) -> list[Outcome]:
    """Turns each skip that nobody listed into a failure."""
    judged = []
    for outcome in outcomes:
        if outcome.state == SKIPPED and not any(fnmatch.fnmatchcase(outcome.test, pattern) for pattern, _ in allowed):
            outcome = Outcome(outcome.test, FAILED, f"skipped ({outcome.text}), and tests/skips.txt does not list it")
        judged.append(outcome)
    return judged


def node_ids(report: Path) -> list[str]:
    """pytest's names of the end-to-end tests in `report` that may be run again: none if too many failed."""
    failed = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        outcome = outcome_of("", case)
        if outcome.state == FAILED:
            if NEVER_AGAIN.search("\n".join(line for line in outcome.text.splitlines() if line.startswith((">", "E ")))):
                return []
            failed.append((case.get("classname", ""), case.get("name", "")))
    failed = list(dict.fromkeys(failed))  # a test may fail, and its end, too
    if len(failed) > AGAIN_MAX or not all(module.startswith(AGAIN_PREFIX) for module, _ in failed):
        return []
    return [f"{module.replace('.', '/')}.py::{name}" for module, name in failed]


def judge_again(outcomes: list[Outcome], again: list[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """What is left of `outcomes`, and the failures among them that are none any more: every test of that name passed."""
    ended = {name: all(outcome.state == PASSED for outcome in again if outcome.test == name)
             for name in (outcome.test for outcome in again)}
    forgiven = [outcome for outcome in outcomes if outcome.state == FAILED and ended.get(outcome.test)]
    left = [outcome for outcome in outcomes if outcome not in forgiven]
    passed = {outcome.test for outcome in left if outcome.state == PASSED}
    left += [Outcome(test, PASSED) for test in dict.fromkeys(outcome.test for outcome in forgiven) if test not in passed]
    return left, forgiven


def print_outcomes(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.state == FAILED]
    for index, outcome in enumerate(failed):
        print(f"FAILED {outcome.test}")
        if index < SHOWN_FAILURES:
            print_output(outcome.text)
    for outcome in outcomes:
        if outcome.state == SKIPPED:
            print(f"skipped {outcome.test}: {outcome.text}")


def print_output(text: str) -> None:
    lines = text.splitlines()
    if len(lines) > OUTPUT_LINES:
        print(f"  | ({len(lines) - OUTPUT_LINES} lines before these; build/log has all)")
    for line in lines[-OUTPUT_LINES:]:
        print(f"  | {line}")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skips", type=Path, help="tests/skips.txt; needed to count")
    parser.add_argument("--again", metavar="LABEL:FILE:STATUS", help="a second run of what failed, under the first one's label")
    parser.add_argument("--to-run-again", type=Path, metavar="FILE", help="print the tests of this report to run again, and end")
    parser.add_argument("reports", nargs="*", metavar="LABEL:FILE:STATUS")
    args = parser.parse_args(argv)
    if args.to_run_again:
        print("\n".join(node_ids(args.to_run_again)))
        return 0
    outcomes = [outcome for report in args.reports for outcome in read_report(report)]
    outcomes, forgiven = judge_again(outcomes, read_report(args.again) if args.again else [])
    outcomes = judge_skips(outcomes, read_skips(args.skips))
    if not outcomes:
        outcomes = [Outcome("all", FAILED, "no test ran")]
    for outcome in forgiven:
        print(f"passed only alone, in a second run: {outcome.test}")
        print_output(outcome.text)
    print_outcomes(outcomes)
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in (PASSED, FAILED, SKIPPED)}
    print(f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped")
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
