# SPDX-License-Identifier: Apache-2.0
"""The command line, behind `./dev dst`: which seeds, how many at a time, what is kept, what is said."""

import argparse
import concurrent.futures
import dataclasses
import itertools
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.manifest import build_dir, commit, why_missing
from bench.outcome import Check, Results, print_checks
from deploy.dev import temporary
from deploy.vm import kernels, machine
from deploy.vm.kernels import Broken, Unavailable
from dst import image
from dst.plan import draw
from dst.run import Outcome, first_difference, run_seed

NAME = "dst"
_SKIPPED = 77


@dataclasses.dataclass(frozen=True)
class Job:
    """All that does not depend on the seed."""

    kernel: kernels.Kernel
    base: Path
    results: Results
    bug: str
    keep: bool   # what sound runs leave, too
    twice: bool

    def folder(self, seed: int, again: bool = False) -> Path:
        return self.results.raw / f"seed-{seed}{'-again' if again else ''}"

    def run(self, seed: int) -> Outcome:
        outcome = run_seed(self.kernel, self.base, draw(seed), self.folder(seed), self.bug)
        if self.twice:
            outcome = self._compare(seed, outcome)
        if not outcome.violations and not self.keep:
            for folder in (self.folder(seed), self.folder(seed, again=True)):
                shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _compare(self, seed: int, outcome: Outcome) -> Outcome:
        again = run_seed(self.kernel, self.base, draw(seed), self.folder(seed, again=True), self.bug)
        if again.digest == outcome.digest:
            return outcome
        difference = first_difference(self.folder(seed), self.folder(seed, again=True))
        return dataclasses.replace(outcome, violations=(*outcome.violations, f"two runs differ: {difference}"))


def _seeds(text: str) -> range:
    found = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if not found or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is no A..B")
    return range(int(found[1]), int(found[2]) + 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev dst", description="Whole systems in virtual time; see dst/README.md.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", type=_seeds, metavar="A..B", help="both included")
    which.add_argument("--seed", type=int, metavar="N", help="one alone, whose files are kept: a replay")
    parser.add_argument("--twice", action="store_true", help="each seed two times, and the bytes must be the same")
    parser.add_argument("--bug", default="", metavar="NAME",
                        help="plant a mistake into the nodes (hedgerow-sim --bug list), and look until a seed finds it")
    parser.add_argument("--kernel", choices=kernels.SUITES, default="6.12")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="machines at a time")
    parser.add_argument("--keep", action="store_true", help="keep what sound runs leave, too")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help=f"write there, not to results/{NAME}")
    return parser


def _say(outcome: Outcome) -> None:
    row = outcome.row()
    virtual = row["virtual_s"]
    speed = f"{virtual:.1f} virtual s in {row['wall_s']:.0f} s" if virtual else f"{row['wall_s']:.0f} s"
    print(f"seed {row['seed']}: {'VIOLATION' if outcome.violations else 'sound'}, {speed}, {row['durability']}, offloads "
          f"{row['offloads']}, {row['operations']} operations ({row['timed_out']} without an answer), term {row['term']}, "
          f"{row['hedges']} hedges, faults {' '.join(row['faults'])}; digest {outcome.digest[:16]}", flush=True)
    for violation in outcome.violations[:8]:
        print(f"  {violation}", flush=True)


def _run_all(job: Job, seeds: Iterable[int], jobs: int, until_found: bool) -> Iterator[Outcome]:
    """As they end. `until_found`: none is begun after a violation."""
    left = iter(seeds)
    found = False
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(job.run, seed) for seed in itertools.islice(left, jobs)}
        try:
            while running:
                done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    found = found or bool(outcome.violations)
                    yield outcome
                    if not (found and until_found) and (seed := next(left, None)) is not None:
                        running.add(pool.submit(job.run, seed))
        except BaseException:
            machine.end_all()  # the pool waits for its threads, and they for their machines
            raise


def _checks(outcomes: list[Outcome], bug: str, twice: bool) -> list[Check]:
    wrong = [outcome.plan.seed for outcome in outcomes if outcome.violations]
    if bug:
        return [Check(f"{bug} is found", "by a seed", f"by seed {min(wrong)}" if wrong else f"{len(outcomes)} seeds missed it",
                      bool(wrong))]
    idle = [outcome.plan.seed for outcome in outcomes
            if outcome.plan.offloads == "on" and not outcome.figures["kernel_events"]]
    checks = [Check("seeds with a violation", "none", " ".join(map(str, wrong)) or "none", not wrong),
              Check("seeds with offloads on whose kernels did nothing", "none", " ".join(map(str, idle)) or "none", not idle)]
    if twice:
        differ = [outcome.plan.seed for outcome in outcomes if any("two runs differ" in each for each in outcome.violations)]
        checks.append(Check("seeds whose second run has other bytes", "none", " ".join(map(str, differ)) or "none", not differ))
    return checks


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # a user's may lack them
    seeds = arguments.seeds or range(arguments.seed, arguments.seed + 1)
    try:
        kernel = kernels.get(arguments.kernel)
        with temporary.folder("dst") as scratch:
            base = image.make_base(kernel, build_dir(), Path(scratch), with_bugs=bool(arguments.bug))
            return _run(arguments, seeds, kernel, base)
    except Unavailable as why:
        print(f"dst: SKIPPED: {why}", file=sys.stderr)
        return _SKIPPED
    except Broken as why:
        print(f"dst: {why}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace, seeds: range, kernel: kernels.Kernel, base: Path) -> int:
    results = Results(NAME, arguments.into)
    job = Job(kernel, base, results, arguments.bug, arguments.keep or arguments.seed is not None, arguments.twice)
    if why := why_missing("hr-porcupine"):
        print(f"dst: judged by our own checker alone: {why}", flush=True)
    outcomes = []
    for outcome in _run_all(job, seeds, max(1, arguments.jobs), bool(arguments.bug)):
        outcomes.append(outcome)
        _say(outcome)
    outcomes.sort(key=lambda outcome: outcome.plan.seed)
    rows = [outcome.row() for outcome in outcomes]
    checks = _checks(outcomes, arguments.bug, arguments.twice)
    virtual_s, wall_s = (sum(row[name] or 0.0 for row in rows) for name in ("virtual_s", "wall_s"))
    speed = {"virtual_s_per_wall_s": round(virtual_s / wall_s, 3) if wall_s else None}
    results.write_summary(results.manifest({}, guest_kernel=kernel.release, bug=arguments.bug, jobs=arguments.jobs, **speed), rows, checks)
    print(f"\n{len(rows)} seeds: {virtual_s:.0f} virtual s in {wall_s:.0f} s of each machine's time, "
          f"{speed['virtual_s_per_wall_s']} virtual s per wall s and machine, {arguments.jobs} at a time; "
          f"commit {_commit()}, kernel {kernel.release}")
    bug = f" --bug {arguments.bug}" if arguments.bug else ""
    for outcome in outcomes:
        if outcome.violations:
            print(f"again: ./dev dst --seed {outcome.plan.seed} --kernel {arguments.kernel}{bug}   (files: {job.folder(outcome.plan.seed)})")
    return 0 if print_checks(checks) else 1


def _commit() -> str:
    found = commit()
    return found["commit"][:12] + ("-dirty" if found["uncommitted_changes"] else "")
