# SPDX-License-Identifier: Apache-2.0
"""Experiments end cleanly when asked to: SIGTERM and SIGHUP unwind the `with` blocks as Ctrl-C does, so that the lab,
the daemon and the load go with the runner. Every experiment's entry goes through run().
"""

import signal
import sys
from collections.abc import Callable


def run(main: Callable[[list[str]], int]) -> None:
    """Calls main with the command line and exits with what it returns; 128 + signal when it was stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted; everything was taken down", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def ignore_further_signals() -> None:
    """For the last steps of taking down, which a second Ctrl-C must not cut short."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _unwind(number: int, _frame: object) -> None:
    print(f"\nstopped by {signal.Signals(number).name}; taking everything down", file=sys.stderr)
    raise SystemExit(128 + number)
