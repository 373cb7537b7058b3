# SPDX-License-Identifier: Apache-2.0
"""Merges the JUnit XML files of ctest and pytest into one count: `N passed, N failed, N skipped`.

Called by test.sh at the end of `./dev test`. It prints every failure with its output first, then every skip. A skip
that tests/skips.txt does not list counts as a failure, and so do a runner that ended badly without naming a failed
test and a report that is missing: a suite that did not run must never look green.
"""

import argparse
import dataclasses
import fnmatch
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

OUTPUT_LINES = 40
# When much fails it is for one reason, and the first few show it.
SHOWN_FAILURES = 20

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One test's end. `test` is RUNNER/NAME, which the patterns of tests/skips.txt are matched against."""

    test: str
    state: str
    text: str = ""
    seconds: float = 0.0


def outcome_of(label: str, case: ElementTree.Element) -> Outcome:
    """Reads one <testcase> of ctest's or pytest's dialect."""
    name, classname = case.get("name", "?"), case.get("classname", "")
    seconds = float(case.get("time") or 0)
    # ctest repeats the name as the class; pytest's class is the module.
    test = f"{label}/{name}" if classname in ("", name) else f"{label}/{classname}.{name}"
    output = case.findtext("system-out") or ""
    for tag in ("failure", "error"):
        found = case.find(tag)
        if found is not None:
            return Outcome(test, FAILED, "\n".join(filter(None, (found.get("message"), found.text, output))), seconds)
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
    return Outcome(test, PASSED, seconds=seconds)


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


def gtest_outcomes(label: str, entry: Outcome, path: Path) -> list[Outcome]:
    """The cases of one of ctest's entries, from gtest's own report; the entry itself where there is none. A program that
    ended badly without naming a failed case is a failure beside them."""
    try:
        suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return [entry]  # no gtest program, or it died
    cases = []
    for suite in suites:
        for case in suite.iter("testcase"):
            test = f"{label}/{path.stem.partition(':')[0]}:{case.get('classname')}.{case.get('name')}"
            seconds = float(case.get("time") or 0)
            messages = "\n".join(failure.get("message", "") for failure in case.iter("failure"))
            skip = case.find("skipped")
            if case.find("failure") is not None:
                cases.append(Outcome(test, FAILED, messages, seconds))
            elif skip is not None:
                # gtest writes "file:line" and then the reason.
                cases.append(Outcome(test, SKIPPED, skip.get("message", "").partition("\n")[2].strip()))
            elif case.get("status") != "notrun":  # the other shards' and filters'
                cases.append(Outcome(test, PASSED, seconds=seconds))
    if not cases or entry.state == FAILED and not any(case.state == FAILED for case in cases):
        cases.append(entry)
    return cases


def read_report(report: str) -> list[Outcome]:
    """`LABEL:FILE:STATUS[:GTEST]`: a runner's report and exit status. Without a FILE the status is the only outcome. GTEST is
    a folder with a report of gtest's for each of ctest's entries."""
    label, path, status_text, gtest = (report + ":").split(":")[:4]
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
    if gtest:
        outcomes = [outcome for case, entry in zip(cases, outcomes, strict=True)
                    for outcome in gtest_outcomes(label, entry, Path(gtest, f"{case.get('name')}.xml"))]
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
    """Turns each skip that is not listed into a failure."""
    judged = []
    for outcome in outcomes:
        if outcome.state == SKIPPED and not any(fnmatch.fnmatchcase(outcome.test, pattern) for pattern, _ in allowed):
            outcome = Outcome(outcome.test, FAILED, f"skipped ({outcome.text}), and tests/skips.txt does not list it")
        judged.append(outcome)
    return judged


def print_outcomes(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.state == FAILED]
    for index, outcome in enumerate(failed):
        print(f"FAILED {outcome.test}")
        if index < SHOWN_FAILURES:
            print_output(outcome.text)
    for outcome in outcomes:
        if outcome.state == SKIPPED:
            print(f"skipped {outcome.test}: {outcome.text}")


def print_slowest(outcomes: list[Outcome], number: int) -> None:
    for outcome in sorted(outcomes, key=lambda outcome: outcome.seconds, reverse=True)[:number]:
        print(f"{outcome.seconds:7.1f} s  {outcome.test}")


def print_most_cpu(path: Path, number: int) -> None:
    """`path`: lines of `name<tab>seconds`, the largest first (run_pytest.py). It is not there when the runner was ended."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines()[:number]:
            name, seconds = line.split("\t")
            print(f"{float(seconds):7.1f} s of a processor  {name}")


def print_output(text: str) -> None:
    lines = text.splitlines()
    if len(lines) > OUTPUT_LINES:
        print(f"  | ({len(lines) - OUTPUT_LINES} lines before these; build/log has all)")
    for line in lines[-OUTPUT_LINES:]:
        print(f"  | {line}")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skips", type=Path, required=True, help="tests/skips.txt")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N tests that took longest")
    parser.add_argument("--cpu", type=Path, help="processor time of each file of tests, of which as many are printed")
    parser.add_argument("reports", nargs="*", metavar="LABEL:FILE:STATUS[:GTEST]")
    args = parser.parse_args(argv)
    outcomes = [outcome for report in args.reports for outcome in read_report(report)]
    outcomes = judge_skips(outcomes, read_skips(args.skips))
    if not outcomes:
        outcomes = [Outcome("all", FAILED, "no test ran")]
    print_slowest(outcomes, args.slowest)
    if args.cpu:
        print_most_cpu(args.cpu, args.slowest)
    print_outcomes(outcomes)
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in (PASSED, FAILED, SKIPPED)}
    print(f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped")
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
