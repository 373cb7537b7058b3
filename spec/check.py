# SPDX-License-Identifier: Apache-2.0
"""Checks the models of models.toml with TLC, for `./dev tla` and `./dev test --long`.

A model of the specification as it is must hold in every state; a model with a planted mistake must break an invariant
that it names; and a witness must be reached, so that nothing holds for want of states. Anything else fails: a mistake
that was not found, one that was found by accident (an evaluation error, an invariant not named), a model that was not
finished in its time. The configuration made for TLC, its output and the trace of what it found stay in build/tla/MODEL/.
"""

import argparse
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SPEC_DIR = Path(__file__).resolve().parent
MODELS_FILE = SPEC_DIR / "models.toml"
# TLC's exit status when an invariant or an action property does not hold.
TLC_VIOLATION = 12
PROGRESS_S = 20


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    set: str  # "quick", "full", "reached" or "faults"
    mode: str
    split: list[str]  # the nodes whose kernel and process act apart
    terms: int
    entries: int
    slots: int  # of a node's ring
    limit_s: int
    fault: str = "none"
    finds: tuple[str, ...] = ()  # what must break; any one of them
    nodes: int = 3


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What TLC's output says."""

    states: int = 0
    distinct: int = 0
    diameter: int = 0
    violated: str = ""  # the invariant or action property
    error: str = ""
    finished: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    model: Model
    verdict: Verdict
    seconds: float
    failure: str  # empty: as it should be


def read_models(path: Path = MODELS_FILE) -> list[Model]:
    with path.open("rb") as file:
        table = tomllib.load(file)
    models = [Model(name=name, **{**table["defaults"], **fields}) for name, fields in table["model"].items()]
    for model in models:
        if (model.set == "faults") != (model.fault != "none") or (model.set in ("faults", "reached")) != bool(model.finds):
            raise ValueError(f"{path}: {model.name}: what must break is named by a planted mistake or a witness alone")
        unknown = set(model.finds) - set(INVARIANTS + PROPERTIES if model.set == "faults" else WITNESSES)
        if unknown:
            raise ValueError(f"{path}: {model.name}: no such invariant: {', '.join(sorted(unknown))}")
    return models


def configuration(model: Model) -> str:
    """TLC's configuration of a model."""
    nodes = [f"n{i}" for i in range(1, model.nodes + 1)]
    constants = {
        "Nodes": "{" + ", ".join(nodes) + "}",
        "Split": "{" + ", ".join(model.split) + "}",
        "MaxTerm": model.terms,
        "MaxLength": model.entries,
        "RingSlots": model.slots,
        "Mode": f'"{model.mode}"',
        "Fault": f'"{model.fault}"',
        "NoNode": "NoNode",
    }
    lines = ["SPECIFICATION Spec", "SYMMETRY Symmetry", "VIEW Essence", "CONSTANTS"]
    lines += [f"  {node} = {node}" for node in nodes]
    lines += [f"  {name} = {value}" for name, value in constants.items()]
    # A planted mistake is to be seen by what it does in the end; other invariants may break sooner.
    lines += [f"PROPERTY {name}" for name in PROPERTIES if not model.finds or name in model.finds]
    lines += [f"INVARIANT {name}" for name in model.finds or INVARIANTS if name not in PROPERTIES]
    return "\n".join(lines) + "\n"


INVARIANTS = (
    "ElectionSafety",
    "OneVotePerTerm",
    "LogMatching",
    "LeaderCompleteness",
    "AcknowledgedIsHeld",
    "TermsNeverGoDown",
    "ReadsReachWhatIsCommitted",
    "FurthestHoldsWhatIsCommitted",
    "SharedStateIsCovered",
)
PROPERTIES = ("TermsOnlyGrow",)
# The other way round: the specification is empty talk where these hold.
WITNESSES = ("NeverOutOfOrder", "NeverOnlyInTheRing", "NeverAllTermsLed", "NeverAForgottenVote")


def read_output(text: str) -> Verdict:
    """TLC 2.15's words. The last count is the one at its end; before that, progress."""
    counts = re.findall(r"([\d,]+) states generated(?: \([^)]*\))?, ([\d,]+) distinct states found", text)
    states, distinct = (int(number.replace(",", "")) for number in counts[-1]) if counts else (0, 0)
    depths = re.findall(r"^The depth of the complete state graph search is (\d+)", text, re.MULTILINE)
    violated = re.search(r"^Error: (?:Invariant|Action property) (\w+) is violated", text, re.MULTILINE)
    error = re.search(r"^Error: (.*)", text, re.MULTILINE)
    return Verdict(
        states=states,
        distinct=distinct,
        diameter=int(depths[-1]) if depths else 0,
        violated=violated.group(1) if violated else "",
        error=error.group(1) if error and not violated else "",
        finished="Model checking completed. No error has been found." in text,
    )


