# SPDX-License-Identifier: Apache-2.0
"""Folders of a run that go with it, named after its process: what a killed run has left is found (`./dev clean`)."""

import os
import re
import tempfile
from pathlib import Path

_NAME = re.compile(r"hedgerow-[a-z]+-(\d+)-\w+")


def folder(kind: str) -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix=f"hedgerow-{kind}-{os.getpid()}-")


def left_behind() -> list[Path]:
    """By processes that are no more."""
    return [path for path in Path(tempfile.gettempdir()).glob("hedgerow-*-*-*")
            if (found := _NAME.fullmatch(path.name)) and not Path("/proc", found[1]).exists()]
