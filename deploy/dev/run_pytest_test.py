# SPDX-License-Identifier: Apache-2.0
"""Which processes the Python tests are split into, and in which order."""

from deploy.dev import run_pytest


def test_every_file_has_its_process_and_the_longest_come_first():
    timed, others = run_pytest.groups(["bench"])
    groups = timed + others
    assert tuple(name for name, _ in timed) == run_pytest.TIMED
    assert tuple(name for name, _ in others[:len(run_pytest.LONGEST)]) == run_pytest.LONGEST
    files = sorted(argument for name, arguments in groups if name != run_pytest.OTHERS for argument in arguments)
    assert files == sorted(str(path.relative_to(run_pytest.PROJECT)) for path in run_pytest.END_TO_END.glob("test_*.py"))
    assert dict(groups)[run_pytest.OTHERS] == ["bench", "tests", "--ignore=tests/e2e"]
