# SPDX-License-Identifier: Apache-2.0
"""`./dev faults`: records each life, draws faults, and judges one life with each. `--all`: every one of them."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from faults import lane
from faults.lives import LIVES, Wrong

KNOWN = Path(__file__).with_name("known.tsv")


def known() -> list[tuple[str, ...]]:
    """What is left as it is: life, call, error, a part of the place, and the reason."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines if line and not line.startswith("#")]


def is_known(fault: lane.Fault) -> bool:
    place = fault.place
    return any(fnmatch(place.life, life) and call in ("*", place.call) and errno in ("*", fault.errno) and part in place.where
               for life, call, errno, part, _reason in known())


def drawn(faults: list[lane.Fault], seed: int) -> list[lane.Fault]:
    """By chance, a fault of each system call before the second of any."""
    chance, ranks = random.Random(seed), Counter()
    chance.shuffle(faults)
    ranked = []
    for fault in faults:
        ranks[fault.place.call] += 1
        ranked.append((ranks[fault.place.call], fault))
    return [fault for _rank, fault in sorted(ranked, key=lambda each: each[0])]


def tag_of(life: str) -> str:
    return f"flt{os.getpid()}{sorted(LIVES).index(life)}"


class Run:
    """One life after another, on one rig as long as none goes wrong."""

    def __init__(self, name: str, folder: Path):
        self.name, self.trace = name, folder / f"{name}-{os.getpid()}.trace"
        self.rig = None
        self.tried, self.not_reached = 0, 0
        self.wrong: list[tuple[lane.Fault, str]] = []

    def close(self) -> None:
        self.trace.unlink(missing_ok=True)
        if self.rig is not None:
            rig, self.rig = self.rig, None
            rig.__exit__(None, None, None)

    def live(self, prefix: list[str]) -> None:
        self.trace.unlink(missing_ok=True)
        if self.rig is None:
            self.rig = LIVES[self.name](tag_of(self.name)).__enter__()
        try:
            self.rig.live(prefix)
        except BaseException:
            try:
                self.close_rig()
            finally:
                self.rig = None
            raise

    def close_rig(self) -> None:
        self.rig.__exit__(None, None, None)

    def record(self) -> list[lane.Place]:
        self.live(lane.recording(self.trace))
        return lane.places(self.name, self.trace)

    def holds_with_short_writes(self) -> bool:
        for word in ("once", "WRONG"):
            try:
                self.live(lane.short_writes())
                return True
            except Wrong as why:
                print(f"{word} {self.name}, where the kernel takes half of each write: {why}", flush=True)
        return False

    def try_fault(self, fault: lane.Fault) -> None:
        """Wrong is what is wrong twice: a machine that is busy makes a life late, and not the next one, too."""
        for word in ("once", "WRONG"):
            try:
                self.live(lane.injecting(fault, self.trace))
                break
            except Wrong as why:
                if not lane.is_hit(fault, self.trace):
                    break
                print(f"{word} {fault}: {why}", flush=True)
                if word == "WRONG":
                    self.wrong.append((fault, str(why)))
        self.not_reached += not lane.is_hit(fault, self.trace)
        self.tried += 1


def find_plants(folder: Path) -> int:
    """0 when the judgement finds each."""
    missed = 0
    for plant, (life, prefix) in lane.plants(folder / "plant.trace", tag_of("hedgerowd")).items():
        run = Run(life, folder)
        try:
            run.live(prefix)
            print(f"MISSED plant {plant}", flush=True)
            missed += 1
        except Wrong as why:
            print(f"found plant {plant}: {why}", flush=True)
        finally:
            Path("/run/hedgerow", f"{tag_of('hedgerowd')}.unfinished").unlink(missing_ok=True)
            run.close()
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev faults", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every fault of every place")
    parser.add_argument("--seconds", type=float, default=75, help="how long faults are drawn and tried (75)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="what is drawn")
    parser.add_argument("--life", action="append", choices=LIVES, help="this one alone; may be given again")
    parser.add_argument("--call", help="only this system call")
    parser.add_argument("--where", default="", help="only places whose frames contain this")
    parser.add_argument("--list", action="store_true", help="print the places, and try none")
    parser.add_argument("--plant", action="store_true", help="mistakes on purpose instead: each must be found")
    parser.add_argument("--verbose", action="store_true", help="print each fault")
    args = parser.parse_args()
    # A life and its places take ten seconds before the first fault: a sample has two of them.
    drawn_lives = list(LIVES) if args.all or args.list else random.Random(args.seed).sample(sorted(LIVES), 2)
    names, folder = args.life or drawn_lives, Path(tempfile.gettempdir())
    if args.plant:
        return find_plants(folder)
    print(f"seed {args.seed}", flush=True)
    began, failed = time.monotonic(), False
    for number, name in enumerate(names):
        run = Run(name, folder)
        try:
            places = [each for each in run.record() if args.call in (None, each.call) and args.where in each.where]
            faults = [fault for fault in lane.faults_at(places) if not is_known(fault)]
            print(f"{name}: {len(places)} places, {len(faults)} faults", flush=True)
            if args.list:
                for place in places:
                    print(f"  {place.call} {place.nth} {place.where}")
                continue
            failed |= not run.holds_with_short_writes()
            until = None if args.all else began + args.seconds * (number + 1) / len(names)
            faults = drawn(faults, args.seed)
            for fault in faults:
                if until is not None and time.monotonic() > until and run.tried > 0:
                    break
                if args.verbose:
                    print(f"{time.monotonic() - began:.1f} {fault}", flush=True)
                run.try_fault(fault)
            print(f"{name}: {run.tried} tried, {run.not_reached} not reached, {len(run.wrong)} wrong", flush=True)
            failed |= bool(run.wrong)
        finally:
            run.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
