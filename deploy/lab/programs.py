# SPDX-License-Identifier: Apache-2.0
"""Programs of the build, which of them this process has started or was about to, and which bytes they had at that time: what an
experiment's manifest says was measured (bench/outcome.py).
"""

import functools
import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_hashes: dict[Path, str] = {}


def build_dir() -> Path:
    return Path(os.environ.get("HEDGEROW_BUILD_DIR", PROJECT / "build" / "release"))


def _programs() -> Path:
    return Path(os.environ.get("HEDGEROW_BIN", build_dir() / "bin"))


def binary(name: str) -> Path:
    path = _programs() / name
    if not path.exists():
        raise FileNotFoundError(why_missing(name) or f"{path} is not built: run ./dev build")
    return noted(path)


def why_missing(name: str) -> str | None:
    """Why the build went on without a program of Go (cmake/go_build.sh); None where it did not have to."""
    reason = _programs() / f"{name}.missing"
    return reason.read_text(encoding="utf-8").strip() if reason.exists() else None


def bpf_object(name: str) -> Path:
    """One of the build's kernel programs, to be loaded without a daemon of ours."""
    return binary(f"../bpf/{name}.bpf.o")


def noted(path: Path) -> Path:
    """A program, or another file of the build that a run uses. Hashed when it is first asked for, which is before it runs."""
    if path not in _hashes:
        _hashes[path] = _hash(path)
    return path


def note_installed(command: Iterable[str]) -> None:
    """Other projects' programs stand in command lines by their absolute paths."""
    for word in command:
        if word.startswith("/usr/") and os.access(word, os.X_OK) and os.path.isfile(word):
            noted(Path(word))


def hashes() -> dict[str, str]:
    """Of the build's by name, of installed ones by path."""
    return {_name(path): found for path, found in sorted(_hashes.items())}


def changed() -> list[str]:
    """Those that are other files by now than when they were first used."""
    return [_name(path) for path, found in sorted(_hashes.items()) if not path.exists() or _hash(path) != found]


def packages() -> dict[str, str]:
    """Of installed programs: package and version, where dpkg knows them."""
    return {_name(path): _package_of(path) for path in sorted(_hashes) if path.is_relative_to("/usr")}


@functools.cache
def _package_of(path: Path) -> str:
    def said(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    try:
        owner = said("dpkg-query", "-S", str(path.resolve())).partition(": ")[0]
        return said("dpkg-query", "-W", "-f", "${Package} ${Version}", owner) if owner else "of no package"
    except FileNotFoundError:
        return "no dpkg"


def _name(path: Path) -> str:
    return str(path) if path.is_relative_to("/usr") else path.name


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
