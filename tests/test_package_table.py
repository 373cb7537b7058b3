# SPDX-License-Identifier: Apache-2.0
"""deploy/dev/packages.tsv: what is installed on a fresh machine. A row that is cut short would name a package that does not exist."""

import re
from collections import Counter
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
TABLE = PROJECT / "deploy" / "dev" / "packages.tsv"
# Of `build`, what a Debian package is built without: what build-essential has, what only clones, sanitizers and comparisons need, and what
# makes a build quicker.
NOT_FOR_PACKAGES = {"git", "ca-certificates", "ccache", "g++", "mold", "libclang-rt-14-dev", "llvm", "linux-libc-dev", "golang-go", "-"}


def rows() -> list[list[str]]:
    return [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_every_row_has_its_group_a_name_on_each_system_and_a_reason():
    assert len(rows()) > 50
    assert [row for row in rows() if len(row) != 5 or not all(field.strip() for field in row)] == []


def test_every_name_is_one_that_apt_could_know():
    wrong = [(row[0], name) for row in rows() for field in row[1:4] for name in field.split() if not set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789+-.")]
    assert wrong == []


def test_no_group_names_a_package_twice():
    assert [row for row, times in Counter((row[0], row[1]) for row in rows()).items() if times > 1] == []


def test_what_the_build_needs_is_in_the_packages_build_depends():
    """On Debian 12 the one name stands in both; elsewhere a row may have another."""
    control = (PROJECT / "debian" / "control").read_text(encoding="utf-8").split("Build-Depends:")[1].split("\nStandards-Version")[0]
    listed = set(re.findall(r"[a-z0-9][a-z0-9+.-]+", control))
    assert {row[1] for row in rows() if row[0] == "build"} - NOT_FOR_PACKAGES <= listed
