# SPDX-License-Identifier: Apache-2.0
"""Both checkers on the same histories: by hand, and of a store of a few lines that is made to err at random. They share
nothing, so that they agree on thousands of operations says something about both. What porcupine will not or cannot
decide is never called linearizable.
"""

import dataclasses
import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.cell import judged_again
from chaos.judgement import CHECKERS, judge_twice, require_checkers
from deploy.lab import CommandFailed
from tests import needs


_HEADER = "client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts\n"
_END = 1_000_000  # of all histories here; the final reads come after it


@dataclasses.dataclass
class Op:
    kind: str  # i, c, p, g as in chaos/load/history_file.h
    value: int
    sent: int
    ended: int
    ending: str = "ok"
    key: int = 0

    def line(self) -> str:
        return f"0,{self.kind},{self.key},{self.value},{self.sent},{self.sent},{self.ended},{self.ending},1\n"


def judged(folder: Path, history: list[Op], *, counter: int | None = None, register: int | None = None, **options) -> dict:
    finals = [Op(kind, value, _END, _END + 1) for kind, value in (("c", counter), ("g", register)) if value is not None]
    files = folder / "history.csv", folder / "final.csv"
    for file, ops in zip(files, (history, finals), strict=True):
        file.write_text(_HEADER + "".join(op.line() for op in ops), encoding="ascii")
    return judge_twice(*files, **options)


_GOOD = {
    "nothing but answers": ([Op("i", 1, 1, 2), Op("i", 2, 3, 4), Op("c", 2, 5, 6)], {"counter": 2}),
    "an increment without an answer that was done": ([Op("i", 0, 1, 9, "timed_out"), Op("i", 2, 3, 4)], {"counter": 2}),
    "one that was not": ([Op("i", 0, 1, 9, "error"), Op("i", 1, 3, 4)], {"counter": 1}),
    "a put without an answer that came last": ([Op("p", 7, 1, 9, "timed_out"), Op("p", 8, 3, 4)], {"register": 7}),
    "reads of two puts at once": ([Op("p", 7, 1, 9), Op("p", 8, 2, 9), Op("g", 8, 3, 4), Op("g", 7, 5, 6)], {"register": 7}),
}
_BAD = {
    "lost increment": ([Op("i", 1, 1, 2), Op("i", 2, 3, 4)], {"counter": 1}),
    "increment applied twice": ([Op("i", 1, 1, 2), Op("i", 3, 3, 4)], {"counter": 3}),
    "the same answer twice": ([Op("i", 1, 1, 2), Op("i", 1, 3, 4)], {"counter": 2}),
    "lost put": ([Op("p", 7, 1, 2), Op("p", 8, 3, 4)], {"register": 7}),
    "stale read": ([Op("p", 7, 1, 2), Op("p", 8, 3, 4), Op("g", 7, 5, 6)], {"register": 8}),
    "stale read of a counter": ([Op("i", 1, 1, 2), Op("c", 0, 3, 4)], {"counter": 1}),
    "read of what was not yet put": ([Op("g", 7, 1, 2), Op("p", 7, 3, 4)], {"register": 7}),
    "value out of nowhere": ([Op("p", 7, 1, 2), Op("g", 9, 3, 4)], {"register": 7}),
    "back and forth": ([Op("p", 7, 1, 9), Op("p", 8, 2, 9), Op("g", 8, 3, 4), Op("g", 7, 5, 6), Op("g", 8, 7, 8)],
                       {"register": 8}),
}


@needs.JUDGES
@pytest.mark.parametrize("name", _GOOD)
def test_both_find_a_good_history_linearizable(name, tmp_path):
    history, final = _GOOD[name]
    verdict = judged(tmp_path, history, **final)
    assert verdict["linearizable"] and verdict["agreed"] and not verdict["violations"], verdict
    assert set(verdict["checkers"]) == {"hr-kv-check", "porcupine"}
    assert all(found["seconds"] > 0 for found in verdict["checkers"].values())


@needs.JUDGES
@pytest.mark.parametrize("name", _BAD)
def test_both_see_a_planted_fault(name, tmp_path):
    history, final = _BAD[name]
    verdict = judged(tmp_path, history, **final)
    assert not verdict["linearizable"] and verdict["agreed"], verdict
    ours, theirs = verdict["violations"]
    assert theirs.startswith("porcupine: ") and not ours.startswith("porcupine: ")


