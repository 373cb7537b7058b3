# SPDX-License-Identifier: Apache-2.0
"""Which seeds are run, what is concluded from them: without a machine."""

import argparse
import dataclasses
from pathlib import Path

import pytest

from bench.outcome import Results
from dst import __main__ as command
from dst.plan import draw
from dst.run import Outcome


def _outcome(seed: int, *violations: str, kernel_events: int = 1, digest: str = "d") -> Outcome:
    plan = dataclasses.replace(draw(seed), offloads="on")
    return Outcome(plan, digest, violations, 1.0, {"kernel_events": kernel_events})


class _Job:
    def __init__(self, bad: int | None = None):
        self.bad, self.ran = bad, []

    def run(self, seed: int) -> Outcome:
        self.ran.append(seed)
        return _outcome(seed, *(("lost",) if seed == self.bad else ()))


@pytest.mark.parametrize("text, wanted", [("0..0", [0]), ("3..6", [3, 4, 5, 6])])
def test_both_ends_are_meant(text, wanted):
    assert list(command._seeds(text)) == wanted


@pytest.mark.parametrize("text", ["5", "6..5", "-1..2", "a..b", "1..2..3"])
def test_anything_else_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        command._seeds(text)


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_every_seed_is_run_once(jobs):
    job = _Job(bad=2)
    assert sorted(each.plan.seed for each in command._run_all(job, range(5), jobs, until_found=False)) == [0, 1, 2, 3, 4]
    assert sorted(job.ran) == [0, 1, 2, 3, 4]


def test_a_bug_that_is_found_ends_the_search():
    job = _Job(bad=2)
    found = list(command._run_all(job, range(100), 1, until_found=True))
    assert [each.plan.seed for each in found] == [0, 1, 2]


@pytest.mark.parametrize("outcomes, bug, met", [
    ([_outcome(0), _outcome(1)], "", True),
    ([_outcome(0), _outcome(1, "lost")], "", False),
    ([_outcome(0, kernel_events=0)], "", False),
    ([_outcome(0), _outcome(1, "lost")], "no_fence", True),
    ([_outcome(0)], "no_fence", False)])
def test_what_must_be_shown(outcomes, bug, met):
    assert all(check.met for check in command._checks(outcomes, bug, False)) == met


@pytest.mark.parametrize("digests, wanted", [(("a", "a"), ()), (("a", "b"), ("two runs differ: diary.txt, line 1: b'a' and b'b'",))])
def test_a_second_run_with_other_bytes_is_a_violation(tmp_path, monkeypatch, digests, wanted):
    left = iter(digests)

    def run_seed(kernel, base, plan, files: Path, bug):
        files.mkdir(parents=True)
        digest = next(left)
        (files / "diary.txt").write_text(digest, encoding="ascii")
        return _outcome(plan.seed, digest=digest)

    monkeypatch.setattr(command, "run_seed", run_seed)
    job = command.Job(kernel=None, base=tmp_path, results=Results("dst", tmp_path), bug="", keep=False, twice=True)
    assert job.run(4).violations == wanted
    assert job.folder(4).exists() == bool(wanted), "what is wrong is kept, and nothing else"
    job.results.write_summary({}, [], [])
    assert job.folder(4) == tmp_path / "raw" / "seed-4" and job.folder(4).exists() == bool(wanted)
