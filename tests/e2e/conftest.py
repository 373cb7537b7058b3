# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests: a lab, servers, the product under test, and the checks at rest.

These tests make network namespaces and load BPF programs, so they need root. Without it they fail, each with
this reason: a suite that skips itself would look green where nothing was tested. The tag of a lab and the name of an
instance carry our pid, so that two runs on one machine do not meet.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).resolve().parent)]

from deploy.lab import Lab, LabInUse, names  # noqa: E402 (the path comes first)
from deploy.lab.servers import DNS_SERVERS, DnsServer  # noqa: E402
from harness.product import BIN, Product  # noqa: E402

TAG = f"e2e{os.getpid()}"
TEST_FAILED = pytest.StashKey[bool]()


def pytest_configure(config):
    # A polite kill unwinds the fixtures, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("markers", "lab(**options): how the test's Lab is built")
    config.addinivalue_line("markers", "servers(a='nsd', b='knot'): which DNS server each replica runs")


def pytest_sessionstart(session):
    """A killed run left labs of other tags, and perhaps pins: take away what nobody owns."""
    if os.geteuid() != 0 or not names.RUN_DIR.is_dir():
        return
    for folder in names.RUN_DIR.iterdir():
        if re.fullmatch(r"e2e\d+|self\d+[123s]", folder.name):
            with contextlib.suppress(LabInUse):
                Lab.clean(folder.name)
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


@pytest.fixture
def lab(request) -> Iterator[Lab]:
    marker = request.node.get_closest_marker("lab")
    with Lab(TAG, **(marker.kwargs if marker else {})) as lab:
        yield lab


@pytest.fixture
def servers(request, lab) -> Iterator[dict[str, DnsServer]]:
    """By replica: two different implementations, so that no test leans on one server's habits."""
    marker = request.node.get_closest_marker("servers")
    chosen = marker.kwargs if marker else {"a": "nsd", "b": "knot"}
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(DNS_SERVERS[kind](lab.replica(name))) for name, kind in chosen.items()}


@pytest.fixture
def product(request, lab) -> Iterator[Product]:
    """Not up yet. However the test went, nothing of it is there for the next one; a test that passed so far must
    also balance its books and leave the machine as it was."""
    if not (BIN / "hedgerowd").exists():
        pytest.fail(f"{BIN}/hedgerowd does not exist: run `./dev build` first", pytrace=False)
    product = Product(lab, instance=TAG)
    try:
        yield product
        if request.node.stash.get(TEST_FAILED, True):
            print(product.describe())
        else:
            product.finish()
    finally:
        product.sweep()


@pytest.fixture
def proxy(product, servers) -> Product:
    """Up, with the default configuration, in front of running servers."""
    return product.up()
