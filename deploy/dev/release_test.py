# SPDX-License-Identifier: Apache-2.0
"""What a release is refused for, and what stands beside its packages."""

import json
import subprocess
from pathlib import Path

import pytest

from deploy.dev import release

FILES = {
    "CMakeLists.txt": "project(hedgerow VERSION 0.9.1 LANGUAGES CXX)\n",
    "CHANGELOG.md": "# Changelog\n\n## 0.9.1 (2026-12-01)\n\n- New: this.\n\n## 0.9.0 (2026-11-01)\n\n- Old: that.\n",
    "debian/changelog": "hedgerow (0.9.1) bookworm; urgency=medium\n",
}


def git(tree: Path, *words: str) -> None:
    subprocess.run(["git", "-C", tree, "-c", "user.name=A", "-c", "user.email=a@example.test", *words], check=True, capture_output=True, timeout=60)


@pytest.fixture
def tree(tmp_path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "a release")
    return tmp_path


def test_a_clean_commit_whose_files_agree_is_one(tree):
    assert release.complaints(tree) == []
    git(tree, "tag", "-a", "-m", "0.9.1", "v0.9.1")
    assert release.complaints(tree) == [], "its own tag is no obstacle"


@pytest.mark.parametrize(("name", "former", "instead", "complaint"), [
    ("CMakeLists.txt", "0.9.1", "0.9.2", "CHANGELOG.md begins with \"0.9.1"),
    ("CHANGELOG.md", "## 0.9.1 (2026-12-01)", "## Unreleased", "CHANGELOG.md begins with \"Unreleased\""),
    ("debian/changelog", "0.9.1", "0.9.0", "debian/changelog is 0.9.0"),
    ("debian/changelog", "bookworm", "UNRELEASED", "debian/changelog says UNRELEASED"),
])
def test_one_place_that_disagrees_is_named(tree, name, former, instead, complaint):
    (tree / name).write_text(FILES[name].replace(former, instead), encoding="utf-8")
    git(tree, "commit", "--quiet", "-am", "another one")
    assert complaint in "\n".join(release.complaints(tree))


def test_changes_without_a_commit_and_a_tag_elsewhere_are_named(tree):
    (tree / "new").touch()
    assert "files have changes that no commit has: new" in release.complaints(tree)
    git(tree, "tag", "v0.9.1")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "-m", "after it")
    (found,) = release.complaints(tree)
    assert found.startswith("the tag v0.9.1 is another commit")


def test_notes_are_the_newest_section(tree):
    assert release.notes(tree) == "## 0.9.1 (2026-12-01)\n\n- New: this.\n"


def test_the_bill_of_materials_has_each_package_with_its_checksum_and_what_it_needs(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    control = folder / "a" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: hedgerow\nVersion: 0.9.1\nArchitecture: all\nMaintainer: A <a@example.test>\n"
                       "Depends: libc6 (>= 2.36), no-such-package | other\nDescription: a\n", encoding="ascii")
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", folder / "a", folder / "hedgerow_0.9.1_all.deb"], check=True, capture_output=True,
                   timeout=60)
    found = release.materials(tree, folder)
    assert json.loads(json.dumps(found)) == found
    packages = {package["name"]: package for package in found["packages"]}
    assert set(packages) == {"hedgerow", "libc6", "no-such-package"}
    assert len(packages["hedgerow"]["checksums"][0]["checksumValue"]) == 64
    assert packages["no-such-package"]["versionInfo"] == "NOASSERTION" != packages["libc6"]["versionInfo"]
    assert len(found["relationships"]) == 2
