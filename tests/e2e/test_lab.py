# SPDX-License-Identifier: Apache-2.0
"""The lab itself: it comes up fast, carries both families, and nothing of it stays, whatever happened to it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.lab import CommandFailed, Lab, LabInUse, Uplink, names, netns
from harness.dead_runs import is_left_by_a_dead_run

PROJECT = Path(__file__).resolve().parents[2]
# With our pid, as in conftest.py: two runs on one machine do not meet, and a later run finds what we left.
TLAB, TCRASH, TCLI = (f"self{os.getpid()}{letter}" for letter in "123")


def leftovers(tag: str) -> list[str]:
    """Whatever of a lab can still be seen on the machine."""
    found = netns.of_lab(tag)
    if names.run_dir(tag).exists():
        found.append(str(names.run_dir(tag)))
    with open("/proc/net/dev", encoding="ascii") as devices:
        found += [line.split(":")[0].strip() for line in devices if f"hr-{tag}" in line]
    return found


def ping(host, address: str) -> bool:
    return host.run(["ping", "-c1", "-W1", address], check=False).returncode == 0


def test_comes_up_in_about_a_second_and_both_families_answer_at_once():
    started = time.monotonic()
    with Lab(TLAB, replicas=3) as lab:
        up_s = time.monotonic() - started
        for replica in lab.replicas:
            assert ping(lab.client, replica.ipv4)
            assert ping(lab.client, replica.ipv6)
        assert lab.replica("b").ipv4 == "10.77.0.12" and lab.replica("b").ipv6 == "fd77::c"
    assert up_s < 10.0  # 0.15 s on an idle machine; the bound leaves room for a busy one
    assert not leftovers(TLAB)


def test_further_client_hosts_are_beside_the_first():
    with Lab(TLAB, replicas=1, clients=3) as lab:
        assert [host.ipv4 for host in lab.clients] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
        for client in lab.clients:
            assert ping(client, lab.replica("a").ipv4) and ping(client, lab.replica("a").ipv6)
            assert client.sysctl("net.ipv4.conf.all.rp_filter") == "1"
        assert len(Lab.attach(TLAB).clients) == 3
    assert not leftovers(TLAB)
    with pytest.raises(ValueError, match="9 client hosts, expected 1 to 8"):
        Lab(TLAB, clients=9)


def test_bridged_packets_do_not_meet_netfilter_in_the_switch():
    with Lab(TLAB) as lab, netns.entered(names.netns_name(TLAB, "sw")):
        for path in Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"):
            assert path.read_text().strip() == "0", path
        assert lab.client.sysctl("net.ipv4.conf.all.rp_filter") == "1"


def test_a_program_in_a_host_sees_that_hosts_network_and_the_machines_bpffs():
    with Lab(TLAB) as lab:
        assert "10.77.0.1/24" in lab.client.run(["ip", "-br", "address"]).stdout
        mounts = lab.client.run(["cat", "/proc/self/mounts"]).stdout
        assert mounts == Path("/proc/self/mounts").read_text()
        with pytest.raises(CommandFailed, match="no-such"):
            lab.client.run(["ip", "link", "show", "no-such"])


def test_a_command_over_its_time_is_killed_with_its_children():
    with Lab(TLAB) as lab:
        with pytest.raises(subprocess.TimeoutExpired):
            lab.client.run(["sh", "-c", "sleep 60 & sleep 60; :"], timeout=0.3)
        assert not lab.client.pids()


def test_processes_die_with_the_lab_also_those_that_detached_themselves():
    with Lab(TLAB) as lab:
        child = lab.client.popen(["sleep", "60"])
        lab.client.run(["setsid", "--fork", "sleep", "61"])
        detached = [pid for pid in lab.client.pids() if pid != child.pid]
        assert len(detached) == 1
    assert child.poll() is not None
    assert not _alive(detached[0])
    assert not leftovers(TLAB)


def test_a_process_outside_the_lab_survives_although_it_is_in_the_registry():
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        with Lab(TLAB) as lab:
            lab.registry.add(stranger.pid, "client", ["a pid that was used again"])
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_lab_whose_python_was_killed_is_replaced_by_the_next_and_removed_by_clean():
    code = (f"import os, signal\nfrom deploy.lab import Lab\nlab = Lab('{TCRASH}', inner=True).up()\n"
            "print(lab.client.popen(['sleep', '60'], log='/dev/null').pid, flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n")

    def crash() -> int:
        done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=30)
        assert done.returncode == -signal.SIGKILL, done.stderr
        return int(done.stdout)

    orphan = crash()
    assert leftovers(TCRASH) and Path(f"/proc/{orphan}").exists()  # the crash really left something to find
    with Lab(TCRASH) as lab:
        assert not _alive(orphan)
        assert ping(lab.client, "10.77.0.11")
        assert f"hr-{TCRASH}-inner" not in netns.of_lab(TCRASH)
    assert not leftovers(TCRASH)

    orphan = crash()
    assert Lab.clean(TCRASH) is True
    assert not _alive(orphan) and not leftovers(TCRASH)
    assert Lab.clean(TCRASH) is False


def _alive(pid: int) -> bool:
    """A killed orphan may stay a zombie until its new parent looks."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_lab_of_a_living_process_is_neither_replaced_nor_cleaned():
    with Lab(TLAB) as lab:
        with pytest.raises(LabInUse):
            Lab(TLAB).up()
        with pytest.raises(LabInUse):
            Lab.clean(TLAB)
        assert ping(lab.client, "10.77.0.11")


