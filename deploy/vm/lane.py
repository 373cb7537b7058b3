# SPDX-License-Identifier: Apache-2.0
"""`./dev vm test`: the project's own tests on each stock kernel, and what only virtual time can show.

A part is a script that runs in a machine of its own. Parts with real concurrency (`mt`) run one at a time, machines in
virtual time (`det`) beside them. Each part leaves JUnit files, its own tests' and one that says how it
ended, for the count of tests/runner/junit_counts.py; figures go to results/vm/KERNEL.json.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from pathlib import Path

from deploy.dev import temporary
from deploy.vm import image, kernels, machine, table
from deploy.vm.guest import engines
from deploy.vm.kernels import Broken, Kernel, Unavailable

VERIFIED = table.VERIFIED
# Growth of a program's verified instructions that must be confirmed (--record).
_GROWTH = 1.10
_REPLAY_SEEDS = 10
_SHORT_REPLAYS = "6.12"  # of the short part: a machine takes half a minute of a processor, and the others run one seed once
_SHORT_PROGRAMS = ("hedgerow", "hedgerowd", "hr-echo-server", "hr-load", "hr-verified-instructions")
_SHORT_SEED = 2
_CPUS = os.cpu_count() or 1
# In virtual time: what an engine may add to the delay at p99, and what an exact clock may be late by: a tick of the wheel is 33 us,
# and a lap comes no sooner than 50 us after the one before.
_ENGINE_LATE_MS = 0.5
_HEDGES = 100
_EXACT_US = 85

# What depends on the kernel most, and 12 to 16 s each: a process takes long to start under emulation, and programs to
# verify.
_E2E = tuple(f"tests/e2e/test_{name}" for name in (
    "clock_kinds.py::test_a_hedge_leaves_when_it_is_due",
    "clock_kinds.py::test_a_nack_waits_for_no_lap",
    "strangers.py::test_what_a_user_sends_on_the_proxys_links_ends_there_and_hedges_are_in_time",
    "engines.py::test_every_hedge_is_a_clone_that_waited",
    "dns_clients.py::test_dig_gets_every_kind_of_record_from_the_leader",
    "dns_clients.py::test_dig_tcp_goes_to_the_leader",
    "dns_clients.py::test_an_answer_of_several_fragments_arrives_whole",
    "failing_replicas.py::test_dnsperf_loses_no_query_when_the_leader_is_killed",
    "failing_replicas.py::test_a_late_loser_never_reaches_the_client",
    "checksums.py::test_hedged_copies_of_every_length_have_a_right_checksum",
    "lab_network_faults.py::test_each_packet_is_lost_that_its_lot_says_and_no_other",
    "lab_network_faults.py::test_packets_overtake_each_other",
    "lab_network_faults.py::test_everything_at_once",
    "odd_packets.py::test_strict_reverse_path_filtering_is_on_everywhere_and_drops_nothing",
    "backends_here.py::test_it_leads_and_is_hedged_to_a_remote_one[address-ipv4]",
    "backends_here.py::test_it_leads_and_is_hedged_to_a_remote_one[loopback-ipv6]"))


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    mode: str
    timeout_s: float
    arguments: tuple[str, ...] = ()


_STALLS = Part("stalls", "det", 600)
PARTS = (Part("objects", "mt", 300), Part("packets", "det", 600), Part("races", "mt", 300),
         Part("node", "mt", 600), Part("kernel_interfaces", "mt", 600), Part("dying_leader", "det", 600),
         Part("late_leader", "mt", 300),
         Part("end_to_end", "mt", 900, _E2E), _STALLS,
         Part("engines", "det", 600))


def short_part(series: str) -> Part:
    """What `./dev test` has: `objects` and `stalls` in one machine. Where `stalls` is replayed, in machines of its own, this one
    only draws."""
    return Part("short", "det", 600, ("--plan",) if series == _SHORT_REPLAYS else ())


@dataclasses.dataclass
class Run:
    """One kernel's way through the lane."""

    kernel: Kernel
    build_dir: Path
    smoke: bool
    record: bool
    folder: Path                     # for JUnit files and what the machines brought back
    scratch: Path
    figures: dict = dataclasses.field(default_factory=dict)
    # As many machines in virtual time at once as there are CPUs beside that of the parts in real time.
    places: threading.Semaphore = dataclasses.field(default_factory=lambda: threading.Semaphore(max(1, _CPUS - 1)))
    project: Path | None = None
    one_at_a_time: bool = False

    @property
    def label(self) -> str:
        return f"vm-{self.kernel.series}"

    def image_of(self, part: Part) -> Path:
        into = self.scratch / f"{self.kernel.series}-{part.name}"
        into.mkdir()
        self.project = self.project or image.project_archive(self.build_dir, self.scratch, _SHORT_PROGRAMS if self.smoke else ())
        script = image.PARTS / f"{part.name}.sh"
        return image.build(self.kernel, script, part.arguments, self.build_dir, into, self.project)

    def boot(self, part: Part, archive: Path, seed: int = 1, name: str = "") -> tuple[machine.Outcome, Path]:
        files = self.folder / (name or part.name)
        shutil.rmtree(files, ignore_errors=True)
        settings = machine.Settings(part.mode, seed, timeout_s=part.timeout_s)
        with self.places if part.mode == "det" or self.one_at_a_time else contextlib.nullcontext():
            outcome = machine.run(self.kernel, archive, settings, files)
            if outcome.emulator_failed():
                print(f"{self.label}: {part.name}: the emulator failed (a stale int3), once more", flush=True)
                outcome = machine.run(self.kernel, archive, settings, files)
        (files / "console.txt").write_text(outcome.console, encoding="utf-8")
        return outcome, files

    def boot_seeds(self, part: Part, archive: Path, seeds: list[int], names: list[str]) -> list[machine.Outcome]:
        """A machine for each seed, at once."""
        with concurrent.futures.ThreadPoolExecutor(len(seeds)) as pool:
            return list(pool.map(lambda seed, name: self.boot(part, archive, seed, name)[0], seeds, names))