def store_run(seed: int, errs: float) -> tuple[list[Op], int, int]:
    """What clients see of a counter and a register, each operation taking effect at an instant of its own. `errs`: how
    often the store does something wrong: loses a write, does it twice, or answers a read with an older value."""
    rng, history, count, values, open_writes = random.Random(seed), [], 0, [0], {"i": 0, "p": 0}
    for number in range(1, 61):
        kind, now, wrong = rng.choice("icpg"), 100 + 10 * number, rng.random() < errs
        op = Op(kind, 0, now - rng.randint(1, 25), now + rng.randint(1, 25))
        unknown = kind in "ip" and rng.random() < 0.15 and open_writes[kind] < 2
        times = rng.choice((0, 2)) if wrong else 1
        if unknown:
            op.ending, open_writes[kind] = rng.choice(("timed_out", "error")), open_writes[kind] + 1
            times = times if wrong else rng.choice((0, 1))
        if kind == "i":
            count += times
            op.value = 0 if unknown else count + (times == 0)
        elif kind == "p":
            op.value = number
            values += [number] * min(times, 1)
        elif kind == "c":
            op.value = max(0, count - wrong)
        else:
            op.value = values[-2] if wrong and len(values) > 1 else values[-1]
        history.append(op)
    return history, count, values[-1]


@needs.JUDGES
def test_they_agree_on_random_histories_good_and_damaged(tmp_path):
    found = {True: 0, False: 0}
    for seed in range(120):
        history, count, value = store_run(seed, errs=(0, 0.02, 0.08)[seed % 3])
        verdict = judged(tmp_path, history, counter=count, register=value)
        assert verdict["agreed"], f"seed {seed}: {verdict}"
        found[verdict["linearizable"]] += 1
        assert verdict["linearizable"] or seed % 3, f"seed {seed} has no fault: {verdict}"
    assert min(found.values()) > 30, found


@needs.JUDGES
def test_what_porcupine_refuses_is_not_called_linearizable(tmp_path):
    verdict = judged(tmp_path, [Op("p", number, number, 100) for number in range(1, 10)], register=9)
    assert verdict["checkers"]["hr-kv-check"]["says"] == "linearizable"
    assert verdict["checkers"]["porcupine"]["says"] == "refused"
    assert not verdict["linearizable"] and not verdict["agreed"]
    assert "register0 has 9 operations outstanding" in verdict["violations"][0]


@needs.JUDGES
def test_time_that_does_not_suffice_is_not_called_linearizable(tmp_path):
    history, final = _GOOD["nothing but answers"]
    verdict = judged(tmp_path, history, **final, porcupine_within_s=0)
    assert verdict["checkers"]["porcupine"]["says"] == "undecided"
    assert not verdict["linearizable"] and not verdict["agreed"] and "not decided" in verdict["violations"][0]


@needs.JUDGES
def test_files_that_say_nothing_end_the_run(tmp_path):
    with pytest.raises(CommandFailed):
        judged(tmp_path, [Op("p", 7, 1, 2)])


def test_a_checker_that_could_not_be_built_is_named_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDGEROW_BUILD_DIR", str(tmp_path))
    (tmp_path / "bin").mkdir()
    for name in CHECKERS:
        (tmp_path / "bin" / name).touch()
    require_checkers()
    (tmp_path / "bin" / "hr-porcupine").unlink()
    with pytest.raises(SystemExit, match="hr-porcupine is not built: run ./dev build"):
        require_checkers()
    (tmp_path / "bin" / "hr-porcupine.missing").write_text("hr-porcupine is not built: no network\n", encoding="ascii")
    with pytest.raises(SystemExit, match="no network"):
        require_checkers()


_KEPT = Path(__file__).with_name("testdata")  # of `hedgerow-sim --bug`: the operations on one key, of the last some values alone


def judged_by_command(folder: Path) -> tuple[int, dict]:
    done = subprocess.run([sys.executable, "-m", "report.experiments", folder], cwd=_KEPT.parents[1], capture_output=True, text=True,
                          check=False, timeout=120)
    return done.returncode, json.loads(done.stdout)


@needs.JUDGES
@pytest.mark.parametrize("name, lost", [("recover-without-tail", True), ("read-before-apply", False), ("held-copy-without-age-limit", False)])
def test_a_violation_that_a_planted_mistake_made_is_found_in_its_history(name, lost):
    status, verdict = judged_by_command(_KEPT / name)
    assert status == 1 and not verdict["linearizable"] and verdict["agreed"], verdict
    assert (verdict["acked_lost"] > 0) == lost, verdict


@needs.JUDGES
def test_a_history_without_its_violation_holds(tmp_path):
    for file, lines in (("history", [Op("p", 7, 1, 2).line()]), ("history-final", [Op("g", 7, _END, _END + 1).line()])):
        with gzip.open(tmp_path / f"{file}.csv.gz", "wt", encoding="ascii") as out:
            out.write(_HEADER + "".join(lines))
    status, verdict = judged_by_command(tmp_path)
    assert status == 0 and verdict["operations"] == 1


@needs.JUDGES
def test_a_runs_verdict_is_made_again_of_its_histories(tmp_path):
    record = {"mode": "memory", "system": "hedgerow", "round": 1, "verdict": {"linearizable": True}}
    assert judged_again(record, tmp_path) == record
    for kept in (_KEPT / "recover-without-tail").iterdir():
        shutil.copyfile(kept, tmp_path / kept.name.replace("history", "memory-hedgerow-01"))
    assert judged_again(record, tmp_path)["verdict"]["acked_lost"] > 0
