# SPDX-License-Identifier: Apache-2.0
"""One seed, two machines, side by side: the same bytes, and nothing wrong in them. Half a minute and more under emulation."""

import concurrent.futures

import pytest

from bench.manifest import build_dir
from deploy.vm import kernels
from dst import image
from dst.plan import draw
from dst.run import first_difference, run_seed

# Of those that are short: the whole run, and what a test of a minute can bear.
_SEED = 1


@pytest.mark.timeout(900)  # a machine that others keep busy emulates slowly
def test_a_seed_run_twice_gives_the_same_bytes(tmp_path):
    try:
        kernel = kernels.get("6.12")
    except kernels.Unavailable as why:
        pytest.skip(str(why))
    base = image.make_base(kernel, build_dir(), tmp_path)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda name: run_seed(kernel, base, draw(_SEED), tmp_path / name), ("first", "second"))
    assert first_difference(tmp_path / "first", tmp_path / "second") == ""
    assert first.digest == second.digest
    assert not first.violations
    assert first.figures["operations"] > 500 and first.figures["term"] > 1
