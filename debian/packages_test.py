# SPDX-License-Identifier: Apache-2.0
"""What is in the .deb packages. No test looks at a clock, so `./dev test` runs them at idle priority (patient_tests of test.sh)."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.harness.packages import ROOT, make, of_this_run

pytestmark = pytest.mark.timeout(900)
CONTENTS = {
    "hedgerow": {"usr/bin/hedgerow", "usr/bin/hedgerowd", "usr/bin/hedgerow-steer", "share/hedgerow/endpoints.py", "man8/hedgerow-steer.8.gz", "completions/hedgerow-steer", "systemd/system/hedgerowd.service", "systemd/system/hedgerowd@.service",
                 "systemd/system/hedgerow-steer@.service", "systemd/system/hedgerow-steer-adopt@.service", "hedgerow/examples/steer.conf", "sysusers.d/hedgerow.conf",
                 "tmpfiles.d/hedgerow.conf", "needrestart/conf.d/hedgerow.conf", "hedgerow/examples/hedgerow.yaml", "hedgerow/examples/hedgerow-gateway.yaml", "man5/hedgerow.yaml.5.gz", "systemd/network/10-hedgerow.network",
                 "NetworkManager/conf.d/hedgerow.conf", "logrotate.d/hedgerow", "man8/hedgerow.8.gz", "man8/hedgerowd.8.gz", "completions/hedgerow"},
    "hedgerow-node": {"usr/bin/hedgerow-node", "systemd/system/hedgerow-node.service", "sysusers.d/hedgerow-node.conf",
                      "tmpfiles.d/hedgerow-node.conf", "needrestart/conf.d/hedgerow-node.conf", "hedgerow-node/examples/node.yaml", "man5/node.yaml.5.gz", "man8/hedgerow-node.8.gz", "completions/hedgerow-node"},
    "hkv": {"usr/bin/hkv", "hkv/examples/store.py", "dist-packages/hkv.py", "man1/hkv.1.gz", "completions/hkv"},
    "hedgerow-doc": {"doc/hedgerow/docs/tutorial.md", "hedgerow/hedgerow.rules.yml", "hedgerow/hedgerow-nodes.json", "hedgerow/hedgerow-steer.json"},
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict[str, Path]:
    return of_this_run(tmp_path_factory.mktemp("packages"))


def test_each_package_has_its_programs_units_pages_and_completions(packages):
    assert packages.keys() == CONTENTS.keys()
    version = re.search(r"VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8").split("project(")[1])[1]
    for name, path in packages.items():
        held = subprocess.run(["dpkg-deb", "--contents", path], capture_output=True, text=True, check=True, timeout=300).stdout
        assert {each for each in CONTENTS[name] if not re.search(rf"{re.escape(each)}$", held, re.MULTILINE)} == set(), held
        field = subprocess.run(["dpkg-deb", "--field", path, "Version"], capture_output=True, text=True, check=True, timeout=300)
        assert field.stdout.strip() == version, "debian/changelog and CMakeLists.txt name the same version"


def test_lintian_has_no_complaint_that_is_not_listed(packages):
    done = subprocess.run(["lintian", "--fail-on", "error,warning", "--suppress-tags-from-file", ROOT / "debian/lintian-allowed",
                           *packages.values()], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_build_makes_the_same_bytes(packages, tmp_path):
    again = make(tmp_path)
    for name, path in packages.items():
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(again[name].read_bytes()).digest(), name


def test_the_programs_name_no_folder_of_the_machine_that_built_them(packages, tmp_path):
    for name in ("hedgerow", "hedgerow-node", "hkv"):
        subprocess.run(["dpkg-deb", "--extract", packages[name], tmp_path], check=True, timeout=300)
    for program in (tmp_path / "usr/bin").iterdir():
        assert str(ROOT).encode() not in program.read_bytes(), program.name
