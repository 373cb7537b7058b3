# SPDX-License-Identifier: Apache-2.0
"""Experiments end cleanly when asked to: SIGTERM and SIGHUP unwind the `with` blocks as Ctrl-C does, so that the lab,
the daemon and the load go with the runner. Only the first signal counts: a second one would cut the taking down short. Every
experiment's entry goes through run().
"""

import concurrent.futures
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

from deploy.lab import Lab, LabInUse

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(main: Callable[[list[str]], int]) -> None:
    """Calls main with the command line and exits with what it returns; 128 + signal when it was stopped."""
    for number in _SIGNALS:
        signal.signal(number, _unwind)
    try:
        sys.exit(main(sys.argv[1:]))
    except LabInUse as error:
        sys.exit(f"{error}: another run is under way")


@contextlib.contextmanager
def beside(lab: Lab, workers: int) -> Iterator[concurrent.futures.Executor]:
    """Threads for loads that run beside the block. A block that ends with an exception ends the lab's processes, for the threads wait for
    them: a load that has minutes to go would hold the taking down up."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            yield pool
        except BaseException:
            lab.registry.kill_all()
            raise


def ignore_further_signals() -> None:
    """For the last steps of taking down, which a second Ctrl-C must not cut short."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _unwind(number: int, _frame: object) -> None:
    ignore_further_signals()
    print(f"\nstopped by {signal.Signals(number).name}; taking everything down", file=sys.stderr)
    raise SystemExit(128 + number)
