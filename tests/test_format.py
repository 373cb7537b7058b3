# SPDX-License-Identifier: Apache-2.0
"""What holds of every source in C and C++: clang-format 14 lays it out (`.clang-format`; another version breaks some lines elsewhere), and no
wait of a program goes by the wall clock."""

import re
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


def test_no_wait_goes_by_the_wall_clock():
    """Those of Abseil with a timeout do (net/steady_wait.h)."""
    waits = re.compile(r"\b(Await|Wait|LockWhen|WaitForNotification)With(Timeout|Deadline)\(")
    tops = ("cluster", "config", "net", "operate", "proxy", "steer")
    found = [path for path in sources() if path.split("/")[0] in tops and "/testing/" not in path and not re.search(r"_test\.(cc|h)$", path)
             and waits.search(re.sub(r"//.*", "", (ROOT / path).read_text(encoding="utf-8")))]
    assert not found, f"take net::SteadyCondVar or net::SteadyNotification in {found}"
