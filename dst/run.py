# SPDX-License-Identifier: Apache-2.0
"""One seed, from its plan to its verdict. Called by __main__.py and by the tests.

What a run leaves is the console and the files of the machine's /out: histories, the driver's diary, what every program
printed, statuses, the kernel's log. Their digest is the run's identity: the same seed and image must give it again.
"""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

from bench.manifest import build_dir, why_missing
from chaos.judgement import judge, judge_twice
from deploy.dev import temporary
from deploy.lab import CommandFailed
from deploy.vm import machine
from deploy.vm.kernels import Kernel
from dst import image
from dst.plan import Plan

# Of the host's time; a minute is usual, and a machine of others may be busy.
_MACHINE_WITHIN_S = 1800.0
_MEMORY_MB = 1024
_KERNEL_COMPLAINS = re.compile(r"BUG:|WARNING:|Oops|Call Trace|general protection|Out of memory|rcu_.*stall")


@dataclasses.dataclass(frozen=True)
class Outcome:
    plan: Plan
    digest: str
    violations: tuple[str, ...]
    wall_s: float
    figures: dict  # of the summary's row

    def row(self) -> dict:
        plan = self.plan
        return {"seed": plan.seed, "digest": self.digest, "violations": list(self.violations), "durability": plan.durability,
                "offloads": plan.offloads, "faults": [fault.kind for fault in plan.faults],
                "load_s": plan.load_us / 1e6, "wall_s": round(self.wall_s, 1), **self.figures}


def run_seed(kernel: Kernel, base: Path, plan: Plan, files: Path, bug: str = "") -> Outcome:
    """`base` is image.make_base()'s; what the machine leaves comes into the folder `files`, which is new."""
    files.mkdir(parents=True)
    with temporary.folder("dst") as scratch:
        archive = image.make(base, plan, build_dir(), Path(scratch), bug)
        settings = machine.Settings("det", plan.seed, memory_mb=_MEMORY_MB, timeout_s=_MACHINE_WITHIN_S)
        ended = machine.run(kernel, archive, settings, files)
    (files / "console.txt").write_text(ended.console, encoding="utf-8")
    digest = digest_of(files)
    figures = _figures(files)
    return Outcome(plan, digest, tuple(violations(files, ended)), ended.seconds, figures)


def digest_of(folder: Path) -> str:
    """Of all files below, names and bytes."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            total.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
            total.update(path.read_bytes())
    return total.hexdigest()


def first_difference(one: Path, other: Path) -> str:
    """Where two runs part, to find out why; empty where they do not."""
    names = sorted({str(path.relative_to(folder)) for folder in (one, other) for path in folder.rglob("*")
                    if path.is_file()})
    for name in names:
        if not (one / name).exists() or not (other / name).exists():
            return f"{name} is in one of them only"
        left, right = ((folder / name).read_bytes().splitlines() for folder in (one, other))
        for number, (a, b) in enumerate(zip(left, right, strict=False), start=1):
            if a != b:
                return f"{name}, line {number}: {a[:200]!r} and {b[:200]!r}"
        if len(left) != len(right):
            return f"{name} has {len(left)} and {len(right)} lines"
    return ""


def violations(files: Path, ended: machine.Outcome) -> list[str]:
    if ended.status == machine.NO_END:
        return [ended.why_not()]
    said = [line for line in ended.output.splitlines() if line]
    found = [line.removeprefix("trouble: ") for line in said if line.startswith("trouble: ")]
    if ended.status != 0 and not found:
        found.append(f"exit status {ended.status}: {' '.join(said[-3:])}")
    found += _kernel_complaints(files)
    history, final = files / "history.csv", files / "final.csv"
    if history.exists() and final.exists():
        found += _judge(history, final)
    elif not found:
        found.append("there is no history")
    if (status := _read(files / "proxy.json")) and not status["services"][0].get("identity_ok"):
        found.append("the proxy's books do not balance")
    return found


def _judge(history: Path, final: Path) -> list[str]:
    try:
        # Where Go's modules cannot be had there is our own checker alone, which __main__ says.
        verdict = judge(history, final) if why_missing("hr-porcupine") else judge_twice(history, final)
    except CommandFailed as why:
        return [str(why)]
    found = [str(each) for each in verdict["violations"]]
    found += [f"{verdict[name]} {words}" for name, words in
              (("acked_lost", "acknowledged writes are lost"), ("double_applied", "writes were applied twice")) if verdict[name]]
    return found or ([] if verdict["linearizable"] else ["the history is not linearizable"])


def _kernel_complaints(files: Path) -> list[str]:
    log = files / "dmesg.txt"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [f"the kernel says: {line}" for line in lines if _KERNEL_COMPLAINS.search(line)]


def _figures(files: Path) -> dict:
    """What a run was worth: how far it came, and what was met on the way."""
    report, proxy = _read(files / "report.json"), _read(files / "proxy.json")
    nodes = [_read(files / f"node{number}.json") for number in (1, 2, 3)]
    counters = [node.get("counters", {}) for node in nodes]
    service = (proxy.get("services") or [{}])[0]
    uptime = files / "uptime.txt"
    return {"virtual_s": float(uptime.read_text(encoding="ascii").split()[0]) if uptime.exists() else None,
            "operations": report.get("sent", 0), "ok": report.get("ok", 0), "timed_out": report.get("timed_out", 0),
            "errors": sum(report.get("errors", {}).values()),
            "term": max(int(node.get("term", 0)) for node in nodes), "hedges": int(service.get("hedges", 0)),
            # Since each node's last start: proof that the kernel's part was at work.
            "kernel_events": sum(int(value) for each in counters for key, value in each.items()
                                 if key.startswith("kernel."))}


def _read(file: Path) -> dict:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
