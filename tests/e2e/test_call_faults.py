# SPDX-License-Identifier: Apache-2.0
"""System calls fail in the lives of the programs (tests/faults): a drawn sample, and mistakes on purpose that must be found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def faults(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "faults", *words], cwd=PROJECT, env={**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)  # with the seed
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_a_drawn_sample_of_calls_that_fail():
    """Always the same, so that what is new in it is the change's; HEDGEROW_FAULTS_SEED draws another."""
    seed = os.environ.get("HEDGEROW_FAULTS_SEED", "1")
    assert faults("--seed", seed, "--seconds", "60").count(" tried, ") == 2


@pytest.mark.long
def test_mistakes_on_purpose_are_found():
    assert faults("--plant").count("found plant") == 3


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_every_call_that_fails():
    faults("--all")
