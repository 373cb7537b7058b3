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
from chaos.systems import running
from demo import kv, kv_run, stage
from demo.kv_progress import Progress
from deploy.lab import Lab
from deploy.lab import browser as browsers

IMAGES = ROOT / "docs" / "images"
PAGE = "http://127.0.0.1:9464/"  # the daemon's default
SECONDS, KILLS_AT_S = 90.0, (15.0, 40.0, 65.0)
_AFTER_THE_LAST_KILL_S = 10.0
WIDTH, HEIGHT = 1280, 900


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
    taken: list[Path] = []
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(kv.STAGE.tag, replicas=kv.SETTINGS.replicas))
        up = stack.enter_context(running("hedgerow", lab, kv.SETTINGS))
        # Before the load: a browser that starts takes the processors from all others.
        browser = stack.enter_context(browsers.Browser(lab.client))
        browser.look_like(width=WIDTH, height=HEIGHT)
        browser.open(PAGE)

        def look() -> None:
            time.sleep(_AFTER_THE_LAST_KILL_S)
            taken.extend(take_page(browser, into))

        print(f"the live page: {SECONDS:.0f} s of load, three kills", flush=True)
        kv_run.run(lab, up, lab.client.scratch("load") / "history.csv", Progress(), KILLS_AT_S, SECONDS, look)
    return taken


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
    if kv.demo(kv.EXPERIMENT.parse([])) != 0:
        print("pictures: the demo did not work, so its plot is not kept", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    for path in [keep_plot(IMAGES), *live_page(IMAGES)]:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")
    return 0


def main(argv: list[str]) -> int:
    arguments = argparse.ArgumentParser(prog="pictures", description=__doc__.split(":")[0]).parse_args(argv)
    return stage.main(kv.STAGE, argparse.Namespace(down=False, keep=False, **vars(arguments)), pictures)
