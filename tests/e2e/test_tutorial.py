# SPDX-License-Identifier: Apache-2.0
"""The tutorial works as it stands, but for its first step (installing and building), which `./dev walk --bare` tries."""

import os

from deploy.dev import walk


def test_every_step_of_the_tutorial_says_what_it_prints():
    wrong, _ = walk.walk(walk.TUTORIAL.read_text(encoding="utf-8"), tag=f"tut{os.getpid() % 1_000_000}", build=False)
    assert wrong == [], "\n".join(wrong)
