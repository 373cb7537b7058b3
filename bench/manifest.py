# SPDX-License-Identifier: Apache-2.0
"""What a result was measured on: kernel, processor, commit, and the hash of every configuration used.

A figure without these cannot be compared with another one, so every summary.json carries them.
"""

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from deploy.lab import programs
from deploy.lab.programs import PROJECT as ROOT, binary, build_dir, why_missing  # noqa: F401 (of a run, as what is below)


def config_hash(config: dict) -> str:
    """Equal for equal settings, whatever their order."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def at_start() -> dict:
    """What was true before the first measurement; the rest of a manifest is added at the end."""
    return {
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "clocksource": _first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        **commit(),
        "command": command(),
        "started": _now(),
        "load_average_before": os.getloadavg(),
    }


def at_end(started: dict, configs: dict[str, dict], **settings) -> dict:
    """`configs` maps config_hash to the configuration itself. `changed_meanwhile` names what was measured in two forms: the commit, or a
    program. It is empty in a manifest whose figures can be ascribed to one build."""
    now = commit()
    return {
        **started,
        "load_average": os.getloadavg(),
        "finished": _now(),
        "binaries": programs.hashes(),
        "packages": programs.packages(),
        "changed_meanwhile": [key for key in now if now[key] != started[key]] + programs.changed(),
        "configs": configs,
        **settings,
    }


# Modules that ./dev calls by another name than theirs; chaos.run takes its scenario as an argument.
_COMMANDS = {"demo.kv": ["demo"], "demo.pictures": ["pictures"], "chaos.run": ["chaos"], "dst.__main__": ["dst"]}


def command(module: str | None = None, arguments: Sequence[str] | None = None) -> str:
    """The command of ./dev that does this run again. Where it ran and where its results went is left out: it changes none of them."""
    if module is None:
        module = sys.argv[0] if sys.argv[0] in sys.modules else ""  # bench/__main__.py
    kind, _, name = module.partition(".")
    words = list(sys.argv[1:] if arguments is None else arguments)
    for option in ("--into", "--lab"):
        if option in words:
            at = words.index(option)
            del words[at:at + 2]
        words = [word for word in words if not word.startswith(f"{option}=")]
    return shlex.join(["./dev", *_COMMANDS.get(module, [kind, name.replace("_", "-")]), *words]) if name else "unknown"


def commit(apart_from: Sequence[str] = ()) -> dict:
    """`apart_from`: files and folders of the repository whose changes do not count."""
    others = ["--", ":/", *(f":(exclude,top){path}" for path in apart_from)]
    return {"commit": _git("rev-parse", "HEAD"),
            "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", *others))}


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return "unknown"


def _git(*arguments: str) -> str:
    # A root-run benchmark in another user's checkout is normal here; git would refuse to look at it.
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"  # in a machine of the lane, whose host knows it (vm_run.py)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
