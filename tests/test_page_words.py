# SPDX-License-Identifier: Apache-2.0
"""The pages for users stay short: words are counted as `wc -w` does. The list of these pages is the part "For users" of docs/README.md."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
INDEX = PROJECT / "docs" / "README.md"
MOST, MOST_OF_A_PAGE = 45_000, 6_000


def pages() -> set[Path]:
    """Those that the index names for users, what stands beside a page of a folder, and the README."""
    part = INDEX.read_text(encoding="utf-8").split("For users", 1)[1].split("For developers", 1)[0]
    named = {(INDEX.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+\.md)\)", part)}
    return {PROJECT / "README.md"} | {page for name in named for page in (name.parent.glob("*.md") if name.name == "README.md" else [name])}


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_every_page_is_for_users_or_for_developers():
    index = INDEX.read_text(encoding="utf-8")
    assert [page.name for page in sorted(INDEX.parent.glob("*.md")) if page != INDEX and f"]({page.name})" not in index] == []


def test_users_read_no_more_than_so_many_words():
    counted = {str(page.relative_to(PROJECT)): words(page) for page in pages()}
    assert len(counted) > 30
    longest = sorted(counted.items(), key=lambda page: -page[1])
    assert longest[0][1] <= MOST_OF_A_PAGE, longest[:3]
    assert sum(counted.values()) <= MOST, f"{sum(counted.values())} words; shorten one of {longest[:8]}"
