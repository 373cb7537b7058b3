# SPDX-License-Identifier: Apache-2.0
"""The command line of the lane, behind `./dev vm`."""

import argparse
import os
import sys
from pathlib import Path

from bench.experiment import some_of
from deploy.dev import temporary
from deploy.vm import image, kernels, lane, machine
from deploy.vm.kernels import Broken, Unavailable
from deploy.vm.net import net_lane
from deploy.vm.net.cells import SERIES, UPLINKS, Cell, Pair
from deploy.vm.net.models import MODELS

_SKIPPED = 77  # as automake and meson have it: not run, for a reason that is no fault


def _build_dir() -> Path:
    return Path(os.environ.get("HEDGEROW_BUILD_DIR", image.PROJECT / "build" / "release"))


def _fetch(arguments: argparse.Namespace) -> int:
    for series in arguments.kernel:
        kernel = kernels.get(series)
        print(f"{series}: {kernel.release} in {kernel.folder}")
    return 0


def _image(arguments: argparse.Namespace) -> int:
    """Makes the image of a script at a place of the user's, to run it again exactly."""
    image.build(kernels.get(arguments.kernel[0]), arguments.script, arguments.arguments, _build_dir(), arguments.out)
    print(arguments.out / "image.cpio")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    settings = machine.Settings(arguments.mode, arguments.seed, arguments.memory, arguments.cpus, arguments.timeout)
    kernel = kernels.get(arguments.kernel[0])
    with temporary.folder("vm") as scratch:
        archive = arguments.image or image.build(kernel, arguments.script, arguments.arguments, _build_dir(),
                                                 Path(scratch))
        outcome = machine.run(kernel, archive, settings, arguments.out, lambda line: print(line, flush=True))
    if outcome.status == machine.NO_END:
        print(f"vm: {outcome.why_not()}", file=sys.stderr)
    return outcome.status


def _shell(arguments: argparse.Namespace) -> int:
    kernel = kernels.get(arguments.kernel[0])
    settings = machine.Settings("mt", arguments.seed, arguments.memory, arguments.cpus)
    with temporary.folder("vm") as scratch:
        return machine.shell(kernel, image.build(kernel, None, (), _build_dir(), Path(scratch)), settings)


def _test(arguments: argparse.Namespace) -> int:
    return lane.test(arguments.kernel, smoke=arguments.smoke, record=arguments.record, only=arguments.only,
                     one_at_a_time=arguments.one_at_a_time, reports=arguments.reports, build_dir=_build_dir())


def _net_test(arguments: argparse.Namespace) -> int:
    return net_lane.test(arguments.kernel, arguments.card, smoke=arguments.smoke, only=arguments.only, keep_record=arguments.record,
                         reports=arguments.reports, build_dir=_build_dir())


def _net_shell(arguments: argparse.Namespace) -> int:
    pair = Pair(arguments.kernel[0], arguments.card[0], (Cell(arguments.uplink, arguments.mtu),))
    return net_lane.shell(pair, _build_dir())


