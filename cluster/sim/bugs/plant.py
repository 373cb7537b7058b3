# SPDX-License-Identifier: Apache-2.0
"""Plants the mistakes of *.bugs into copies of the sources, so that production code knows nothing of them.

A *.bugs file holds mistakes. Each begins with `bug NAME`; then come lines of its description, and then one patch or more:

    bug minority_quorum
    One voter fewer than a majority decides.
    in cluster/raft/raft.cc
    <<<<
      return hr_raft_is_joint_quorum(members, masks.voters, masks.next_voters) != 0;
    ====
      if (PLANTED) return hr_raft_count(members) >= hr_raft_count(masks.voters) / 2;
      return hr_raft_is_joint_quorum(members, masks.voters, masks.next_voters) != 0;
    >>>>

The text between <<<< and ==== must stand exactly once in the source. PLANTED is true while the simulation of this thread
makes this mistake (planted.h); all mistakes are compiled into one program. Only .cc files may be patched: whatever includes a
header would have to be compiled again.

    plant.py ROOT BUGS... --list         the sources that are patched, one a line
    plant.py ROOT BUGS... --into FOLDER  writes their copies, and planted_bugs.cc
"""

import argparse
import difflib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class BadPatch(Exception):
    pass


@dataclass
class Patch:
    where: str  # of the patch itself, for messages
    source: str
    search: list[str] = field(default_factory=list)
    replacement: list[str] = field(default_factory=list)


@dataclass
class Bug:
    name: str
    description: list[str] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)


def read_bugs(path: Path) -> list[Bug]:
    bugs: list[Bug] = []
    into: list[str] | None = None  # within a patch: what its lines are part of
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path.name}:{number}"
        patch = bugs[-1].patches[-1] if bugs and bugs[-1].patches else None
        if line == "<<<<" and patch is not None and into is None and not patch.search:
            into = patch.search
        elif line == "====" and into is not None and into is patch.search:
            into = patch.replacement
        elif line == ">>>>" and into is not None and into is patch.replacement:
            into = None
        elif into is not None:
            into.append(line)
        elif line.startswith("bug "):
            bugs.append(Bug(line.removeprefix("bug ")))
            if re.fullmatch(r"[a-z][a-z0-9_]*", bugs[-1].name) is None:
                raise BadPatch(f"{where}: '{bugs[-1].name}' is no name")
        elif line.startswith("in ") and bugs:
            bugs[-1].patches.append(Patch(f"{where}: {bugs[-1].name}", line.removeprefix("in ")))
        elif line and bugs and not bugs[-1].patches:
            bugs[-1].description.append(line)
        elif line and not line.startswith("#"):
            raise BadPatch(f"{where}: what is '{line}'?")
    if into is not None:
        raise BadPatch(f"{path.name}: the last patch has no end")
    return bugs


def check(bugs: list[Bug]) -> None:
    names = [bug.name for bug in bugs]
    for bug in bugs:
        if names.count(bug.name) > 1:
            raise BadPatch(f"{bug.name}: this name stands twice")
        if not bug.description or not bug.patches:
            raise BadPatch(f"{bug.name}: it has no description, or no patch")
        if not any("PLANTED" in line for patch in bug.patches for line in patch.replacement):
            raise BadPatch(f"{bug.name}: nothing in it asks whether it is PLANTED")
        for patch in bug.patches:
            if not patch.source.endswith(".cc"):
                raise BadPatch(f"{patch.where}: {patch.source} is not a .cc file")
            if not patch.search:
                raise BadPatch(f"{patch.where}: there is no text to search for")


def planted(bugs: list[Bug], source: str, original: str) -> str:
    text = original
    for number, bug in enumerate(bugs, 1):
        for patch in bug.patches:
            if patch.source != source:
                continue
            search = "\n".join(patch.search)
            # In the source, and also in what the mistakes before have made of it: several may share a line.
            for what in (original, text):
                if (times := what.count(search)) != 1:
                    raise BadPatch(f"{patch.where}: the text to search for stands {times} times in {source}, not once:\n{search}")
            replacement = "\n".join(patch.replacement)
            text = text.replace(search, re.sub(r"\bPLANTED\b", f"::hedgerow::sim::IsPlanted({number})", replacement))
    return text


def with_line_numbers(source: str, original: str, text: str) -> str:
    """Messages name the lines of the original."""
    before, after = original.splitlines(keepends=True), text.splitlines(keepends=True)
    lines = [SPDX, '#include "cluster/sim/bugs/planted.h"\n']
    for tag, begin, _, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal" and first < last:
            lines.append(f'#line {begin + 1} "{source}"\n')
        lines += after[first:last]
    return "".join(lines)


def list_of(bugs: list[Bug]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    rows = "".join(f"    {{{quoted(bug.name)}, {quoted(' '.join(bug.description))}}},\n" for bug in bugs)
    return (SPDX + '#include "cluster/sim/bugs/planted.h"\n\nnamespace hedgerow::sim {\n\nnamespace {\n'
            f"constexpr PlantedBug kBugs[] = {{\n{rows}}};\n}}  // namespace\n\n"
            "std::span<const PlantedBug> PlantedBugs() { return kBugs; }\n\n}  // namespace hedgerow::sim\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # What has not changed is not compiled again.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="plants mistakes into copies of the sources")
    parser.add_argument("root", type=Path)
    parser.add_argument("bugs", type=Path, nargs="+")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--into", type=Path)
    given = parser.parse_args(arguments)
    try:
        bugs = [bug for path in given.bugs for bug in read_bugs(path)]
        check(bugs)
        sources = sorted({patch.source for bug in bugs for patch in bug.patches})
        if given.list:
            print("\n".join(sources))
            return 0
        for source in sources:
            if not (given.root / source).is_file():
                where = next(patch.where for bug in bugs for patch in bug.patches if patch.source == source)
                raise BadPatch(f"{where}: there is no {source}")
            original = (given.root / source).read_text(encoding="utf-8")
            write(given.into / source, with_line_numbers(source, original, planted(bugs, source, original)))
        write(given.into / "planted_bugs.cc", list_of(bugs))
    except BadPatch as bad:
        print(f"plant.py: {bad}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
