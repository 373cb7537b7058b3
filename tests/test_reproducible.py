# SPDX-License-Identifier: Apache-2.0
"""A build says nothing of the folder that it was made in: what is compiled in the tree, and in the same tree under another path, both
without the compiler's cache, is the same to the byte. (debian/packages_test.py makes the packages of one build twice.)"""

import json
import re
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
BUILD = PROJECT / "build" / "release"
# A source whose asserts name files, and a kernel program with its types.
OUTPUTS = ("operate/CMakeFiles/operate_log.dir/log.cc.o", "bpf/proxy_reply.bpf.o")


@pytest.fixture(scope="module")
def commands() -> dict[str, str]:
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "compdb"], capture_output=True, text=True, check=True, timeout=60)
    return {each["output"]: each["command"] for each in json.loads(done.stdout)}


def compiled(command: str, output: str, tree: Path, into: Path) -> bytes:
    """In a mount namespace in which `tree` is the project, too. Without the precompiled header, which is a cache."""
    command = re.sub(r" -include-pch \S+", "", command.split(" && /usr/bin/cmake -E cmake_transform_depfile")[0])
    command = re.sub(r" -M[DFT]+(?: [^- ]\S*)?", "", command).replace(f"-o {BUILD}/{output}", f"-o {into}").replace(f"-o {output}", f"-o {into}")
    command = command.replace(str(PROJECT), str(tree))
    script = f"mkdir -p {tree} && {{ [ {tree} = {PROJECT} ] || mount --bind {PROJECT} {tree}; }} && cd {tree}/build/release && {command}"
    subprocess.run(["unshare", "--mount", "sh", "-c", script], check=True, timeout=300, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "CCACHE_DISABLE": "1"})
    return into.read_bytes()


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: Path(output).name)
def test_an_object_does_not_know_its_folder(commands, tmp_path, output):
    here = compiled(commands[output], output, PROJECT, tmp_path / "here.o")
    assert here == compiled(commands[output], output, tmp_path / "elsewhere", tmp_path / "there.o")
    assert str(PROJECT).encode() not in here


def test_a_folder_that_is_kept_is_found(commands, tmp_path):
    kept = commands[OUTPUTS[0]].replace(f"-ffile-prefix-map={PROJECT}/=", "")
    assert kept != commands[OUTPUTS[0]]
    assert compiled(kept, OUTPUTS[0], PROJECT, tmp_path / "here.o") != compiled(kept, OUTPUTS[0], tmp_path / "elsewhere", tmp_path / "there.o")