def test(series: Iterable[str], *, smoke: bool, record: bool, only: list[str] | None, reports: Path | None,
         build_dir: Path, one_at_a_time: bool = False) -> int:
    """Runs the lane on each kernel; 0 when all of it passed. A kernel that cannot be had is a skip, said loudly."""
    results = image.PROJECT / "results" / "vm"
    counted = []
    for each in series:
        folder = (reports or results) / f"vm-{each}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            with temporary.folder("vm") as scratch:
                run = Run(kernels.get(each), build_dir, smoke, record, folder, Path(scratch))
                if one_at_a_time:
                    run.one_at_a_time, run.places = True, threading.Semaphore(1)
                run.figures["release"] = run.kernel.release
                _run_parts(run, only)
            if not smoke and not only:
                results.mkdir(parents=True, exist_ok=True)
                (results / f"{each}.json").write_text(json.dumps(run.figures, indent=1) + "\n", encoding="ascii")
        except Unavailable as why:
            print(f"vm: SKIPPED: {each}: {why}", file=sys.stderr)
            report(folder / "lane.xml", "lane", "skipped", str(why))
        except Broken as why:
            print(f"vm: {each}: {why}", file=sys.stderr)
            report(folder / "lane.xml", "lane", "failed", str(why))
        counted += [f"vm-{each}:{path}:0" for path in sorted(folder.rglob("*.xml"))]
    if record:
        table.write_recorded()
    if reports:
        return 0  # The caller counts.
    table.write()
    command = [sys.executable, "tests/runner/junit_counts.py", "--skips", "tests/skips.txt", *counted]
    return subprocess.run(command, cwd=image.PROJECT, check=False).returncode