def _net_parser() -> argparse.ArgumentParser:
    """Of `./dev vm net`, whose commands have options of their own."""
    parser = argparse.ArgumentParser(prog="./dev vm net", description="Emulated network cards, joined by a software network.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, action, text in (("test", _net_test, "run every cell, or some"),
                               ("shell", _net_shell, "the hosts of one cell, with a prompt")):
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(action=action)
        several = "; several with commas" if name == "test" else ""
        added.add_argument("--kernel", type=some_of(SERIES), default=SERIES if several else ["6.12"], help=f"of {', '.join(SERIES)}{several}")
        added.add_argument("--card", type=some_of(MODELS), default=list(MODELS) if several else ["virtio-net"],
                           help=f"of {', '.join(MODELS)}{several}")
        if several:
            added.add_argument("--smoke", action="store_true", help="the short part that ./dev test has")
            added.add_argument("--only", type=lambda words: words.split(","), help="cells to run, with commas: plain-1500, vlan-9000, ...")
            added.add_argument("--record", action="store_true", help="record the findings, and write docs/KERNELS.md")
            added.add_argument("--reports", type=Path, metavar="FOLDER", help="for the JUnit files (default: results/vm)")
        else:
            added.add_argument("--uplink", choices=UPLINKS, default="plain")
            added.add_argument("--mtu", type=int, default=1500)
    return parser


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev vm", description="Stock Debian kernels under software emulation.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, action, text, *, several=False):
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(action=action)
        added.add_argument("--kernel", type=some_of(kernels.SUITES), default=list(kernels.SUITES) if several else ["6.12"],
                           help=f"of {', '.join(kernels.SUITES)}" + ("; several with commas" if several else ""))
        return added

    def machine_options(added):
        added.add_argument("--seed", type=int, default=1, help="of the machine's randomness (default 1)")
        added.add_argument("--memory", type=int, default=2048, metavar="MIB")
        added.add_argument("--cpus", type=int, default=2, help="of `mt`; `det` has one")
        added.add_argument("--timeout", type=float, default=600, metavar="S", help="of the host's time")

    command("fetch", _fetch, "fetch kernels into the cache", several=True)
    added = command("image", _image, "make the image that runs SCRIPT, to run it again byte for byte")
    added.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    added.add_argument("words", nargs="*", metavar="SCRIPT [ARGUMENTS]")
    added = command("run", _run, "run SCRIPT as root in a machine; its output and exit status come back")
    machine_options(added)
    added.add_argument("--out", type=Path, metavar="FOLDER", help="where to put what SCRIPT leaves in /out")
    added.add_argument("--image", type=Path, help="made by `image`, instead of SCRIPT")
    added.add_argument("mode", choices=("det", "mt"), help="virtual time that repeats, or real concurrency")
    added.add_argument("words", nargs="*", metavar="SCRIPT [ARGUMENTS]")
    machine_options(command("shell", _shell, "a shell in a machine"))
    commands.add_parser("net", help="real drivers: emulated network cards, joined by a software network (net --help)")
    added = command("test", _test, "run the lane", several=True)
    added.add_argument("--smoke", action="store_true", help="the short part that ./dev test has")
    added.add_argument("--one-at-a-time", action="store_true", help="never two machines, for a lane beside other tests")
    added.add_argument("--only", type=lambda text: text.split(","), help="parts to run, with commas")
    added.add_argument("--record", action="store_true", help="record the verified-instruction counts")
    added.add_argument("--reports", type=Path, metavar="FOLDER", help="for the JUnit files (default: results/vm)")
    return parser


def _take_script(arguments: argparse.Namespace, words: list[str]) -> None:
    image_given = getattr(arguments, "image", None) is not None
    if image_given == bool(words):
        parser().error("give a SCRIPT" + (", or an --image, and not both" if arguments.command == "run" else ""))
    arguments.script, arguments.arguments = (Path(words[0]) if words else None), words[1:]
    if words and not arguments.script.is_file():
        parser().error(f"{arguments.script} is no file")


def main(argv: list[str]) -> int:
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # a user's may lack them
    # argparse gives no option the words that stand behind options: they are SCRIPT and its arguments.
    if argv[:1] == ["net"]:
        arguments, rest = _net_parser().parse_args(argv[1:]), []
    else:
        arguments, rest = parser().parse_known_args(argv)
    if unknown := [word for word in rest if word.startswith("-") or not hasattr(arguments, "words")]:
        parser().error(f"unrecognized arguments: {' '.join(unknown)}")
    if getattr(arguments, "smoke", False) and arguments.only:
        parser().error("--smoke is one part: --only names parts of the whole lane")
    if hasattr(arguments, "words"):
        _take_script(arguments, arguments.words + rest)
    if getattr(arguments, "out", None):
        arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        return arguments.action(arguments)
    except Unavailable as why:
        print(f"vm: SKIPPED: {why}", file=sys.stderr)
        return _SKIPPED
    except Broken as why:
        print(f"vm: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
