# SPDX-License-Identifier: Apache-2.0
"""A wait ends with what it waited for, with its bound, or when that cannot come any more."""

import time

import pytest

from deploy.lab.host import CommandFailed
from deploy.lab.waiting import until


def test_it_returns_what_came():
    answers = iter([0, None, 7])
    assert until(lambda: next(answers), 5, lambda: "", 0) == 7


@pytest.mark.parametrize("hopeless, within_s, at_most_s", [(True, 60, 5), (False, 0.05, 5)])
def test_it_says_why_when_nothing_comes(hopeless, within_s, at_most_s):
    begun_s = time.monotonic()
    with pytest.raises(CommandFailed, match="no answer"):
        until(lambda: False, within_s, lambda: "no answer", hopeless=lambda: hopeless)
    assert time.monotonic() - begun_s < at_most_s
