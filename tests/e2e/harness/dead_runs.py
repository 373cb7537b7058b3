# SPDX-License-Identifier: Apache-2.0
"""Which labs a test run that was killed has left. Called at the start of each file's run, beside another that is at work."""

import os
import re


def is_left_by_a_dead_run(tag: str) -> bool:
    """A tag has the pid of its pytest process, in some files with a further digit or letter. A lab that is kept has no lock, so a living
    pid counts as its owner."""
    found = re.fullmatch(r"(?:acc|bnds|e2e|hrc|large|memb|mprx|oddm|own|self|tut)(\d+)[st]?", tag)
    return found is not None and not any(os.path.exists(f"/proc/{pid}") for pid in (found[1], found[1][:-1]) if pid)