def _run_parts(run: Run, only: list[str] | None) -> None:
    parts = [short_part(run.kernel.series)] if run.smoke else [part for part in PARTS if not only or part.name in only]
    # Images first: two parts must not make the same base at once.
    archives = {part.name: run.image_of(part) for part in parts}
    det = [part for part in parts if part.mode == "det"]
    with concurrent.futures.ThreadPoolExecutor(max(1, len(det))) as pool:
        beside = [pool.submit(_run_part, run, part, archives[part.name]) for part in det]
        for part in parts:
            if part.mode == "mt":
                _run_part(run, part, archives[part.name])
        if _CPUS > 1 and not run.one_at_a_time:
            run.places.release()
        for part in beside:
            part.result()


def _run_part(run: Run, part: Part, archive: Path) -> None:
    started = time.monotonic()
    print(f"{run.label}: {part.name} ({part.mode}) ...", flush=True)
    trouble = _CHECKS.get(part.name, _plain)(run, part, archive)
    seconds = time.monotonic() - started
    run.figures.setdefault("seconds", {})[part.name] = round(seconds)
    report(run.folder / f"part-{part.name}.xml", part.name, "failed" if trouble else "passed", trouble)
    print(f"{run.label}: {part.name} {'FAILED' if trouble else 'passed'} in {seconds:.0f} s", flush=True)


def _plain(run: Run, part: Part, archive: Path) -> str:
    """A part that only has to end well; what went wrong, otherwise."""
    outcome, _ = run.boot(part, archive)
    return _ended_well(outcome)


def _ended_well(outcome: machine.Outcome) -> str:
    if outcome.status == machine.NO_END:
        return outcome.why_not()
    return f"exit status {outcome.status}:\n{outcome.output}" if outcome.status else ""


def _objects(run: Run, part: Part, archive: Path) -> str:
    """Every program loads, and none has grown for the verifier by more than a tenth without a word."""
    outcome, files = run.boot(part, archive)
    return _ended_well(outcome) or _compare_verified(run, files)


def _compare_verified(run: Run, files: Path) -> str:
    counts = table.counts_of(files / "verified.tsv")
    run.figures["verified_instructions"] = counts
    recorded = VERIFIED / f"{run.kernel.series}.tsv"
    compiler = _compiler()
    if run.record:
        recorded.write_text(f"# {compiler}\n" + (files / "verified.tsv").read_text(encoding="ascii"), encoding="ascii")
    if not recorded.exists() or f"# {compiler}" not in recorded.read_text(encoding="ascii"):
        print(f"{run.label}: verified instructions are recorded for another compiler than {compiler}: not compared")
        return ""
    known = table.counts_of(recorded)
    wrong = [f"{name} is not in {recorded.name}" for name in counts if name not in known]
    wrong += [f"{name} does not exist any more, and {recorded.name} has it" for name in known if name not in counts]
    wrong += [f"{name}: {counts[name]} verified instructions, {known[name]} recorded" for name in counts
              if name in known and counts[name] > known[name] * _GROWTH]
    return "\n".join([*wrong, "if that is meant: ./dev vm test --only objects --record"] if wrong else [])


def _compiler() -> str:
    """clang and its major version: another one makes other code."""
    done = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"clang version (\d+)", done.stdout)
    return f"clang {found.group(1)}" if found else "an unknown compiler"


def _stalls(run: Run, part: Part, archive: Path) -> str:
    """One seed twice: the same bytes. Other seeds: other histories. Every one of them healthy."""
    seeds = [1, *range(1, _REPLAY_SEEDS + 1)]
    outcomes = run.boot_seeds(part, archive, seeds, ["stalls-1-again", *(f"stalls-{seed}" for seed in seeds[1:])])
    wrong = _replay_trouble(seeds, outcomes)
    histories = [_fault_times(outcome.output) for outcome in outcomes[1:]]
    if not wrong and len(set(histories)) != len(histories):
        wrong.append(f"{len(histories)} seeds gave only {len(set(histories))} different fault timings")
    run.figures["stalls"] = {seed: outcome.output.splitlines()[-2:] for seed, outcome in
                             zip(seeds[1:], outcomes[1:], strict=True)}
    return "\n".join(wrong)


