# SPDX-License-Identifier: Apache-2.0
"""What a shipped systemd unit says, for the lab, in which no systemd runs."""

from pathlib import Path

UNITS = Path(__file__).resolve().parents[1] / "systemd"


class UnitFile:
    def __init__(self, path: Path):
        self.path = path
        self._settings: list[tuple[str, str]] = []
        section = ""
        for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
            if line.startswith("["):
                section = line
            elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
                key, value = line.split("=", 1)
                self._settings.append((key.strip(), value.strip()))

    def last(self, key: str, default: str = "") -> str:
        """Of [Service]: a setting that counts once."""
        return dict(self._settings).get(key, default)

    def all(self, key: str) -> list[str]:
        """A setting that may be given several times, in order."""
        return [value for each, value in self._settings if each == key]

    def words(self, key: str) -> list[str]:
        """A setting whose lines add up to one list."""
        return " ".join(self.all(key)).split()
