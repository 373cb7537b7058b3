# SPDX-License-Identifier: Apache-2.0
"""Two judgements of one history: by hr-kv-check, our own checker, and by porcupine, which others wrote and which shares
nothing with it (chaos/porcupine). A history is linearizable only if both say so; one that porcupine refuses, or for which
its time does not suffice, is not. Called by block.py after each block, and by the demo, which asks ours alone.
"""

import gzip
import json
import shutil
import subprocess
import time
from pathlib import Path

from bench.manifest import binary
from deploy.dev import temporary
from deploy.lab import CommandFailed

CHECKERS = ("hr-kv-check", "hr-porcupine")
_OURS_WITHIN_S = 120.0
PORCUPINE_WITHIN_S = 120.0
_VIOLATED, _REFUSED, _TIMED_OUT = 1, 2, 3  # exit statuses of hr-porcupine


def require_checkers() -> None:
    """Ends the run, with the reason, where one of them is missing: better before an hour than after it."""
    for name in CHECKERS:
        try:
            binary(name)
        except FileNotFoundError as error:
            raise SystemExit(f"{error}\nBoth checkers are needed to call a history linearizable; ./dev build tries "
                                "again") from error


def judge(history: Path, final: Path) -> dict:
    """Ours: what is lost and what was done twice, in numbers."""
    done = subprocess.run([binary("hr-kv-check"), history, final], capture_output=True, text=True, check=False,
                          timeout=_OURS_WITHIN_S)
    if done.returncode not in (0, 1):
        raise CommandFailed(f"hr-kv-check {history} {final}: {done.stderr}")
    return json.loads(done.stdout)


def judge_twice(history: Path, final: Path, porcupine_within_s: float = PORCUPINE_WITHIN_S) -> dict:
    """Ours, with porcupine's under `porcupine`. `linearizable`: both say so. `agreed`: both say the same."""
    begin_s = time.monotonic()
    ours = judge(history, final)
    ours_s = time.monotonic() - begin_s
    theirs = _porcupine(history, final, porcupine_within_s)
    return {**ours, "linearizable": ours["linearizable"] and theirs["says"] == "linearizable",
            "agreed": theirs["says"] == ("linearizable" if ours["linearizable"] else "violated"),
            "violations": ours["violations"] + theirs["objections"],
            "checkers": {"hr-kv-check": {"says": "linearizable" if ours["linearizable"] else "violated",
                                         "seconds": ours_s}, "porcupine": theirs}}


def judge_kept(history: Path) -> dict:
    """judge_twice() of a history that was kept compressed, NAME.csv.gz, with its final reads beside it, NAME-final.csv.gz."""
    require_checkers()
    with temporary.folder("judge") as folder:
        files = [Path(folder, "history.csv"), Path(folder, "final.csv")]
        for kept, plain in zip((history, final_kept(history)), files, strict=True):
            with gzip.open(kept) as packed, open(plain, "wb") as out:
                shutil.copyfileobj(packed, out)
        return judge_twice(*files)


def final_kept(history: Path) -> Path:
    return history.with_name(history.name.replace(".csv.gz", "-final.csv.gz"))


def holds(verdict: dict) -> bool:
    return verdict["linearizable"] and verdict["agreed"] and verdict["acked_lost"] == verdict["double_applied"] == 0


def _porcupine(history: Path, final: Path, within_s: float) -> dict:
    begin_s = time.monotonic()
    # It ends by itself when its time is up; the reading of the files is not in that.
    done = subprocess.run([binary("hr-porcupine"), f"--timeout={within_s:g}s", history, final], capture_output=True,
                          text=True, check=False, timeout=within_s + 60)
    seconds = time.monotonic() - begin_s
    complaint = done.stderr.strip().removeprefix("hr-porcupine: ")
    if done.returncode == _REFUSED:
        return {"says": "refused", "seconds": seconds, "objections": [f"porcupine: refused: {complaint}"]}
    if done.returncode not in (0, _VIOLATED, _TIMED_OUT):
        raise CommandFailed(f"hr-porcupine {history} {final}: exit {done.returncode}\n{done.stderr}")
    found = json.loads(done.stdout)
    says = {0: "linearizable", _VIOLATED: "violated", _TIMED_OUT: "undecided"}[done.returncode]
    objections = [f"porcupine: {text}" for text in found["violations"]]
    if found["undecided"]:
        objections.append(f"porcupine: {complaint}")
    return {"says": says, "seconds": seconds, "objections": objections, "version": found["version"],
            "most_outstanding": found["most_outstanding"], "open": found["open"]}