def test_a_failure_while_building_leaves_nothing(monkeypatch):
    monkeypatch.setattr(Lab, "_configure", lambda *_: (_ for _ in ()).throw(OSError("planted")))
    with pytest.raises(OSError, match="planted"):
        Lab(TLAB).up()
    assert not leftovers(TLAB)


def test_a_cut_wire_is_silent_and_heals_and_an_unplugged_uplink_is_gone_until_plugged():
    with Lab(TLAB) as lab:
        lab.cut("a")
        assert not ping(lab.client, "10.77.0.11") and ping(lab.client, "10.77.0.12")
        assert lab.replica("a").run(["cat", "/proc/net/route"]).stdout.count("eth0")  # carrier and routes are kept
        lab.heal("a")
        # The neighbour that went unanswered is asked for again once a second.
        assert any(ping(lab.client, "10.77.0.11") for _ in range(4))
        lab.unplug("client")
        assert lab.client.run(["ip", "link", "show", "eth0"], check=False).returncode != 0
        lab.plug("client")
        assert ping(lab.client, "fd77::b")


def passes(source, destination) -> bool:
    """One datagram, one way."""
    with destination.socket() as receiver, source.socket() as sender:
        receiver.bind((destination.ipv4, 7000))
        receiver.settimeout(0.3)
        sender.sendto(b"x", (destination.ipv4, 7000))
        try:
            return receiver.recv(16) == b"x"
        except TimeoutError:
            return False


@pytest.mark.parametrize("direction, out, into", [("both", False, False), ("out", False, True), ("in", True, False)])
def test_a_wire_can_be_cut_in_one_direction(direction, out, into):
    with Lab(TLAB) as lab:
        a, b = lab.replica("a"), lab.replica("b")
        assert ping(a, b.ipv4)
        lab.cut("a", direction)
        assert (passes(a, b), passes(b, a)) == (out, into)
        lab.heal("a")
        assert passes(a, b) and passes(b, a)


