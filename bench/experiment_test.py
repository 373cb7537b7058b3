# SPDX-License-Identifier: Apache-2.0
"""What experiments say while they run: how many runs are done, and how long the others will take."""

import argparse

import pytest

from bench import experiment


def test_what_is_left_takes_as_long_as_what_is_done(monkeypatch, capsys):
    now_s = [1000.0]
    monkeypatch.setattr(experiment.time, "monotonic", lambda: now_s[0])
    progress = experiment.Progress(3)
    for passed_s in (600.0, 300.0, 60.0):
        now_s[0] += passed_s
        progress.done(f"took {passed_s:.0f} s")
    assert capsys.readouterr().out.splitlines() == [
        "[1/3, 20 min left] took 600 s", "[2/3, 8 min left] took 300 s", "[3/3, 0 min left] took 60 s"]


def test_names_that_are_not_known_are_refused():
    names = experiment.some_of(["a", "b"])
    assert names("b,a") == ["b", "a"]
    with pytest.raises(argparse.ArgumentTypeError, match="'c' is none of a, b"):
        names("a,c")
