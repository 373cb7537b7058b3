# SPDX-License-Identifier: Apache-2.0
"""Files for programs that run as another user than the test."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A new folder that every user can reach and read. pytest's `tmp_path` is none, whatever its mode: each pytest that starts on
    this machine closes the folder above it to others."""
    with tempfile.TemporaryDirectory(prefix="hedgerow-", dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder
