# SPDX-License-Identifier: Apache-2.0
"""The kernel programs fit the kernel's stack with every clang that Hedgerow's distributions have.

A newer clang makes other frames: with clang 18 and 19 one program was beyond the limit, and no kernel loaded it. The frames are
added up as Linux 6.1 does. Newer kernels round up to 16 bytes where they compile programs to machine code."""

import functools
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT_BYTES = 512  # MAX_BPF_STACK: of all frames of a chain of calls
ROUNDED_TO_BYTES = 32
# As in cmake/hedgerow_bpf.cmake. Without -g clang 14 crashes over -fstack-usage.
FLAGS = ("-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11", "-D__TARGET_ARCH_x86", f"-I{ROOT}",
         "-isystem", f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}")
PROGRAMS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "bpf").rglob("*.bpf.c"))
# The distribution's own, which makes what ships, and the newest (packages.tsv).
COMPILERS = [name for name in ("clang", "clang-19") if shutil.which(name)]


def test_one_of_the_newer_compilers_is_tried():
    version = subprocess.run([COMPILERS[-1], "--version"], check=True, capture_output=True, text=True, timeout=30).stdout
    assert int(re.search(r"clang version (\d+)", version)[1]) >= 18, f"install clang-19 (`./dev test` does): {version}"


def frames_of(usage: str) -> dict[str, int]:
    """Bytes by function, of a file that -fstack-usage wrote."""
    return {name: int(size) for name, size in re.findall(r":(\w+)\t(\d+)\t", usage)}


def calls_of(assembly: str) -> dict[str, set[str]]:
    """The program's own functions that a function calls. A callback of bpf_loop is taken by its address."""
    calls: dict[str, set[str]] = {}
    function = ""
    for line in assembly.splitlines():
        if label := re.match(r"([a-z]\w*):", line):
            function = label[1]
            calls[function] = set()
        elif called := re.match(r"\s+(?:call ([a-z_]\w*)$|r\d = ([a-z_]\w*) ll$)", line):
            calls.setdefault(function, set()).add(called[1] or called[2])
    return calls


def deepest(frames: dict[str, int], calls: dict[str, set[str]]) -> tuple[int, list[str]]:
    """Bytes of the deepest chain of calls, and its functions with their frames."""

    @functools.cache
    def below(function: str) -> tuple[int, tuple[str, ...]]:
        own = -(-max(frames[function], 1) // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES
        depth, chain = max((below(name) for name in calls.get(function, ()) if name in frames), default=(0, ()))
        return own + depth, (f"{function}({frames[function]})", *chain)

    depth, chain = max(below(function) for function in frames)
    return depth, list(chain)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_chain_of_calls_takes_more_stack_than_the_kernel_has(program, compiler, tmp_path):
    assembly = tmp_path / "program.s"
    subprocess.run([compiler, *FLAGS, "-fstack-usage", "-S", program, "-o", assembly], cwd=ROOT, check=True, timeout=120)
    depth, chain = deepest(frames_of(assembly.with_suffix(".su").read_text(encoding="ascii")), calls_of(assembly.read_text(encoding="utf-8")))
    assert depth <= LIMIT_BYTES, f"{depth} bytes: {' -> '.join(chain)}"


def test_a_chain_is_as_deep_as_its_frames_rounded_up():
    frames = frames_of("a.c:1:outer\t392\tstatic\na.c:2:middle\t24\tstatic\na.c:3:leaf\t112\tstatic\na.c:4:step\t0\tstatic\n")
    calls = calls_of("outer:   # @outer\n\tcall middle\n\tcall 5\nmiddle:\n\tcall leaf\nLBB1_2:\n\tr2 = step ll\n\tr1 = a_map ll\nleaf:\n\texit\n")
    assert calls == {"outer": {"middle"}, "middle": {"leaf", "step", "a_map"}, "leaf": set()}
    assert deepest(frames, calls) == (576, ["outer(392)", "middle(24)", "leaf(112)"])
