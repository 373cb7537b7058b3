# SPDX-License-Identifier: Apache-2.0
"""The .deb packages in a booted system with systemd: install, configure, serve, upgrade under load, reboot, purge. What is in them:
debian/packages_test.py."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.dev import walk
from harness.booted import Booted, layered_root, take_away_what_dead_runs_left
from harness.packages import ROOT, of_this_run
from harness.product import BIN, wait_until

ARCHITECTURE = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
# What dpkg, systemd and the users' database keep for themselves. A user stays, for a file of its number may.
KEPT = re.compile(r"var/(lib/(dpkg|systemd|apt|misc)|log|cache|backups|tmp)\b|etc/(passwd|group|g?shadow|\.pwd\.lock|machine-id|ld\.so\.cache|mtab)"
                  r"|etc/systemd/system$|tmp\b|run\b|root\b|home\b|etc/netns\b|usr/share/man\b")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict[str, Path]:
    return of_this_run(tmp_path_factory.mktemp("packages"))


@pytest.mark.parametrize("program,words,page", [("hedgerow", ["help"], 8), ("hedgerow-node", ["help"], 8), ("hedgerowd", [], 8),
                                                ("hedgerow-steer", ["help"], 8),
                                                ("hkv", [], 1)])
def test_a_manual_page_is_what_man_understands_and_a_completion_what_bash_does(program, words, page):
    text = subprocess.run([BIN / program, *words, "--man"], capture_output=True, text=True, check=True, timeout=10).stdout
    judged = subprocess.run(["groff", "-man", "-Tutf8", "-wall", "-z"], input=text, capture_output=True, text=True, check=True,
                            timeout=20)
    assert judged.stderr == ""
    assert text.startswith(f".TH {program.upper()} {page} ".replace("-", "\\-"))
    script = subprocess.run([BIN / program, *words, "--completion"], capture_output=True, text=True, check=True, timeout=10).stdout
    function = "_" + program.replace("-", "_")
    typed = f'{script}\nCOMP_WORDS=({program} --he) COMP_CWORD=1; {function}; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-euc", typed], capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout.strip() == "--help"


@pytest.mark.parametrize("words,completed", [("leader s", "show set"), ("bypass dns o", "on off"), ("leader set d", "dns"), ("steer res", "resize restart")])
def test_the_completion_knows_words_and_what_runs(words, completed, tmp_path):
    script = subprocess.run([BIN / "hedgerow", "help", "--completion"], capture_output=True, text=True, check=True, timeout=10).stdout
    (tmp_path / "hedgerow").write_text(f"#!/bin/sh\n[ $1 = status ] || exec {BIN / 'hedgerow'} \"$@\"\necho '      \"name\": \"dns\",'\n", encoding="utf-8")
    (tmp_path / "hedgerow").chmod(0o755)
    typed = f'PATH={tmp_path}:$PATH\n{script}\nCOMP_WORDS=(hedgerow {words}) COMP_CWORD={len(words.split())}; _hedgerow; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(["bash", "-euc", typed], capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout.strip() == completed


@pytest.mark.parametrize("page,program,key", [("hedgerow.yaml", "hedgerow", "services[].idle_copies"), ("node.yaml", "hedgerow-node", "election.floor")])
def test_a_configuration_has_a_manual_page_and_an_example_that_is_sound(page, program, key, tmp_path):
    text = (ROOT / "build/release/manual" / f"{page}.5").read_text(encoding="utf-8")
    judged = subprocess.run(["groff", "-man", "-Tutf8", "-wall", "-z"], input=text, capture_output=True, text=True, check=True,
                            timeout=20)
    assert judged.stderr == "" and f"\n.B {key}\n" in text and "](" not in text
    secret = tmp_path / "cluster.key"
    secret.write_text("7" * 32, encoding="ascii")
    secret.chmod(0o600)
    example = (ROOT / "docs/examples" / page).read_text(encoding="utf-8")
    (tmp_path / page).write_text(example.replace("/etc/hedgerow-node/cluster.key", str(secret)), encoding="utf-8")
    done = subprocess.run([BIN / program, "validate", "--config", tmp_path / page], capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode == 0 and "sound" in done.stdout, done.stdout + done.stderr


# -- in a booted system ------------------------------------------------------------------------------------------------

NODE_YAML = """\
cluster_id: 7
cluster_key_file: /etc/hedgerow-node/cluster.key
node: 1
members:
  - {id: 1, peer: "127.0.0.1:4802", serve: "127.0.0.1:4801"}
