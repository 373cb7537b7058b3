# SPDX-License-Identifier: Apache-2.0
"""What the pages name is there: functions of the kernel programs, files that links lead to, and headings behind a `#`."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from bench.manifest import binary

PROJECT = Path(__file__).resolve().parents[1]
PAGES = sorted(path for pattern in ("*.md", "docs/**/*.md", "*/README.md", "*/*/README.md") for path in PROJECT.glob(pattern)
               if not path.is_relative_to(PROJECT / "build"))
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page):
    for link in map("".join, LINK.findall(page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, and there is no such heading"


def test_the_configuration_of_the_readme_is_sound(tmp_path):
    """As `hedgerow validate` judges it, and as short as the README says."""
    found = re.findall(r"```yaml\n(.*?)```", (PROJECT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == 1 and len(found[0].splitlines()) <= 10
    file = tmp_path / "hedgerow.yaml"
    file.write_text(found[0], encoding="utf-8")
    file.chmod(0o600)
    done = subprocess.run([binary("hedgerow"), "validate", "--config", file], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 services, 2 backends" in done.stdout


@pytest.mark.parametrize("page", sorted((PROJECT / "docs" / "recipes").glob("*.md")) + [PROJECT / "docs" / "profile-language.md"], ids=lambda page: page.stem)
def test_what_a_recipe_requires_is_whole_sentences(page):
    """A comma within [ ] ends a text of YAML, and `validate` shows what follows as a requirement of its own."""
    for block in re.findall(r"```yaml\n(services:.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for service in yaml.safe_load(block)["services"]:
            for text in service.get("raw", {}).get("requires", []):
                assert not text.startswith(("and ", "or ")), f"{page.name}: {text!r}"


def test_every_command_of_dev_that_pages_name_exists():
    front_door = (PROJECT / "dev").read_text(encoding="utf-8")
    there = set(re.findall(r"^    ([a-z]+)(?: \|[^)]*)?\) ", front_door, re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"\./dev ([a-z]+)\b", page.read_text(encoding="utf-8"))}
    assert len(there) > 10 and len(named) > 10
    assert sorted(named - there) == []


def test_every_function_in_the_life_of_a_request_exists():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PROJECT.glob("bpf/**/*.[ch]"))
    named = re.findall(r"`(hr_\w+)`", (PROJECT / "docs" / "life-of-a-request.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [name for name in named if not re.search(rf"\b{name}\(", sources)]
    assert not missing


def test_every_test_that_the_security_page_names_exists():
    """In the last column of its tables: `Suite.Name`, `test_name` or `name_fuzz`."""
    page = (PROJECT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    named = {name for line in page.splitlines() if line.startswith("|") for name in re.findall(r"`([^`]+)`", line.split("|")[-2])}
    built = PROJECT / "build"

    def words(pattern: str, files: str) -> set[str]:
        sources = (path.read_text(encoding="utf-8") for path in PROJECT.glob(files) if not path.is_relative_to(built))
        return {".".join(found) if isinstance(found, tuple) else found for text in sources for found in re.findall(pattern, text)}

    there = (words(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", "**/*_test.cc") | words(r"(?m)^def (test_\w+)", "tests/**/*.py") | words(r"(?m)^def (test_\w+)", "**/*_test.py")
             | words(r"hedgerow_fuzzer\((\w+)", "**/CMakeLists.txt") | words(r"hedgerow_fuzzer\((\w+)", "**/*.cmake"))
    assert len(named) > 40
    assert sorted(named - there) == []
