# SPDX-License-Identifier: Apache-2.0
"""Whether this tree may become a release, and what stands beside its packages: notes for users, a list of the images, and a bill of
materials (SPDX 2.3). release.sh calls it.

release.py check: prints the version, or what contradicts it. release.py write FOLDER: of the packages and images in FOLDER."""

import hashlib
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LICENCES = "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False, timeout=60).stdout.strip()


def version_of(root: Path) -> str:
    return re.search(r"^project\(hedgerow VERSION (\S+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]


def complaints(root: Path) -> list[str]:
    version = version_of(root)
    head = git(root, "rev-parse", "HEAD")
    found = [] if head else ["this is no commit of git"]
    if changed := git(root, "status", "--porcelain"):
        found.append(f"files have changes that no commit has: {' '.join(changed.split()[1::2][:5])}")
    newest = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    if not newest.startswith(f"{version} ("):
        found.append(f"CHANGELOG.md begins with \"{newest}\", and CMakeLists.txt is {version}: give those entries this version and a date")
    debian = re.match(r"hedgerow \((\S+)\) ([^;]+);", (root / "debian" / "changelog").read_text(encoding="utf-8"))
    if debian[1] != version:
        found.append(f"debian/changelog is {debian[1]}, and CMakeLists.txt {version}")
    if debian[2] == "UNRELEASED":
        found.append("debian/changelog says UNRELEASED: name the distribution")
    if (tagged := git(root, "rev-parse", "--quiet", "--verify", f"v{version}^{{commit}}")) and tagged != head:
        found.append(f"the tag v{version} is another commit, {tagged[:12]}: take another version")
    return found


def notes(root: Path) -> str:
    """The newest section of the changelog."""
    return "## " + re.split(r"^## ", (root / "CHANGELOG.md").read_text(encoding="utf-8"), maxsplit=2, flags=re.MULTILINE)[1].rstrip() + "\n"


def images(folder: Path) -> str:
    """Each archive with the digest of its index, by which a registry knows it."""
    lines = []
    for archive in sorted(folder.glob("*.oci.tar")):
        index = subprocess.run(["tar", "-xOf", archive, "index.json"], capture_output=True, check=True, timeout=60).stdout
        lines.append(f"{archive.name} {json.loads(index)['manifests'][0]['digest']}\n")
    return "".join(lines)


def materials(root: Path, folder: Path) -> dict:
    """The packages, and what they depend on, in the versions of the host that built them."""
    version, commit = version_of(root), git(root, "rev-parse", "HEAD")
    packages, relations = {}, []
    for deb in sorted(folder.glob("*.deb")):
        field = {name: subprocess.run(["dpkg-deb", "--field", deb, name], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
                 for name in ("Package", "Version", "Depends")}
        packages[field["Package"]] = {"versionInfo": field["Version"], "licenseDeclared": LICENCES, "checksums": [
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(deb.read_bytes()).hexdigest()}]}
        for needed in filter(None, (re.split(r"[ (:|]", each.strip())[0] for each in field["Depends"].split(","))):
            relations.append((field["Package"], needed))
    for needed in sorted({needed for _, needed in relations} - set(packages)):
        held = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", needed], capture_output=True, text=True, check=False, timeout=60).stdout
        packages[needed] = {"versionInfo": held or "NOASSERTION", "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:deb/{needed}" + (f"@{held}" if held else "")}]}
    made = datetime.fromtimestamp(int(git(root, "log", "-1", "--format=%ct")), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"hedgerow-{version}",
            "documentNamespace": f"urn:hedgerow:{version}:{commit}",
            "creationInfo": {"created": made, "creators": ["Organization: The Hedgerow authors"]},
            "packages": [{"name": name, "SPDXID": _id(name), "downloadLocation": "NOASSERTION", "filesAnalyzed": False, **facts}
                         for name, facts in packages.items()],
            "relationships": [{"spdxElementId": _id(one), "relationshipType": "DEPENDS_ON", "relatedSpdxElement": _id(other)}
                              for one, other in relations]}


def _id(package: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package)


def main(command: str, *folder: str) -> int:
    if command == "check":
        found = complaints(ROOT)
        print("\n".join(found) if found else version_of(ROOT), file=sys.stderr if found else sys.stdout)
        return bool(found)
    into = Path(*folder)
    (into / "NOTES.md").write_text(notes(ROOT), encoding="utf-8")
    (into / "IMAGES").write_text(images(into), encoding="ascii")
    (into / "hedgerow.spdx.json").write_text(json.dumps(materials(ROOT, into), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
