# SPDX-License-Identifier: Apache-2.0
"""Finds the places in which a program makes system calls, and makes a call fail in one of them: strace of Debian does both.

A place is a call with what it is called with (numbers left out), and which time it is in its thread: the first, second, fourth, ... such call
is one. strace counts for each thread, so a fault may hit several threads in the same run. Its stacks (`-k`) would name the caller, and
take 34 ms for each call, which no program that keeps a time bears.
"""

import dataclasses
import re
import shutil
from collections import Counter
from pathlib import Path

from deploy.lab.programs import binary
from faults.errnos import OF_CALL, ONLY_ONCE, of

ONCE, FROM_THEN_ON = "once", "from then on"
_CALL = re.compile(r"^(\d+) +([a-z]\w*)\((.*)")
_FILE = re.compile(r"\d+<(/[^>]*)>")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
# Of these the descriptor says where they are; what is read and written differs from time to time.
_BY_DESCRIPTOR = re.compile(r"read|write|recv|poll|epoll|fcntl|pread|pwrite|getdents")
_CHILD = re.compile(r" (?:vfork\(|<\.\.\. vfork|clone3?\((?!.*CLONE_THREAD)|<\.\.\. clone |<\.\.\. clone3 (?!.*parent_tid)).* = (\d+)$")
_LIBRARY = re.compile(r'(?:openat\(.*|\w+\(\d+<[^>]*)\.so\b')
_MODULE = re.compile(r'openat\(.*\.pyc?"')  # of Python, whose start is long


@dataclasses.dataclass(frozen=True)
class Place:
    life: str
    call: str
    where: str
    nth: int
    file: str = ""  # the descriptor's, where it is one


@dataclasses.dataclass(frozen=True)
class Fault:
    place: Place
    errno: str
    how: str

    def __str__(self) -> str:
        return f"{self.place.life}: {self.errno} {self.how} of {self.place.call}({self.place.where} (call {self.place.nth} of its thread)"


def strace() -> str:
    """An error, and no skip: without it nothing here is tried."""
    if (found := shutil.which("strace")) is None:
        raise RuntimeError("strace is missing: `./dev deps`, or apt-get install strace")
    return found


def _command(trace: Path, calls: str, *options: str) -> list[str]:
    """To stand before the program's command line: the program keeps the pid, and strace stays out of its process group."""
    return [strace(), "-DDD", "-f", "-q", "-y", "--seccomp-bpf", "-A", "-o", str(trace), "-e", f"trace={calls}", "-e", "signal=none", *options]


def recording(trace: Path) -> list[str]:
    return _command(trace, ",".join(f"?{call}" for call in (*OF_CALL, "execve")))


def short_writes() -> list[str]:
    """To stand before the program's command line: the kernel takes half of each write, and nothing may be wrong."""
    return ["env", f"LD_PRELOAD={binary('hr-short_writes.so')}"]


def injecting(fault: Fault, trace: Path) -> list[str]:
    """A file that fails from then on does so alone: events and connections are read and written by the same calls."""
    place = fault.place
    of_file = ("-P", place.file) if place.file and fault.how == FROM_THEN_ON else ()
    when = "1+" if of_file else f"{place.nth}{'+' if fault.how == FROM_THEN_ON else ''}"
    return _command(trace, place.call, *of_file, "-e", f"inject={place.call}:error={fault.errno}:when={when}")


def plants(trace: Path, tag: str) -> dict[str, tuple[str, list[str]]]:
    """Mistakes on purpose, each with the life that must show it: a bind whose failure is taken for success, a loop that waits while its log
    cannot be written, a temporary file that is left in the folder of locks."""
    return {"unchecked-bind": ("hedgerow-node", _command(trace, "bind", "-e", "inject=bind:retval=0:when=3")),
            "blocking-log": ("hedgerowd", _command(trace, "epoll_wait", "-e", "inject=epoll_wait:delay_enter=12s:when=2+")),
            "left-file": ("hedgerowd", ["sh", "-c", f'touch /run/hedgerow/{tag}.unfinished; exec "$@"', "sh"])}


def is_hit(fault: Fault, trace: Path) -> bool:
    """Whether a call of the fault's kind failed; of bpf(2) no other, for it is one that cannot fail so."""
    lines = [line for line in trace.read_text(errors="replace").splitlines() if "(INJECTED)" in line] if trace.exists() else []
    are = [_key(call[2], call[3])[:40] == fault.place.where[:40] for call in map(_CALL.match, lines) if call]
    return all(are) if are and fault.place.call == "bpf" else any(are)


def _key(call: str, arguments: str) -> str:
    arguments = _NUMBER.sub("", re.sub(r" <unfinished \.\.\.>|\) += .*", "", arguments))
    return arguments.split(",", 1)[0] if _BY_DESCRIPTOR.match(call) else arguments[:120]


def places(life: str, trace: Path) -> list[Place]:
    """In their order. Until the loader has found its libraries there is no program that could do something about a fault."""
    lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
    loaded: dict[str, int] = {}  # by process
    seen: Counter[str] = Counter()
    programs: Counter[str] = Counter()
    for number, line in enumerate(lines):
        pid = line.split(None, 1)[0]
        seen[pid] += 1
        programs[pid] += " execve(" in line and line.endswith(" = 0")
        if programs[pid] < 2 and (_MODULE.search(line) or (seen[pid] < 300 and _LIBRARY.search(line))):
            loaded[pid] = number
    of_thread: Counter[tuple[str, str]] = Counter()
    of_place: Counter[tuple[str, str]] = Counter()
    of_loader: Counter[str] = Counter()
    became: Counter[str] = Counter()
    found, children, loader = [], set(), ""
    for number, line in enumerate(lines):
        if child := _CHILD.search(line):
            children.add(child[1])
        pid = line.split(None, 1)[0]
        became[pid] += " execve(" in line and line.endswith(" = 0")
        if pid in children or became[pid] > 1:
            continue  # another program's
        if (call := _CALL.match(line)) is None or call[2] not in OF_CALL:
            continue
        of_thread[call[1], call[2]] += 1
        if number <= loaded.get(call[1], -1):
            if call[1] != loader:
                loader, of_loader = call[1], Counter()
            of_loader[call[2]] += 1
        # Where the ordinal is one of the loader's, its call would fail.
        if of_thread[call[1], call[2]] <= of_loader[call[2]]:
            continue
        where = _key(call[2], call[3])
        of_place[call[2], where] += 1
        times = of_place[call[2], where]
        if times & (times - 1) == 0:
            file = _FILE.match(call[3])
            found.append(Place(life, call[2], where, of_thread[call[1], call[2]], file[1] if file and _BY_DESCRIPTOR.match(call[2]) else ""))
    return found


def faults_at(found: list[Place]) -> list[Fault]:
    """bpf(2) fails once: from then on other commands, which cannot fail so, would as well."""
    return [Fault(place, errno, how) for place in found for errno in of(place.call, place.where)
            for how in ((ONCE,) if errno in ONLY_ONCE or place.call == "bpf" else (ONCE, FROM_THEN_ON))]
