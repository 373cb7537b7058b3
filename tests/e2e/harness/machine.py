# SPDX-License-Identifier: Apache-2.0
"""What a machine looks like: everything the proxy could leave behind, taken before `up` and compared after `down`.

Two parts: the network namespace the proxy works in (links, addresses, routes, rules, qdiscs, filters, TCX programs,
offloads, sysctls, firewall, processes) and what is global (bpffs mounts, the instance's pins and run files,
statistics switches). Global things of other instances are left out: others may use the machine.
"""

import contextlib
import json
import os
import re
import shlex
from pathlib import Path

from deploy.lab import Host
from harness import bpf_links

# Counters that live among the settings.
_VOLATILE_SYSCTLS = re.compile(r"net/netfilter/nf_conntrack_count$")
_GLOBAL_SYSCTLS = ("kernel/bpf_stats_enabled", "kernel/unprivileged_bpf_disabled")

# A bpffs that holds somebody else's pins may come and go as they do.
MOUNTED, IN_USE = "mounted", "in use by others"

_FAMILIES = ("-4", "-6")

Snapshot = dict[str, object]


def take(host: Host, instance: str) -> Snapshot:
    """Flat: a readable name for each fact, so that a difference reads as a sentence. Taken twice in most tests: what can be asked at
    once is, for it is starting a program that takes time."""
    facts: Snapshot = {}
    links, addresses, qdiscs, net, firewall, *rest = _outputs(host, [
        "ip -j -d link show", "ip -j address show", "tc -j qdisc show", "bpftool -j net show", "nft -s list ruleset",
        *(f"ip {family} {what}" for family in _FAMILIES for what in ("route show table all", "rule show"))])
    links, qdiscs = json.loads(links or "[]"), json.loads(qdiscs or "[]")
    for link in links:
        facts[f"link {link['ifname']}"] = link
    for entry in json.loads(addresses or "[]"):
        for address in entry.get("addr_info", []):
            text = f"address {address['local']}/{address['prefixlen']} on {entry['ifname']}"
            facts[text] = address.get("scope")
    for family in _FAMILIES:
        for kind in ("route", "rule"):
            for line in rest.pop(0).splitlines():
                facts[f"{kind} {family} {line.strip()}"] = True
    for qdisc in qdiscs:
        facts[f"qdisc {qdisc['kind']} {qdisc['handle']} on {qdisc['dev']}"] = qdisc.get("options", {})
    _add_link_facts(facts, host, [link["ifname"] for link in links], qdiscs)
    facts["bpf on links"] = json.loads(net or "[]")  # shows TCX where bpftool knows it
    facts["firewall"] = firewall
    _add_sysctls(facts, host)
    for pid in host.pids():
        facts[f"process {pid} {_command(pid)}"] = True
    _add_global_facts(facts, instance)
    return facts


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    before, after = ({key: value for key, value in facts.items() if IN_USE not in (before.get(key), after.get(key))}
                     for facts in (before, after))
    found = [f"left behind: {key} ({after[key]})" for key in after.keys() - before.keys()]
    found += [f"taken away: {key}" for key in before.keys() - after.keys()]
    found += [f"changed: {key}: {before[key]} -> {after[key]}"
              for key in before.keys() & after.keys() if before[key] != after[key]]
    return sorted(found)


def _add_link_facts(facts: Snapshot, host: Host, names: list[str], qdiscs: list[dict]) -> None:
    """Filters hang on a queueing discipline with a handle."""
    hooks = sorted((qdisc["dev"], hook) for qdisc in qdiscs if qdisc["handle"] != "0:"
                   for hook in (("ingress", "egress") if qdisc["kind"] in ("clsact", "ingress") else ("root",) if qdisc.get("root") else ()))
    found = _outputs(host, [*(f"tc filter show dev {shlex.quote(name)} {hook}" for name, hook in hooks),
                            *(f"ethtool -k {shlex.quote(name)}" for name in names)], may_fail=True)
    for (name, hook), filters in zip(hooks, found, strict=False):
        # Hits and installation times of filters change by themselves.
        facts[f"filters {hook} of {name}"] = [line for line in filters.splitlines() if "filter" in line]
    for name, offloads in zip(names, found[len(hooks):], strict=True):
        facts[f"offloads of {name}"] = offloads


def _add_sysctls(facts: Snapshot, host: Host) -> None:
    with host.entered():
        for folder, _folders, files in os.walk("/proc/sys/net"):
            for name in files:
                path = os.path.join(folder, name)
                key = path.removeprefix("/proc/sys/")
                if not _VOLATILE_SYSCTLS.search(key):
                    try:
                        fd = os.open(path, os.O_RDONLY)
                    except OSError:  # some are for writing only
                        continue
                    with contextlib.suppress(OSError):
                        facts[f"sysctl {key}"] = os.read(fd, 1 << 16).decode(errors="replace").strip()
                    os.close(fd)


def _add_global_facts(facts: Snapshot, instance: str) -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    bpffs = [fields[1] for fields in mounts if fields[2] == "bpf"]
    for mount in bpffs:
        facts[f"bpffs on {mount}"] = MOUNTED
        # Others' pins may go meanwhile, which os.walk takes as it comes.
        for path in (Path(folder, name) for folder, folders, files in os.walk(mount) for name in (*folders, *files)):
            parts = path.relative_to(mount).parts
            if instance in parts:
                facts[f"pin {path}"] = True
            elif parts != ("hedgerow",):
                facts[f"bpffs on {mount}"] = IN_USE
    if Path("/run/hedgerow").is_dir():
        for path in Path("/run/hedgerow").rglob("*"):
            if re.search(rf"\b{re.escape(instance)}\b", path.name):
                facts[f"run file {path}"] = True
    for key in _GLOBAL_SYSCTLS:
        with contextlib.suppress(OSError):
            facts[f"sysctl {key}"] = Path("/proc/sys", key).read_text(encoding="ascii").strip()


def bpf_objects(pid: int) -> set[tuple[str, int]]:
    """Programs, maps and links a process holds, by the kernel's ids: some time after `down` none of them exists.
    Read from its descriptors, because bpftool of the floor's age does not show what hangs on TCX."""
    found = set()
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):  # a descriptor may be closed while we look
            for line in path.read_text(encoding="ascii").splitlines():
                key, _, value = line.partition(":")
                if key in ("prog_id", "map_id", "link_id"):
                    found.add((key.removesuffix("_id"), int(value)))
    return found


def bpf_object_exists(kind: str, number: int) -> bool:
    """By the kernel's own list and not by a name: other instances may run. Asked of the kernel itself: bpftool for each of
    some fifty objects, after each `down`, took a good part of the suite's time."""
    return bpf_links.exists(kind, number)


def _outputs(host: Host, commands: list[str], *, may_fail: bool = False) -> list[str]:
    """What each of them prints, from one shell. One that fails is an error, or with `may_fail` the same as one that prints nothing."""
    mark = "\x1e"  # between what two commands print; in no output
    after = "" if may_fail else " || exit"
    script = "\n".join(f"{command}{' 2>/dev/null' if may_fail else ''}{after}\nprintf '\\036'" for command in commands)
    return host.run(["sh", "-c", script]).stdout.split(mark)[:-1]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    return "(gone)"