def _replay_trouble(seeds: list[int], outcomes: list[machine.Outcome]) -> list[str]:
    """The first two are of one seed."""
    wrong = [f"seed {seed}: {trouble}" for seed, outcome in zip(seeds, outcomes, strict=True)
             if (trouble := _ended_well(outcome))]
    if not wrong and outcomes[0].console != outcomes[1].console:
        wrong.append(f"two runs of seed {seeds[0]} differ:\n{outcomes[0].console}\n---\n{outcomes[1].console}")
    return wrong


def _short(run: Run, part: Part, archive: Path) -> str:
    """Every program loads, and a whole system is healthy. On one kernel a seed is run twice, and another one draws other faults."""
    outcome, files = run.boot(part, archive, _SHORT_SEED)
    if trouble := _ended_well(outcome) or _compare_verified(run, files):
        return trouble
    if run.kernel.series != _SHORT_REPLAYS:
        return ""
    seeds = [1, 1]
    replays = run.boot_seeds(_STALLS, run.image_of(_STALLS), seeds, ["stalls-1-again", "stalls-1"])
    wrong = _replay_trouble(seeds, replays)
    if not wrong and (not _drawn(outcome.output) or _drawn(outcome.output) == _drawn(replays[1].output)):
        wrong.append(f"seeds 1 and {_SHORT_SEED} draw the same faults, or none: {_drawn(outcome.output)}")
    return "\n".join(wrong)


def _engines(run: Run, part: Part, archive: Path) -> str:
    """Every engine that the kernel offers keeps the delay; which ones those are is known for each kernel."""
    outcome, files = run.boot(part, archive)
    if trouble := _ended_well(outcome):
        return trouble
    rows = json.loads((files / "engines.json").read_text(encoding="ascii"))
    run.figures["engines"] = rows
    return "\n".join(complaint for row in rows for complaint in _judge_engine(row, run.kernel.series))


def _judge_engine(row: dict, series: str) -> list[str]:
    name = f"{row['engine']} with {row['attach']}"
    if not row["offered"]:
        # TCX came with 6.6; every queueing discipline is in these kernels.
        return [] if series == "6.1" and row["attach"] == "tcx" else [f"{name} does not come up: {row['why']}"]
    limit_ms = engines.DELAY_MS + engines.SERVICE_MS + _ENGINE_LATE_MS
    wrong = [f"{row['lost']} requests lost"] if row["lost"] else []
    wrong += [] if row["identity_ok"] else ["the books do not balance"]
    wrong += [] if row["hedges"] >= _HEDGES else [f"{row['hedges']} hedges: of less than {_HEDGES} a p99 is one hedge's"]
    wrong += [] if row["p99_ms"] <= limit_ms else [f"p99 {row['p99_ms']} ms, at most {limit_ms} wanted"]
    if row["engine"] == "wheel, fq clock" and row["fire_error_p99_us"] > _EXACT_US:
        wrong.append(f"fire_error p99 {row['fire_error_p99_us']} us, at most {_EXACT_US} wanted")
    return [f"{name}: {what}" for what in wrong]


def _fault_times(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if line.startswith("stopped at"))


def _drawn(output: str) -> str:
    return next((line for line in output.splitlines() if line.startswith("drawn: ")), "")


_CHECKS: dict[str, Callable[[Run, Part, Path], str]] = {"objects": _objects, "stalls": _stalls, "engines": _engines, "short": _short}


def report(file: Path, name: str, state: str, text: str) -> None:
    """A JUnit file of one case."""
    suite = ElementTree.Element("testsuite", name="vm")
    case = ElementTree.SubElement(suite, "testcase", name=name, classname="part")
    if state == "failed":
        ElementTree.SubElement(case, "failure", message=f"part {name} failed").text = _printable(text)
    if state == "skipped":
        ElementTree.SubElement(case, "skipped", message=text)
    ElementTree.ElementTree(suite).write(file, encoding="utf-8")


def _printable(text: str) -> str:
    """XML holds no control characters, and a console may."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
