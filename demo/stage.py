# SPDX-License-Identifier: Apache-2.0
"""What both demos share: what they may leave on the machine and how that goes, --keep and --down, and an end that takes
everything down, whatever it was that ended them.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import stopping
from deploy.lab import Lab, LabInUse
from deploy.lab import netns as lab_netns
from deploy.lab.data_dirs import DataDirs

_PINS = Path("/sys/fs/bpf/hedgerow")


@dataclasses.dataclass(frozen=True)
class Stage:
    """By these names everything that a demo makes can be found."""

    tag: str  # of its lab
    instance: str  # of its proxy
    durability: str | None = None  # of its store, if it has one: where the data is

    def take_down(self) -> None:
        """Everything a demo may have left, whoever started it and however it ended; a running demo is left alone."""
        Lab.clean(self.tag)

    @property
    def data(self) -> DataDirs:
        return DataDirs(self.tag, self.durability)

    def leftovers(self) -> list[str]:
        pins = _PINS / self.instance
        data = self.data.parent.glob(f"hedgerow-lab-{self.tag}-*") if self.durability else ()
        return [*lab_netns.of_lab(self.tag), *([str(pins)] if pins.exists() else []), *map(str, data)]

    def say_it_is_gone(self, started: float) -> bool:
        left = self.leftovers()
        print(f"LEFT BEHIND: {', '.join(left)}" if left else
              f"took everything down; {time.monotonic() - started:.0f} s in all")
        return not left


def parser(prog: str, description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=prog, description=description)
    made.add_argument("--keep", action="store_true", help="leave the lab up and say how to look around")
    made.add_argument("--down", action="store_true", help="take down what --keep left, and do nothing else")
    return made


def main(stage: Stage, arguments: argparse.Namespace, demo: Callable[[argparse.Namespace], int]) -> int:
    """Exit code of `demo`, after which everything is down again unless it was to be kept."""
    kept = False
    try:
        stage.take_down()
        if arguments.down:
            print("the demo's lab is down")
            return 0
        code = demo(arguments)
        kept = arguments.keep
        return code
    except LabInUse:
        print("demo: another demo is running", file=sys.stderr)
        kept = True  # It is that one's, not ours to take down.
        return 1
    finally:
        if not kept:
            stopping.ignore_further_signals()
            stage.take_down()
