# SPDX-License-Identifier: Apache-2.0
"""C and C++ are laid out by clang-format 14 (`.clang-format`); another version breaks some lines elsewhere."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORMATTER = next((name for name in ("clang-format-14", "clang-format") if shutil.which(name)), None)


def sources():
    folders = [top for top in ROOT.iterdir() if top.is_dir() and top.name not in ("build", "results", ".git")]
    return [str(path.relative_to(ROOT)) for top in folders for end in ("c", "cc", "h") for path in top.rglob(f"*.{end}")]


def test_every_file_is_laid_out_by_the_formatter():
    version = FORMATTER and subprocess.run([FORMATTER, "--version"], check=True, capture_output=True, text=True).stdout
    if not version or "version 14." not in version:
        pytest.skip(f"needs clang-format 14, found {version}")
    run = subprocess.run([FORMATTER, "--dry-run", *sources()], cwd=ROOT, check=True, capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    assert not wrong, f"run `{FORMATTER} -i` on: {' '.join(wrong)}"