def arrivals(source, destination, count: int) -> int:
    """Of so many datagrams."""
    with destination.socket() as receiver, source.socket() as sender:
        receiver.bind((destination.ipv4, 7000))
        receiver.settimeout(0.05)
        arrived = 0
        for _ in range(count // 50):  # in portions that fit the receiver's buffer
            for _ in range(50):
                sender.sendto(b"x", (destination.ipv4, 7000))
            for _ in range(50):
                try:
                    receiver.recv(16)
                except TimeoutError:
                    break
                arrived += 1
        return arrived


_RUNNER = """
import sys, time
from deploy.lab import Lab
with Lab(sys.argv[1]) as lab:
    for ends in (True, False):
        print(lab.client.popen(["sleep", "120"], ends_with_runner=ends).pid, flush=True)
    time.sleep(60)
"""


def test_a_load_ends_with_its_runner_however_that_ends():
    with subprocess.Popen([sys.executable, "-c", _RUNNER, TLAB], stdout=subprocess.PIPE, text=True, cwd=PROJECT) as runner:
        load, server = (int(runner.stdout.readline()) for _ in range(2))
        runner.kill()
    try:
        deadline = time.monotonic() + 5
        while alive(load) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive(load) and alive(server)
    finally:
        Lab.clean(TLAB)
    assert not alive(server)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_an_uplink_without_checksum_offload_says_so_and_works():
    with Lab(TLAB, client_uplink=Uplink(tx_checksum=False, mtu=1400)) as lab:
        assert lab.client.tx_checksum() is False and lab.replica("a").tx_checksum() is True
        assert "mtu 1400" in lab.client.run(["ip", "link", "show", "eth0"]).stdout
        assert ping(lab.client, "10.77.0.11")


def test_a_rate_slows_what_a_host_sends():
    with Lab(TLAB) as lab:
        command = ["ping", "-c5", "-i0.001", "-s1400", "-W2", "10.77.0.11"]
        lab.replica("a").shape(rate_kbit=500)
        text = lab.client.run(command).stdout
        slowest_ms = float(re.search(r"= [\d.]+/[\d.]+/([\d.]+)/", text).group(1))
        assert slowest_ms > 15  # 23 ms for each answer of 1442 B beyond the burst; an unshaped one takes 0.1 ms
        lab.replica("a").shape()
        assert "tbf" not in lab.replica("a").run(["tc", "qdisc", "show"]).stdout


@pytest.mark.parametrize("kind", ["iptables", "nft"])
def test_a_container_reaches_the_replicas_behind_masquerade(kind):
    with Lab(TLAB, inner=True, nat=kind) as lab:
        for address in ("10.77.0.11", "fd77::b"):
            assert ping(lab.inner, address)
        # The replica has no route to the container's network: only a rewritten source can have been answered.
        assert not ping(lab.replica("a"), lab.inner.ipv4)


def test_a_container_without_nat_is_routed():
    with Lab(TLAB, inner=True, nat=None) as lab:
        assert ping(lab.inner, "10.77.0.11") and ping(lab.inner, "fd77::b")
        assert ping(lab.replica("a"), lab.inner.ipv4)


@pytest.mark.parametrize("tag", ["", "two-parts", "UPPER", "x" * 13, "../x"])
def test_a_tag_that_could_name_something_else_is_refused(tag):
    with pytest.raises(ValueError, match="lab tag"):
        Lab(tag)


def test_only_a_dead_runs_lab_is_a_leftover():
    """Two files run at a time: a lab that the other one keeps for a moment is not this one's to remove."""
    assert not is_left_by_a_dead_run(f"e2e{os.getpid()}") and not is_left_by_a_dead_run(f"self{os.getpid()}3")
    assert is_left_by_a_dead_run(f"e2e{10**9}") and not is_left_by_a_dead_run("demo")  # above every pid; no test's tag


def test_every_tag_of_these_files_is_known_when_its_run_is_dead():
    tags = {(prefix, suffix + letter[:1]) for path in sorted(Path(__file__).parent.glob("*.py"))
            for prefix, suffix, letter in re.findall(r'f"([a-z0-9]+)\{os\.getpid\(\)[^}]*\}(\w*)((?:\{letter\})?)"', path.read_text(encoding="utf-8"))
            if prefix != "hr"}  # a booted system, which has no lab
    assert len(tags) > 10
    assert [tag for tag in sorted(tags) if not is_left_by_a_dead_run(f"{tag[0]}{10**9}{tag[1].rstrip('{')}")] == []
    longest_pid = 4194303  # PID_MAX_LIMIT of Linux, less one
    assert [tag for tag in sorted(tags) if not names.check_tag(f"{tag[0]}{longest_pid}{tag[1].replace('{', 'x')}")] == []


def test_of_a_lab_whose_mounts_are_gone_the_names_are_removed():
    """A killed run had mounts of its own: for the next one its namespaces are empty files."""
    name = names.netns_name(TCLI, names.SWITCH)
    names.NETNS_DIR.mkdir(exist_ok=True)
    (names.NETNS_DIR / name).touch()
    assert not netns.is_namespace(name) and netns.of_lab(TCLI) == [name]
    Lab.clean(TCLI)
    assert netns.of_lab(TCLI) == []


def test_the_command_line_keeps_a_lab_until_down():
    def lab_command(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "deploy.lab", *words, "--tag", TCLI], cwd=PROJECT,
                              capture_output=True, text=True, timeout=30, env={**os.environ, "SHELL": "/bin/sh"},
                              stdin=subprocess.DEVNULL)

    try:
        assert lab_command("status").returncode == 1
        up = lab_command("up", "--replicas", "1")
        assert up.returncode == 0 and f"lab {TCLI} is up" in up.stdout
        assert "10.77.0.11" in lab_command("status").stdout
        assert lab_command("shell").returncode == 0
    finally:
        down = lab_command("down")
    assert down.returncode == 0 and not leftovers(TCLI)
