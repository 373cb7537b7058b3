# SPDX-License-Identifier: Apache-2.0
"""What both demos share: what they may leave on the machine and how that goes, --keep and --down, and an end that takes
everything down, whatever it was that ended them.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable

from bench import stopping
from bench.experiment import Experiment
from deploy.lab import Lab, LabInUse, names, node_pins


@dataclasses.dataclass(frozen=True)
class Stage:
    """By these names everything that a demo makes can be found."""

    tag: str  # of its lab
    instance: str  # of its proxy

    def take_down(self) -> None:
        """Everything a demo may have left, from any process and however that ended; a running demo is left alone."""
        Lab.clean(self.tag)

    def show(self, demo: Experiment, arguments: argparse.Namespace, look_around: Callable[..., None]) -> int:
        """`look_around` is told what was kept."""
        started = time.monotonic()
        worked = demo.run(arguments) == 0
        if arguments.keep:
            look_around(*arguments.kept)
            return 0 if worked else 1
        left = self.tag in names.tags() or (node_pins.PINS / self.instance).exists()
        print(f"LEFT BEHIND: lab {self.tag}; sudo ./dev clean removes it" if left else
              f"took everything down; {time.monotonic() - started:.0f} s in all")
        return 0 if worked and not left else 1


OPTIONS = (("--keep", {"action": "store_true", "help": "leave the lab up and say how to look around"}),
           ("--down", {"action": "store_true", "help": "take down what --keep left, and do nothing else"}))


def settle(_parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """A demo does not wait for a quiet machine."""
    arguments.quiet_wait = 0.0


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
