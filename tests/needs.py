# SPDX-License-Identifier: Apache-2.0
"""For tests of what a build may lack: a skip with the build's own reason, which tests/skips.txt has to list."""

import pytest

from bench.manifest import why_missing


def program(name: str) -> pytest.MarkDecorator:
    """Programs of Go, whose modules come over the network."""
    why = why_missing(name)
    return pytest.mark.skipif(why is not None, reason=str(why))


# Two checkers judge a history, or nobody does.
JUDGES = program("hr-porcupine")
