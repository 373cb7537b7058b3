# SPDX-License-Identifier: Apache-2.0
"""The numbers of the formats in docs/cluster.md, Versions, are those of the programs."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
NUMBERS = {
    "datagrams between nodes": ("bpf/abi/peer_abi.h", r"#define HR_PEER_VERSION (\d+)"),
    "`identity` in the data folder": ("cluster/storage/identity.cc", r'kTitle\[\] = "hedgerow identity (\d+)'),
    "log": ("cluster/storage/records.h", r"kFormatVersion = (\d+);"),
    "backup": ("cluster/storage/backup_file.h", r"kBackupVersion = (\d+);"),
    "announcements": ("bpf/abi/announce_abi.h", r"#define HR_ANNOUNCEMENT_VERSION (\d+)"),
    "requests of clients (`hkv`)": ("cluster/wire/hkv.h", r"kHkvVersion = (\d+);"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_page_has_the_programs_number(name):
    file, pattern = NUMBERS[name]
    row = re.search(rf"^\| {re.escape(name)} \| (\d+) \|", (PROJECT / "docs/cluster.md").read_text(encoding="utf-8"), re.MULTILINE)
    number = re.search(pattern, (PROJECT / file).read_text(encoding="utf-8"))
    assert row and number and row[1] == number[1]


def test_every_place_names_the_version_that_is_built():
    """Images of compose and manifests, and the packages."""
    version = re.search(r"^project\(hedgerow VERSION (\S+)", (PROJECT / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert re.match(r"hedgerow \((\S+)\)", (PROJECT / "debian/changelog").read_text(encoding="utf-8"))[1] == version
    assert re.search(rf"^## (Unreleased|{re.escape(version)} \()", (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    tags = [(str(file.relative_to(PROJECT)), tag) for pattern in ("deploy/**/*.yaml", "docs/*.md") for file in PROJECT.glob(pattern)
            for tag in re.findall(r"\bhedgerow(?:-node|-endpoints)?:(\d+\.\d+\.\d+)\b", file.read_text(encoding="utf-8"))]
    assert len(tags) >= 9
    assert [tag for tag in tags if tag[1] != version] == []
