# SPDX-License-Identifier: Apache-2.0
"""Walks the tutorial (docs/tutorial.md) as a new operator would: runs every command of it, in order, in one shell, and compares
what is said with what the tutorial prints. So the tutorial cannot say what does not work.

A fence ```sh is run; a ```text fence behind it is what it prints. Figures are no difference; lines that are missing are. Of a fence
```text like only the first word of each line must be said: what follows depends on the machine. `--write` puts what was really said into the tutorial. Run by `./dev walk`, in a bare
system by `./dev walk --bare`, and in short by tests/e2e/test_tutorial.py.
"""

import argparse
import dataclasses
import re
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
TAG = "tutorial"  # of the lab, the instance and its files, as the tutorial writes them
_FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.S | re.M)
_BUILD, _CLEAN_UP = "build", "clean-up"


@dataclasses.dataclass
class Step:
    commands: str
    label: str  # what stands behind ```sh: build, clean-up or nothing
    printed: str | None = None  # the ```text behind it
    loosely: bool = False
    place: tuple[int, int] | None = None  # of that text in the file


def steps_of(text: str) -> list[Step]:
    steps: list[Step] = []
    for match in _FENCE.finditer(text):
        language, label, body = match.group(1), match.group(2) or "", match.group(3)
        if language == "sh":
            steps.append(Step(body, label))
        elif language == "text":
            if not steps or steps[-1].printed is not None:
                raise ValueError(f"a ```text fence that belongs to no command:\n{body}")
            steps[-1].printed, steps[-1].place, steps[-1].loosely = body, match.span(3), label == "like"
    if not steps:
        raise ValueError("no ```sh fence")
    return steps


def normal(line: str) -> str:
    """The line without what differs from run to run: figures with their units, and spacing."""
    line = re.sub(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", "MAC", line)
    line = re.sub(r"\d[\d.,:]*(?:e[+-]?\d+)?", "0", line)
    line = re.sub(r"\b0 ?(?:ns|us|ms|s|B|kB|MB|min|h|d|msec|ppm|%)(?=\W|$)", "0", line)
    return re.sub(r"\s+", " ", line).strip()


def missing_lines(printed: str, said: str, loosely: bool = False) -> list[str]:
    """Lines that the tutorial prints and the commands did not say, in this order. `...` stands for any lines."""
    def told(line: str) -> str:
        return (normal(line).split() or [""])[0] if loosely else normal(line)

    heard = iter([told(line) for line in said.splitlines()])
    missing = []
    for line in printed.splitlines():
        wanted = told(line)
        if wanted in ("", "..."):
            continue
        rest = list(heard)
        if wanted in rest:
            heard = iter(rest[rest.index(wanted) + 1:])
        else:
            missing.append(line)
            heard = iter(rest)
    return missing


class Shell:
    """One bash for all steps, so that variables, functions and the working folder live on, as in a terminal."""

    def __init__(self, folder: Path, within: tuple[str, ...] = ()):
        """`within`: a command that runs the shell, given as its further words."""
        self._bash = subprocess.Popen([*within, "bash", "--noprofile", "--norc"], cwd=folder, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, commands: str) -> tuple[int, str]:
        """Exit status of the last command that failed (0: none did), and all that was said."""
        mark = f"--{uuid.uuid4().hex}--"
        # In the shell itself, not in a subshell; commands that read their input must not read the rest of the script.
        script = (f"set -E; trap '__failed=$?' ERR; __failed=0\neval \"$(cat <<'{mark}'\n{commands}\n{mark}\n)\" </dev/null\n"
                  f"echo; echo {mark} $__failed\n")
        self._bash.stdin.write(script)
        self._bash.stdin.flush()
        said = []
        for line in self._bash.stdout:
            if line.startswith(mark):
                if said and said[-1] == "\n":
                    said.pop()
                return int(line.split()[1]), "".join(said)
            said.append(line)
        return self._bash.wait(), "".join(said)

    def close(self) -> None:
        self._bash.stdin.close()
        self._bash.wait(30)
        self._bash.stdout.close()


def walk(text: str, *, tag: str = TAG, build: bool = True, say=print, within: tuple[str, ...] = ()) -> tuple[list[str], dict[tuple[int, int], str]]:
    """What went wrong, and what was said at the place of every ```text. After a failure only the clean-up is run."""
    wrong: list[str] = []
    outputs: dict[tuple[int, int], str] = {}
    shell = Shell(ROOT, within)
    try:
        for step in steps_of(text):
            if (step.label == _BUILD and not build) or (wrong and step.label != _CLEAN_UP):
                continue
            say("".join(f"$ {line}\n" for line in step.commands.splitlines()), end="")
            status, said = shell.run(re.sub(rf"\b{TAG}\b", tag, step.commands))
            said = re.sub(rf"\b{tag}\b", TAG, said)
            say(said, end="", flush=True)
            if status != 0:
                wrong.append(f"exit {status}:\n{step.commands}{said}")
            if step.place is not None:
                outputs[step.place] = said
                wrong += [f"not said: {line}\nby:\n{step.commands}what was said:\n{said}"
                          for line in missing_lines(step.printed, said, step.loosely)]
    finally:
        shell.close()
    return wrong, outputs


def with_outputs(text: str, outputs: dict[tuple[int, int], str]) -> str:
    for (begin, end), said in sorted(outputs.items(), reverse=True):
        text = text[:begin] + said + ("" if said.endswith("\n") or not said else "\n") + text[end:]
    return text


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev walk", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put what is said into docs/tutorial.md")
    parser.add_argument("--no-build", action="store_true", help="leave out the steps that install and build")
    parser.add_argument("--tag", default=TAG, help="another name for the lab and the instance than the tutorial's")
    arguments = parser.parse_args(argv)
    text = TUTORIAL.read_text(encoding="utf-8")
    wrong, outputs = walk(text, tag=arguments.tag, build=not arguments.no_build)
    if arguments.write:
        TUTORIAL.write_text(with_outputs(text, outputs), encoding="utf-8")
    for fault in wrong:
        print(f"\nWRONG: {fault}", file=sys.stderr)
    print(f"\nwalk: {'everything is as the tutorial says' if not wrong else f'{len(wrong)} faults'}")
    return 1 if wrong and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
