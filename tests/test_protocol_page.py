# SPDX-License-Identifier: Apache-2.0
"""docs/protocol.md has a row for every message that the code knows, and no other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/protocol.md").read_text()


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def between(text: str, start: str, end: str) -> str:
    return text.split(start, 1)[1].split(end, 1)[0]


def enumerators(path: str, enum: str, prefix: str) -> set[str]:
    names = set(re.findall(rf"\b{prefix}(\w+) = \d+,", between(text_of(path), f"enum {enum} {{", "};")))
    return names - {"KINDS"}  # one past the last


def peer_kinds() -> set[str]:
    return enumerators("bpf/abi/peer_abi.h", "hr_peer_kind", "HR_PEER_")


def announcement_states() -> set[str]:
    return enumerators("bpf/abi/announce_abi.h", "hr_announcement_state", "HR_ANNOUNCEMENT_")


def hkv_kinds() -> set[str]:
    return set(re.findall(r'HkvRequestRow\{HkvKind::k\w+, "(\w+)"', text_of("cluster/wire/hkv_table.h")))


def memcached_commands() -> set[str]:
    return set(re.findall(r'VerbRow\{Verb::\w+, "(\w+)"', text_of("cluster/memcached/verb_table.h")))


def transfer_messages() -> set[str]:
    messages = between(text_of("cluster/api/transfer.proto"), "oneof what {", "}")
    return set(re.findall(r"(\w+) \w+ = \d+;", messages))


def calls(path: str) -> set[str]:
    proto = text_of(path)
    service = re.search(r"^service (\w+) \{", proto, re.M).group(1)
    return {f"{service}.{name}" for name in re.findall(r"^  rpc (\w+)\(", proto, re.M)}


SECTIONS = {
    "Between nodes": (peer_kinds, 15),
    "Clients and nodes: hkv": (hkv_kinds, 4),
    "Clients and nodes: memcached": (memcached_commands, 14),
    "Leaders and proxies: announcements": (announcement_states, 2),
    "Snapshot transfer": (transfer_messages, 6),
    "Administration of a node": (lambda: calls("cluster/api/node.proto"), 6),
    "Administration of a proxy": (lambda: calls("proxy/api/admin.proto"), 11),
    "Administration of a group of workers": (lambda: calls("steer/api/steer.proto"), 7),
}


def rows_of(section: str) -> list[str]:
    """The names in the first cell of each row."""
    body = re.split(r"^## ", between(PAGE, f"\n## {section}\n", "\0"), maxsplit=1, flags=re.M)[0]
    return [name for cell in re.findall(r"^\| (`[^|]+) \|", body, re.M) for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_a_row_for_every_message_and_no_other(section):
    in_code, at_least = SECTIONS[section]
    rows = rows_of(section)
    assert len(in_code()) >= at_least, "the code is no longer read as it is written"
    assert sorted(rows) == sorted(in_code())


def test_every_section_with_rows_is_compared():
    assert {name for name in re.findall(r"^## (.+)$", PAGE, re.M)} == set(SECTIONS)


def test_every_row_says_who_when_and_what_follows():
    for row in re.findall(r"^\| `.+$", PAGE, re.M):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4 and all(cells), row


def test_every_service_definition_is_in_the_page():
    """A new service of a node or a proxy needs a section."""
    found = {str(path.relative_to(ROOT)) for folder in ("cluster", "proxy", "operate")
             for path in (ROOT / folder).rglob("*.proto") if re.search(r"^service ", path.read_text(), re.M)}
    assert found == {"cluster/api/node.proto", "cluster/api/transfer.proto", "proxy/api/admin.proto",
                     "operate/echo_test.proto"}