def judge(model: Model, verdict: Verdict, status: int, in_time: bool) -> str:
    """What is wrong, or nothing."""
    if not in_time:
        return f"not finished after {model.limit_s} s"
    if verdict.error or status not in (0, TLC_VIOLATION):
        return f"TLC ended with status {status}: {verdict.error or 'see its output'}"
    if not model.finds:
        if verdict.violated:
            return f"{verdict.violated} does not hold"
        return "" if verdict.finished and status == 0 else "TLC did not say that it has seen every state"
    subject = "the planted mistake" if model.set == "faults" else "the witness"
    if not verdict.violated:
        return f"{subject} was not found: nothing broke {' or '.join(model.finds)}"
    if verdict.violated not in model.finds:
        return f"{subject} broke {verdict.violated}, not {' or '.join(model.finds)}"
    return ""


def tlc_command(args: argparse.Namespace, folder: Path) -> list[str]:
    return [
        "java",
        f"-Xmx{args.memory_gb}g",
        "-XX:+UseSerialGC" if args.workers == 1 else "-XX:+UseParallelGC",
        f"-Djava.io.tmpdir={folder}",
        "-cp",
        str(args.jar),
        "tlc2.TLC",
        "-deadlock",  # names what is *not* looked for: a run may end anywhere
        "-workers",
        str(args.workers),
        "-metadir",
        str(folder / "states"),
        "-config",
        "Hedgerow.cfg",
        "Hedgerow.tla",
    ]


def prepare(model: Model, build: Path) -> Path:
    folder = build / model.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in SPEC_DIR.glob("*.tla"):
        shutil.copy(source, folder)
    (folder / "Hedgerow.cfg").write_text(configuration(model), encoding="utf-8")
    return folder


def run(model: Model, args: argparse.Namespace) -> Result:
    folder = prepare(model, args.build)
    log = folder / "tlc.log"
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        # A group of its own: an interrupt is passed on below, once.
        tlc = subprocess.Popen(
            tlc_command(args, folder), cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            in_time = wait_for(tlc, model, log, started)
        finally:
            if tlc.poll() is None:
                os.killpg(tlc.pid, signal.SIGKILL)
                tlc.wait()
            shutil.rmtree(folder / "states", ignore_errors=True)
    verdict = read_output(log.read_text(encoding="utf-8", errors="replace"))
    return Result(model, verdict, time.monotonic() - started, judge(model, verdict, tlc.returncode, in_time))


def wait_for(tlc: subprocess.Popen, model: Model, log: Path, started: float) -> bool:
    while time.monotonic() - started < model.limit_s:
        try:
            tlc.wait(timeout=min(PROGRESS_S, max(0.1, started + model.limit_s - time.monotonic())))
            return True
        except subprocess.TimeoutExpired:
            seen = read_output(log.read_text(encoding="utf-8", errors="replace"))
            print(f"[{clock_text(time.monotonic() - started)}] {model.name}: {seen.distinct:,} states", flush=True)
    return False


def clock_text(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def describe(result: Result) -> str:
    verdict = result.verdict
    counts = f"{verdict.distinct:,} states ({verdict.states:,} made), diameter {verdict.diameter}"
    if result.failure:
        outcome = f"FAILED: {result.failure}"
    elif result.model.finds:
        outcome = f"found, by {verdict.violated}" if result.model.set == "faults" else "reached"
    else:
        outcome = "holds"
    return f"{result.model.name:<34} {outcome}; {counts}, {clock_text(result.seconds)}"


def write_junit(path: Path, results: list[Result]) -> None:
    suite = ElementTree.Element("testsuite", name="tla")
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", name=result.model.name, time=f"{result.seconds:.1f}")
        if result.failure:
            ElementTree.SubElement(case, "failure", message=describe(result))
    ElementTree.ElementTree(suite).write(path, encoding="unicode")


def shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def chosen(models: list[Model], names: list[str]) -> list[Model]:
    known = {model.set for model in models} | {model.name for model in models}
    for name in names:
        if name not in known:
            raise SystemExit(f"tla: no such model: {name}; there are quick, full, reached, faults, or one of\n  "
                             + "\n  ".join(model.name for model in models))
    return [model for model in models if model.name in names or model.set in names]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev tla", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="quick|full|reached|faults|MODEL", default=["quick", "reached", "faults"])
    parser.add_argument("--jar", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, default=Path("build/tla"), help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help="processors for TLC (1)")
    parser.add_argument("--memory-gb", type=int, default=3, help="memory for TLC (3)")
    parser.add_argument("--junit", type=Path, help="write the results there, too")
    args = parser.parse_args(argv)
    args.build, args.jar = args.build.resolve(), args.jar.resolve()
    results = []
    for model in chosen(read_models(), args.names):
        results.append(run(model, args))
        print(describe(results[-1]), flush=True)
    if args.junit:
        write_junit(args.junit, results)
    failed = [result for result in results if result.failure]
    for result in failed:
        print(f"tla: {result.model.name}: TLC's output is in {shown(args.build / result.model.name / 'tlc.log')}")
    print(f"{len(results) - len(failed)} models as they should be, {len(failed)} not")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
