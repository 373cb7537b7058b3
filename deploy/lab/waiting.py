# SPDX-License-Identifier: Apache-2.0
"""Waiting for something that comes by itself, and no longer than it may take."""

import time
from collections.abc import Callable
from typing import TypeVar

from deploy.lab.host import CommandFailed

Found = TypeVar("Found")


def until(holds: Callable[[], Found], within_s: float, why: Callable[[], str], every_s: float = 0.02, *,
          hopeless: Callable[[], bool] = lambda: False, error: type[Exception] = CommandFailed) -> Found:
    """What `holds` returns, once that is true. An error with `why` when the time is over, or when it is hopeless."""
    deadline = time.monotonic() + within_s
    while not (found := holds()):
        if hopeless() or time.monotonic() > deadline:
            raise error(why())
        time.sleep(every_s)
    return found
