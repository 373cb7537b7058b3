# SPDX-License-Identifier: Apache-2.0
"""The command line of the lab, behind `./dev lab`: bring one up, look around in it, take it down."""

import argparse
import os
import shutil
import sys
import time

from deploy.dev import temporary
from deploy.lab import Lab, LabInUse, names, netns, registry


def _up(args: argparse.Namespace) -> int:
    started = time.monotonic()
    lab = Lab(args.tag, replicas=args.replicas, inner=args.inner).up()
    lab.keep()
    print(f"lab {args.tag} is up in {time.monotonic() - started:.2f} s")
    _print_hosts(lab)
    print(f"enter:  python3 -m deploy.lab shell --tag {args.tag} [--host client]\n"
          f"remove: python3 -m deploy.lab down --tag {args.tag}")
    return 0


def _down(args: argparse.Namespace) -> int:
    found = Lab.clean(args.tag)
    print(f"lab {args.tag} is down" if found else f"no lab {args.tag}")
    return 0


def _clean(args: argparse.Namespace) -> int:
    """What killed runs have left, and labs that were kept, of one tag or of all. What belongs to a living process stays."""
    for tag in [args.tag] if args.tag else names.tags():
        try:
            Lab.clean(tag)
            print(f"lab {tag}: removed")
        except LabInUse as error:
            print(error)
    for name in [] if args.tag else names.ended_netns():
        registry.kill_in([name])
        netns.remove(name)
        print(f"{name}: removed")
    for path in temporary.left_behind():
        shutil.rmtree(path, ignore_errors=True)
        print(f"{path}: removed")
    return 0


def _status(args: argparse.Namespace) -> int:
    lab = Lab.attach(args.tag)
    _print_hosts(lab)
    known = {entry["pid"]: entry for entry in lab.registry.entries()}
    for pid in lab.registry.living():
        entry = known.get(pid, {"host": "?", "argv": ["(started by another)"]})
        print(f"  pid {pid:<8} {entry['host']:<8} {' '.join(entry['argv'])}")
    return 0


def _shell(args: argparse.Namespace) -> int:
    host = Lab.attach(args.tag).hosts[args.host]
    shell = os.environ.get("SHELL", "/bin/sh")
    with host.entered():
        os.environ["PS1"] = f"({host.netns}) $ "
        os.execv(shell, [shell])


def _print_hosts(lab: Lab) -> None:
    for host in lab.hosts.values():
        print(f"  {host.name:<8} {host.ipv4:<12} {host.ipv6:<10} {netns.path_of(host.netns)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m deploy.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, action in (("up", _up), ("down", _down), ("status", _status), ("shell", _shell), ("clean", _clean)):
        command = commands.add_parser(name)
        command.add_argument("--tag", default=None if name == "clean" else "lab", help="name of the lab (default: lab; clean: all)")
        command.set_defaults(action=action)
        if name == "up":
            command.add_argument("--replicas", type=int, default=2)
            command.add_argument("--inner", action="store_true", help="add a container behind the client host")
        if name == "shell":
            command.add_argument("--host", default="client")
    args = parser.parse_args()
    try:
        return args.action(args)
    except (LabInUse, LookupError, PermissionError, ValueError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
