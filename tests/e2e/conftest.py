# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests: a lab, servers, the daemon under test, and the checks at rest.

These tests make network namespaces and load BPF programs, so they need root. Without it they fail, each with
this reason: a suite that skips itself would look green where nothing was tested.
"""

import os
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.fail("the end-to-end tests need root: run `sudo ./dev test`", pytrace=False)
