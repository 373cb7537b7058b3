# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests: a lab, servers, the product under test, and the checks at rest.

These tests make network namespaces and load BPF programs, so they need root. Without it they fail, each with
this reason: a suite that skips itself would look green where nothing was tested. The tag of a lab and the name of an
instance carry our pid, so that two runs on one machine do not meet.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).resolve().parent)]

from deploy.lab import Lab, LabInUse, names  # noqa: E402 (the path comes first)
from deploy.lab.data_dirs import MODES, DataDirs  # noqa: E402
from deploy.lab.servers import Server  # noqa: E402
from harness import booted  # noqa: E402
from harness.dead_runs import is_left_by_a_dead_run  # noqa: E402
from harness.product import BIN, Product  # noqa: E402
from harness.stack import Stack  # noqa: E402

TAG = f"e2e{os.getpid()}"
TEST_FAILED = pytest.StashKey[bool]()


def pytest_configure(config):
    # A polite kill unwinds the fixtures, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("markers", "lab(**options): how the test's Lab is built")
    config.addinivalue_line("markers", "servers(a='nsd', b='knot'): which server each replica runs")
    config.addinivalue_line("markers", "own: a stack of the test's own, taken down and compared right after it")


def pytest_sessionstart(session):
    """Removes labs, pins and booted systems' files that a killed run of any test file left."""
    if os.geteuid() != 0:
        return
    booted.take_away_what_dead_runs_left()
    if not names.RUN_DIR.is_dir():
        return
    for folder in names.RUN_DIR.iterdir():
        if is_left_by_a_dead_run(folder.name):
            with contextlib.suppress(LabInUse):
                Lab.clean(folder.name)
                for mode in MODES:
                    DataDirs(folder.name, mode).remove()
                if (BIN / "hedgerow").exists():
                    subprocess.run([BIN / "hedgerow", "clean", "--instance", folder.name], check=False,
                                   capture_output=True, timeout=30)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Fixtures learn how their test went."""
    report = (yield).get_result()
    if report.when == "call":
        item.stash[TEST_FAILED] = report.failed


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.fail("the end-to-end tests need root: run `sudo ./dev test`", pytrace=False)


class Stacks:
    """The stack of the tests of one module; it is exchanged when a test wants another."""

    def __init__(self):
        self.current: Stack | None = None

    def get(self, lab_options: dict, server_kinds: dict[str, str]) -> Stack:
        if self.current is not None and self.current.key != (lab_options, server_kinds):
            self.end(check=True)
        if self.current is None:
            self.current = Stack(TAG, lab_options, server_kinds)
        return self.current

    def end(self, *, check: bool) -> None:
        stack, self.current = self.current, None
        if stack is not None:
            stack.throw_away(check=check)


@pytest.fixture(scope="module")
def stacks() -> Iterator[Stacks]:
    stacks = Stacks()
    yield stacks
    stacks.end(check=True)


@pytest.fixture
def stack(request, stacks) -> Iterator[Stack]:
    """What the test runs on. Afterwards the books must balance, and with the mark `own`, or when the stack is
    exchanged, `down` must leave the machine as it was before `up`."""
    own = request.node.get_closest_marker("own") is not None
    lab = request.node.get_closest_marker("lab")
    servers = request.node.get_closest_marker("servers")
    if own:
        stacks.end(check=True)
    stack = stacks.get(lab.kwargs if lab else {}, servers.kwargs if servers else {"a": "nsd", "b": "knot"})
    yield stack
    if request.node.stash.get(TEST_FAILED, True):
        print(stack.product.describe())
        stacks.end(check=False)
        return
    if own:
        stacks.end(check=True)
        return
    try:
        stack.put_in_order()
    except BaseException:
        stacks.end(check=False)
        raise


@pytest.fixture
def lab(stack) -> Lab:
    return stack.lab


@pytest.fixture
def servers(stack) -> dict[str, Server]:
    """By replica. Two different implementations by default, so that no test leans on one server's habits."""
    return stack.servers


@pytest.fixture
def product(stack) -> Product:
    """Perhaps not up: a test brings it up with the configuration it wants."""
    if not (BIN / "hedgerowd").exists():
        pytest.fail(f"{BIN}/hedgerowd does not exist: run `./dev build` first", pytrace=False)
    return stack.product


@pytest.fixture
def proxy(product) -> Product:
    """Up, with the default configuration, in front of running servers."""
    return product.up()
