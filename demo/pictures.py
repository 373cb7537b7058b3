# SPDX-License-Identifier: Apache-2.0
"""The README's pictures of what happens, `./dev pictures`: runs the demo and keeps its plot, then puts the same store and
clients behind Hedgerow for a minute and a half, kills three leaders, and takes the live page as Chromium shows it, light
and dark. Writes docs/images/, and takes everything down.
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path

from PIL import Image  # matplotlib brings it

from bench.manifest import ROOT
from chaos import scenario as scenarios
from chaos.faults import World, make
from chaos.load_process import sending
from chaos.systems import Running, running
from demo import kv, stage
from deploy.lab import Lab
from deploy.lab import browser as browsers

IMAGES = ROOT / "docs" / "images"
PAGE = "http://127.0.0.1:9464/"  # the daemon's default
SECONDS, KILLS_AT_S = 90.0, (15.0, 40.0, 65.0)
WIDTH, HEIGHT = 1280, 900


def kill_leaders(lab: Lab, up: Running, begun: float) -> None:
    scenario = scenarios.load("leader-kill")
    for at_s in KILLS_AT_S:
        _sleep_until(begun + at_s)
        leader = up.cluster.wait_ready()
        fault = make(scenario.faults, World(lab, up.cluster, leader, [leader]))
        try:
            fault.begin()
            print(f"  server {leader.host.name}, the leader, is killed")
            _sleep_until(begun + at_s + scenario.lasts_s)
        finally:
            fault.end()


def take_page(browser: browsers.Browser, into: Path) -> list[Path]:
    """Pictures of the page's first window, light and dark; anything that the page complains of is an error."""
    taken = []
    for name, dark in (("live-page.png", False), ("live-page-dark.png", True)):
        browser.look_like(width=WIDTH, height=HEIGHT, dark=dark)
        browser.listen(1.2)
        taken.append(browser.screenshot(into / name, whole=False))
    if browser.complaints:
        raise RuntimeError(f"the page complains: {browser.complaints}")
    return taken


def live_page(into: Path) -> list[Path]:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(kv.STAGE.tag, replicas=kv.SETTINGS.replicas))
        up = stack.enter_context(running("hedgerow", lab, kv.SETTINGS))
        folder = lab.client.scratch("load")
        argv = [*up.load, f"--seconds={SECONDS:g}", f"--history={folder / 'history.csv'}", f"--report={folder / 'report.json'}"]
        # Before the load: a browser that starts takes the processors from all others.
        browser = stack.enter_context(browsers.Browser(lab.client))
        browser.look_like(width=WIDTH, height=HEIGHT)
        browser.open(PAGE)
        with sending(lab, argv, folder / "load.log"):
            begun = time.monotonic()
            print(f"the live page: {SECONDS:.0f} s of load, three kills", flush=True)
            kill_leaders(lab, up, begun)
            _sleep_until(begun + SECONDS - 10)
            return take_page(browser, into)


def keep_plot(into: Path) -> Path:
    """In few colours, as it has: a quarter of the size."""
    with Image.open(ROOT / "results" / kv.NAME / "demo.png") as plot:
        plot.convert("RGB").quantize(64).save(into / "demo.png", optimize=True)
    return into / "demo.png"


def pictures(_arguments: argparse.Namespace) -> int:
    if browsers.program() is None:
        print("pictures: Chromium is not here, and this distribution may have no package of it: take the pictures on Debian",
              file=sys.stderr)
        return 1
    if kv.demo(argparse.Namespace(keep=False)) != 0:
        print("pictures: the demo did not work, so its plot is not kept", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    for path in [keep_plot(IMAGES), *live_page(IMAGES)]:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")
    return 0


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def main(argv: list[str]) -> int:
    arguments = argparse.ArgumentParser(prog="pictures", description=__doc__.split(":")[0]).parse_args(argv)
    return stage.main(kv.STAGE, argparse.Namespace(down=False, keep=False, **vars(arguments)), pictures)
