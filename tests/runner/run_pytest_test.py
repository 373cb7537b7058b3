# SPDX-License-Identifier: Apache-2.0
"""Which processes the Python tests are split into, and in which order; and that no test is left out."""

import os
import re
import subprocess
import sys

from tests.runner import run_pytest

_TEST_SH = run_pytest.PROJECT / "deploy" / "dev" / "test.sh"


def test_every_file_has_its_process_and_the_longest_come_first():
    timed, others = run_pytest.groups(["dst"])
    groups = timed + others
    assert tuple(name for name, _ in timed) == run_pytest.TIMED
    assert tuple(name for name, _ in others[:len(run_pytest.LONGEST)]) == run_pytest.LONGEST
    files = sorted(argument for name, arguments in groups if name != run_pytest.OTHERS for argument in arguments)
    assert files == sorted(str(path.relative_to(run_pytest.PROJECT)) for path in run_pytest.END_TO_END.glob("test_*.py"))
    assert dict(groups)[run_pytest.OTHERS] == [".", "--ignore=tests/e2e", "--ignore=dst"]


def test_every_file_of_tests_in_the_repository_is_run():
    git = ["git", "-c", f"safe.directory={run_pytest.PROJECT}", "ls-files", "*_test.py", "test_*.py", "**/test_*.py"]
    known = set(subprocess.run(git, cwd=run_pytest.PROJECT, capture_output=True, text=True, check=True).stdout.split())
    patient = re.search(r"^PATIENT_FOLDERS=\((.*?)\)", _TEST_SH.read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    timed, others = run_pytest.groups(patient)
    found = {argument for _, arguments in timed + others for argument in arguments if argument.startswith("tests/e2e/")}
    for arguments in (dict(others)[run_pytest.OTHERS], patient):
        done = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments], cwd=run_pytest.PROJECT, capture_output=True,
                              text=True, check=False, env={**os.environ, "HEDGEROW_LONG": "1"})
        found |= {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert known and sorted(known - found) == []
