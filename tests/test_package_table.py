# SPDX-License-Identifier: Apache-2.0
"""deploy/dev/packages.tsv: what is installed on a fresh machine. A row that is cut short would name a package that does not exist."""

from collections import Counter
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "deploy" / "dev" / "packages.tsv"


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