"""
# Two name servers in namespaces of their own, behind a bridge.
NETWORK = """
set -e
ip link add br0 type bridge; ip link set br0 up; ip address add 10.77.0.1/24 dev br0
for host in a:11 b:12; do
  name=${host%:*} number=${host#*:}
  ip netns add $name
  ip link add port$name type veth peer name eth0 netns $name; ip link set port$name master br0 up
  ip -n $name address add 10.77.0.$number/24 dev eth0; ip -n $name link set eth0 up; ip -n $name link set lo up
  ip netns exec $name dnsmasq --conf-file=/dev/null --port=53 --listen-address=10.77.0.$number --bind-interfaces --no-resolv \
    --no-hosts --user=root --host-record=www.example.test,192.0.2.1 --pid-file=/run/dns-$name.pid
done
"""
HKV = "hkv --server 127.0.0.1:4801 --timeout 1s"
ASK = "dig +short +tries=1 +time=3 @10.99.0.53 www.example.test"


@pytest.fixture(scope="module")
def root() -> Iterator[tuple[Path, Path]]:
    with layered_root() as made:
        yield made


@pytest.fixture
def system(root) -> Iterator[Booted]:
    booted = Booted(root[0], f"hr{os.getpid()}")
    yield booted
    booted.end()


def typed_in(page: str) -> dict[str, str]:
    """What an operator types, by the label of its fence."""
    return {step.label: step.commands for step in walk.steps_of((ROOT / "docs" / page).read_text(encoding="utf-8"))}


def changes(layer: Path) -> set[str]:
    """Files that the layer has, or hides."""
    return {found for folder, _, files in os.walk(layer) for each in files
            if not KEPT.match(found := os.path.relpath(os.path.join(folder, each), layer))}


def put_into(root: Path, packages: dict[str, Path], *names: str) -> str:
    """Copies packages to where the booted system sees them; their paths there."""
    for name in names:
        shutil.copy(packages[name], root / "var/tmp")
    return " ".join(f"/var/tmp/{packages[name].name}" for name in names)


def with_dpkg(commands: str) -> str:
    """As apt does it where everything that a package needs is there. apt itself would not install the same version again."""
    return commands.replace("apt install", "dpkg --install").replace("apt purge", "dpkg --purge")


def instance_of(page: dict[str, str], name: str, number: int) -> str:
    """The page's configuration, for a further instance with a VIP of its own."""
    services = page["configure"].split("<<'END'\n")[1].split("END\n")[0].replace("10.99.0.53", f"10.99.0.{53 + number}")
    return (f"instance: {name}\ninterface: hr{number}\nadmin: {{socket: /run/hedgerow/{name}.sock}}\n"
            f"metrics: {{listen: '127.0.0.1:{9469 + number}'}}\n{services}")


def write_config(system: Booted, root: Path, name: str, text: str) -> None:
    (root / f"etc/hedgerow/{name}.yaml").write_text(text, encoding="utf-8")
    system.run(f"chgrp hedgerow /etc/hedgerow/{name}.yaml; chmod 640 /etc/hedgerow/{name}.yaml")


def lost(report: str) -> int:
    return int(re.search(r"Queries lost:\s+(\d+)", report)[1])


@pytest.mark.timeout(600)  # 53 s, of which a machine that others keep busy makes 180
def test_installed_configured_upgraded_under_load_and_removed(packages, root, system):
    before = changes(root[1])
    held = put_into(root[0], packages, "hedgerow", "hedgerow-node", "hkv")
    system.run(f"dpkg --install {held}", timeout=120)
    # Without a configuration the units are skipped, and no unit has failed.
    for unit in ("hedgerowd", "hedgerow-node"):
        assert system.run(f"systemctl is-enabled {unit}").strip() == "enabled"
        assert system.run(f"systemctl is-active {unit}", check=False).strip() == "inactive"
    assert system.run("systemctl --failed --plain --no-legend").strip() == ""
    assert system.run("stat -c '%U %G %a' /etc/hedgerow /etc/hedgerow-node").split() == [
        "root", "hedgerow", "750", "root", "hedgerow-node", "750"]

    system.run(NETWORK)
    page = typed_in("install.md")
    check_a_wrong_file(system, "hedgerowd", "hedgerow", "services: none")
    assert "sound (1 services, 2 backends)" in system.run(page["configure"])
    file = "/etc/hedgerow/hedgerow.yaml"
    asked = system.run(f"chgrp root {file}; for each in validate plan doctor; do hedgerow $each --config {file}; done; chgrp hedgerow {file}", check=False)
    assert asked.count(f"the unit's user hedgerow cannot read {file}") == 3, asked
    assert system.run(page["serve"]).startswith("192.0.2.1\n")
    system.run("man hedgerow > /dev/null && man hedgerow.yaml > /dev/null && python3 -c 'import hkv'")
    check_networkd(root[0], system)

    check_steering(root[0], system, page)

    # Another instance beside it, which outlives a stop of the first.
    second = instance_of(page, "second", 1)
    write_config(system, root[0], "second", second)
    system.run("systemctl enable --now hedgerowd@second")
    assert system.run(ASK.replace(".53", ".54")).strip() == "192.0.2.1"
    system.run("systemctl stop hedgerowd && hedgerow status --socket /run/hedgerow/second.sock")
    assert "The kernel part of default works on" in (refused := system.run("hedgerow down", check=False)) and "clean --instance default" in refused
    system.run("systemctl start hedgerowd")

    # The same package again, as an upgrade does it: the old daemon ends and the new one takes over. The other instance cannot start
    # again, which is no failure of the package.
    write_config(system, root[0], "second", "services: none\n")
    (root[0] / "var/tmp/queries").write_text("www.example.test A\n", encoding="ascii")
    daemon = system.run("systemctl show --property=MainPID --value hedgerowd").strip()
    put_into(root[0], packages, "hedgerow")
    load = system.start("dnsperf -s 10.99.0.53 -d /var/tmp/queries -Q 2000 -l 16")
    said = system.run(f"sleep 2; cd /var/tmp; {with_dpkg(page['upgrade'])}", timeout=120)
    assert load.poll() is None, "the load ended before the upgrade did"
    assert "not every hedgerowd@ instance started again" in said
    assert system.run("systemctl is-active hedgerowd@second", check=False).strip() != "active"
    report, _ = load.communicate(timeout=60)
    assert system.run("systemctl show --property=MainPID --value hedgerowd").strip() not in (daemon, "0")
    assert json.loads(system.run("hedgerow status --json"))["adoption"]["how"] == "adopted"
    assert int(re.search(r"Queries completed:\s+(\d+)", report)[1]) > 16000, report
    assert lost(report) == 0, report

    # As if the maps had another layout.
    system.run(f"cd /var/tmp; {with_dpkg(page['changed layout'])}", timeout=120)
    assert json.loads(system.run("hedgerow status --json"))["adoption"]["how"] == "made"
    assert system.run(ASK).strip() == "192.0.2.1"

    # A daemon that systemd did not start goes with the package, too.
    write_config(system, root[0], "third", instance_of(page, "third", 2))
    system.run("hedgerow up --config /etc/hedgerow/third.yaml")
    assert system.run(ASK.replace(".53", ".55")).strip() == "192.0.2.1"

    system.run(with_dpkg(page["remove"]), timeout=120)
    assert system.run("for each in hedgerowd hedgerow-steer nfcapd; do pgrep -x $each; done", check=False) == ""
    system.run("dpkg --purge hedgerow-node hkv", timeout=120)
    assert system.run(ASK, check=False).strip() != "192.0.2.1"
    assert system.run("ls /sys/fs/bpf/hedgerow 2>/dev/null; ls -d /sys/fs/bpf/hedgerow-steer 2>/dev/null; ip -brief link | grep ^hr", check=False) == ""
    assert changes(root[1]) - before == set()


def five_commands() -> tuple[str, list[str]]:
    """The README's configuration, and what it says to type."""
    part = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## On your own host, in five commands\n")[1].split("\n## ")[0]
    fences = dict(re.findall(r"^```(\w*)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL))
    return fences["yaml"], fences[""].splitlines()


def copies_sent(system: Booted) -> int:
    """As the metrics page of the README's address counts them."""
    page = system.run("python3 -c 'import urllib.request; print(urllib.request.urlopen(\"http://127.0.0.1:9464/metrics\").read().decode())'")
    return sum(int(float(count)) for count in re.findall(r"^hedgerow_(?:hedges|failover_sends)_total\{[^}]*\} (\S+)$", page, re.MULTILINE))


@pytest.mark.timeout(300)
def test_the_readmes_five_commands_lead_to_a_service_that_outlives_its_stopped_server(packages, root, system):
    config, commands = five_commands()
    assert len(commands) == 5 and commands[0].startswith("sudo ./dev package ")  # which `packages` has done
    system.run(NETWORK)
    held = put_into(root[0], packages, "hedgerow")
    (root[0] / "var/tmp/hedgerow.yaml").write_text(config, encoding="utf-8")
    try:
        for command in commands[1:]:
            typed = command.replace("sudo ", "").replace("apt install ./build/packages/*/hedgerow_*.deb", f"dpkg --install {held}")
            said = system.run(f"cd /var/tmp; {typed}", timeout=120)
        assert said.startswith("dns: works\n") and all(f"10.77.0.{host}:53            answers" in said for host in (11, 12)), said
        assert system.run(ASK).strip() == "192.0.2.1"
        before = copies_sent(system)
        system.run("kill -STOP $(cat /run/dns-a.pid)")
        assert [system.run(ASK).strip() for _ in range(5)] == ["192.0.2.1"] * 5
        assert copies_sent(system) > before
    finally:
        system.run("dpkg --purge hedgerow", timeout=120)


def check_a_wrong_file(system: Booted, unit: str, user: str, text: str) -> None:
    """The error stands in the journal as one, once; nothing is started again, and no limit of starts keeps the mended file from it."""
    file = {"hedgerowd": "/etc/hedgerow/hedgerow.yaml", "hedgerow-node": "/etc/hedgerow-node/node.yaml"}[unit]
    system.run(f"echo '{text}' >{file}; chgrp {user} {file}; chmod 640 {file}; for i in 1 2 3; do systemctl start {unit}; done; sleep 3", check=False)
    assert set(system.run(f"systemctl show --property=ExecMainStatus,NRestarts,Result {unit}").split()) == {
        "ExecMainStatus=2", "NRestarts=0", "Result=exit-code"}
    journal = system.run(f"journalctl --no-pager --output=cat --priority=err --unit={unit}")
    said = Counter(line for line in journal.splitlines() if f"{file}:1:" in line)
    assert said and max(said.values()) <= 3, journal  # three starts by hand


def check_networkd(root: Path, system: Booted) -> None:
    """A file of systemd-networkd that matches our links, as cloud images' files do, gives them nothing; x0 is the control."""
    (root / "etc/systemd/network/50-all.network").write_text("[Match]\nName=hr* x0\n[Network]\nAddress=10.76.0.1/24\n", encoding="utf-8")
    # Where /sys is writable networkd waits for udev, which a container does not have.
    system.run("ip link add x0 type veth peer name x1; ip link set x0 up; ip link set x1 up; mount -o remount,bind,ro /sys; systemctl start systemd-networkd; "
               "until ip address show dev x0 | grep -q 10.76.0.1; do sleep 0.1; done; sleep 1; mount -o remount,bind,rw /sys")
    assert "hr" not in system.run("ip -brief address show to 10.76.0.0/24")
    assert system.run("networkctl list --no-legend 'hr0*'").count("unmanaged") == 4
    system.run("rm /etc/systemd/network/50-all.network; systemctl stop systemd-networkd.socket systemd-networkd; ip link del x0")


def workers(system: Booted, group: str = "flows") -> dict[int, int]:
    """Pids by slot."""
    return {slot["slot"]: slot["pid"] for slot in json.loads(system.run(f"hedgerow steer show --name {group} --json"))["slots"]}


def check_steering(root: Path, system: Booted, page: dict[str, str]) -> None:
    """The example of the package, as the page says; a supervisor that dies, and one that is stopped."""
    refused = system.run("systemctl start hedgerow-steer@typo 2>&1 || journalctl --no-pager --unit=hedgerow-steer@typo", check=False)
    assert "Failed to load environment files" in refused and "/etc/hedgerow/steer/typo.conf" in refused
    assert "flows: 0.0.0.0:2055 (udp)" in system.run(page["steer"])
    system.run("until [ $(ss -Hlunp sport = :2055 | grep -o nfcapd | wc -l) = 2 ]; do sleep 0.1; done")
    before = workers(system)
    for pid in before.values():
        # Neither root nor able to become it again.
        status = dict(re.findall(r"^(\w+):\s*(.*)$", system.run(f"cat /proc/$(pgrep -x nfcapd -P {pid} || echo {pid})/status"), re.MULTILINE))
        assert "0" not in status["Uid"].split() and int(status["CapEff"], 16) == 0 and status["NoNewPrivs"] == "1", status
    system.run("systemctl kill --kill-whom=main --signal=KILL hedgerow-steer@flows; sleep 0.1; "
               "until systemctl is-active --quiet hedgerow-steer@flows; do sleep 0.1; done")
    assert workers(system) == before, "the next supervisor took the workers over"
    # Wrong options: it says so, and is not tried again.
    (root / "etc/hedgerow/steer/wrong.conf").write_text('STEER_OPTIONS="--listen nowhere"\nSTEER_COMMAND="sleep 9"\n', encoding="utf-8")
    system.run("systemctl start hedgerow-steer@wrong", check=False)
    assert set(system.run("systemctl show --property=ExecMainStatus,NRestarts hedgerow-steer@wrong").split()) == {"ExecMainStatus=2", "NRestarts=0"}
    system.run("systemctl reset-failed 'hedgerow-steer@*'; systemctl stop hedgerow-steer@flows")
    assert system.run("pgrep -x nfcapd; ls /run/hedgerow-steer /sys/fs/bpf | grep -w flows", check=False) == ""
    system.run("systemctl start hedgerow-steer@flows")  # it goes with the package
    check_adoption(system, page)


def check_adoption(system: Booted, page: dict[str, str]) -> None:
    """The unit waits for a daemon that is not there yet, takes another user's sockets of a privileged port, and follows a restart."""
    daemon = ("systemd-run --quiet --unit=acct{0} --uid=nobody -p AmbientCapabilities=CAP_NET_BIND_SERVICE "
              "nfacctd -L 127.0.0.1 -l 656 -P print -c src_host -r 600 -o /dev/null")
    write, enable, show = page["adopt"].replace("2056", "656").splitlines()
    system.run(f"{write}; {enable} --no-block")
    system.run("until journalctl --no-pager --unit=hedgerow-steer-adopt@acct | grep -q 'no process has 127.0.0.1:656 open'; do sleep 0.1; done")
    for number in (0, 1):
        system.run(daemon.format(number))
    assert "acct: 127.0.0.1:656 (udp)" in system.run(f"until {show} 2>/dev/null; do sleep 0.1; done")
    before = workers(system, "acct")
    system.run("systemctl kill --signal=KILL acct1; " + daemon.format(2))
    system.run(f"until {show} | grep -qw $(systemctl show --property=MainPID --value acct2); do sleep 0.1; done")
    assert len(set(workers(system, "acct").values()) & set(before.values())) == 1
    system.run("systemctl stop hedgerow-steer-adopt@acct; systemctl kill --signal=KILL acct0 acct2")
    assert system.run("ls /run/hedgerow-steer /sys/fs/bpf | grep -w acct", check=False) == ""


def test_a_node_is_there_again_with_what_it_stored_after_a_reboot(packages, root):
    booted = Booted(root[0], f"hr{os.getpid()}")
    try:
        held = put_into(root[0], packages, "hedgerow-node", "hkv")
        booted.run(f"dpkg --install {held}", timeout=120)
        check_a_wrong_file(booted, "hedgerow-node", "hedgerow-node", "node: 9")
        (root[0] / "etc/hedgerow-node/node.yaml").write_text(NODE_YAML, encoding="utf-8")
        booted.run("umask 027; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n' > /etc/hedgerow-node/cluster.key; "
                   "chgrp hedgerow-node /etc/hedgerow-node/*; chmod 640 /etc/hedgerow-node/*; systemctl start hedgerow-node")
        booted.run(f"until {HKV} put name alice; do sleep 0.1; done")
    finally:
        booted.end()
    booted = Booted(root[0], f"hr{os.getpid()}")
    try:
        assert booted.run(f"until {HKV} get name 2>/dev/null; do sleep 0.1; done").strip() == "alice"
        # What a node that died has promised goes with its data.
        booted.run("install -d -o hedgerow-node /sys/fs/bpf/hedgerow/node-9-of-the-past; dpkg --purge hedgerow-node", timeout=120)
        assert booted.run("ls /sys/fs/bpf/hedgerow") == ""
    finally:
        booted.end()


def seconds_in_a_bare(suite: str, folder: Path) -> float:
    """No compiler, nothing of this machine: debootstrap, the packages of `folder` and what they need from the distribution's archive. From
    apt to the first answer."""
    page = typed_in("install.md")
    install = page["packages"].replace("apt install", "apt-get install -y --no-install-recommends")
    archive = subprocess.run(["tar", "-C", folder, "-c", "."], capture_output=True, check=True, timeout=30).stdout
    done = subprocess.run(
        [ROOT / "deploy/dev/chroot_trial.sh", "--suite", suite, "--keep", "sh", "-euc",
         "mkdir /root/packages; tar -x -C /root/packages; export DEBIAN_FRONTEND=noninteractive; apt-get update; "
         "apt-get install -y --no-install-recommends systemd systemd-sysv dbus iproute2 dnsmasq-base bind9-dnsutils; "
         f"cd /root/packages; date +begun=%s; {install} date +done=%s; ! command -v cc gcc clang make"],
        input=archive, capture_output=True, check=False, timeout=900)
    said = done.stdout.decode(errors="replace")
    kept = re.search(r"^kept: (\S+)", said, re.MULTILINE)
    try:
        assert done.returncode == 0, said[-3000:] + done.stderr.decode(errors="replace")[-2000:]
        begun, installed = (int(re.search(rf"^{word}=(\d+)", said, re.MULTILINE)[1]) for word in ("begun", "done"))
        booted = Booted(Path(kept[1]), f"hr{os.getpid()}")
        try:
            booted.run(NETWORK)
            started = time.monotonic()
            booted.run(page["configure"])
            assert booted.run(page["serve"]).startswith("192.0.2.1\n")
            return installed - begun + time.monotonic() - started
        finally:
            booted.end()
    finally:
        if kept:
            subprocess.run(["rm", "-rf", "--one-file-system", kept[1]], check=True, timeout=120)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_bare_system_of_this_distribution_answers_through_the_vip_within_five_minutes(packages):
    suite = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    if suite is None or suite[1] not in ("bookworm", "trixie", "noble"):
        pytest.skip("the packages of this build are for another distribution")
    took = seconds_in_a_bare(suite[1], packages["hedgerow"].parent)
    print(f"from apt to the first answer: {took:.0f} s")
    assert took < 300


KILLED = """
import os, sys, time
sys.path[:0] = [{root!r}, {e2e!r}]
from harness.booted import Booted, layered_root, take_away_what_dead_runs_left
with layered_root() as root:
    print(Booted(root[0], f"hr{{os.getpid()}}")._leader, root[0].parent, flush=True)
    time.sleep(60)
"""


def test_a_run_that_is_killed_leaves_no_system():
    code = KILLED.format(root=str(ROOT), e2e=str(Path(__file__).parent))
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    leader, layer = run.stdout.readline().split()
    assert Path("/proc", leader).exists()
    run.kill()
    run.communicate(timeout=10)
    wait_until(lambda: not Path("/proc", leader).exists(), timeout_s=30, what="the end of the booted system")
    take_away_what_dead_runs_left()
    assert not Path(layer).exists() and layer not in Path("/proc/mounts").read_text(encoding="utf-8")
