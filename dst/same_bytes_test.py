# SPDX-License-Identifier: Apache-2.0
"""One seed, two machines, side by side: the same bytes, and nothing wrong in them. A minute and a half under emulation."""

import concurrent.futures
import dataclasses

import pytest

from bench.manifest import build_dir
from deploy.vm import kernels
from dst import image
from dst.plan import Plan, draw
from dst.run import first_difference, run_seed

_SEED, _LOAD_US = 1, 4_000_000


def _in_haste(plan: Plan) -> Plan:
    """All its faults in a shorter load: most of what is left is the boot."""
    share = _LOAD_US / plan.load_us
    faults = tuple(dataclasses.replace(fault, at_us=int(fault.at_us * share), for_us=int(fault.for_us * share))
                   for fault in plan.faults)
    return dataclasses.replace(plan, load_us=_LOAD_US, faults=faults)


@pytest.mark.long
@pytest.mark.timeout(1200)  # a machine that others keep busy emulates slowly
def test_a_seed_run_twice_gives_the_same_bytes(tmp_path):
    try:
        kernel = kernels.get("6.12")
    except kernels.Unavailable as why:
        pytest.skip(str(why))
    base = image.make_base(kernel, build_dir(), tmp_path)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda name: run_seed(kernel, base, _in_haste(draw(_SEED)), tmp_path / name),
                                 ("first", "second"))
    assert first_difference(tmp_path / "first", tmp_path / "second") == ""
    assert first.digest == second.digest
    assert not first.violations
    assert first.figures["operations"] > 500 and first.figures["term"] > 1
