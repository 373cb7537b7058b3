# SPDX-License-Identifier: Apache-2.0
"""Daemons of Debian that know nothing of it, under `hedgerow steer`: adopted where they set SO_REUSEPORT, else started with
`hedgerow steer bind`. Each source meets one worker, the one that `explain` names; what a restarted worker was sent waits for it."""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from deploy.dev import walk
from harness.product import BIN, PROJECT, wait_until
from harness.steer import IPV4, PORT, Group, fixtures
from harness.steer_daemons import ADDRESS, FLOWS, NFACCTD_READY, Daemons, daemons_in, dns_question, is_answer

SO_ATTACH_REUSEPORT_CBPF = 51
SOURCES = IPV4[:16]
BIND = (str(BIN / "hedgerow-steer"), "bind", "--")

_net, _folder, _group = fixtures("steerd")


@pytest.fixture(name="daemons")
def _daemons(net, folder):
    with daemons_in(net, folder) as daemons:
        yield daemons


def explained(group: Group, sources=SOURCES) -> dict[str, dict]:
    return {source: group.ask("explain", source) for source in sources}


def selected(group: Group) -> dict[int, tuple[int, int]]:
    """By slot, what the kernel has given it by UDP and TCP."""
    return {number: (slot["selected_udp"], slot["selected_tcp"]) for number, slot in group.slots().items()}


def ask_udp(net, source: str, timeout_s: float = 3.0) -> bool:
    with net.open(socket.SOCK_DGRAM, source) as sock:
        sock.settimeout(timeout_s)
        sock.connect((ADDRESS, PORT))
        try:
            sock.send(dns_question())
            return is_answer(sock.recv(2048))
        except (TimeoutError, ConnectionRefusedError):
            return False


def ask_tcp(net, source: str) -> bool:
    with net.connect(source) as sock:
        question = dns_question()
        sock.sendall(len(question).to_bytes(2, "big") + question)
        return is_answer(sock.recv(2048)[2:])


OWN_GROUPS = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
              'mkdir -p /run/hedgerow-steer && mount -t tmpfs -o mode=0755 tmpfs /run/hedgerow-steer && exec "$@"', "sh")


def test_the_page_works_as_it_stands(net, monkeypatch):
    """docs/steer.md, typed. Its default names are the machine's, so it has a folder of groups to itself."""
    monkeypatch.setenv("PATH", f"{BIN}:/usr/sbin:{os.environ['PATH']}")
    page = (PROJECT / "docs" / "steer.md").read_text(encoding="utf-8")
    try:
        with net.entered():
            wrong, _ = walk.walk(page, tag=walk.TAG, build=False, within=OWN_GROUPS)
    finally:
        net.kill_all()
    assert wrong == [], "\n".join(wrong)


# -- adopted -----------------------------------------------------------------------------------------------------------


def test_nginx_is_adopted_and_followed_through_a_reload(net, daemons: Daemons, group):
    master = daemons.start(*daemons.nginx(2, reuseport=True))
    daemons.wait_sockets(2)
    with net.connect(IPV4[20]) as first:  # open before the adoption, at some worker
        holder = int(first.recv(100))
    group.adopt(master.pid)

    def met() -> dict[str, set[int]]:
        return {source: {int(net.udp(source)), int(net.tcp(source)), int(net.udp(source))} for source in SOURCES}

    before = explained(group)
    assert holder in {slot["pid"] for slot in group.slots().values()}
    assert met() == {source: {found["pid"]} for source, found in before.items()}
    assert len({found["slot"] for found in before.values()}) == 2
    master.send_signal(signal.SIGHUP)  # other workers on the same sockets
    wait_until(lambda: not {found["pid"] for found in before.values()} & set(group.pids().values()), 5, "the new workers")
    after = explained(group)
    assert met() == {source: {found["pid"]} for source, found in after.items()}
    assert {source: found["slot"] for source, found in after.items()} == {source: found["slot"] for source, found in before.items()}
    # A worker that is killed: its socket is the master's, and the worker that follows reads on.
    victim = after[SOURCES[0]]
    os.kill(victim["pid"], signal.SIGKILL)
    assert int(net.udp(SOURCES[0])) != victim["pid"]
    # When the supervisor ends, the kernel spreads again: by ports, so that one source meets both.
    group.process.terminate()
    assert group.process.wait(5) == 0
    assert len({net.udp(SOURCES[0]) for _ in range(40)}) == 2


def test_nsd_is_adopted_by_udp_where_its_processes_share_one_tcp_socket(net, daemons: Daemons, group):
    """They do in Debian 12's nsd 4.6. In Debian 13's 4.12 each has its own, and is adopted by both."""
    master = daemons.start(*daemons.nsd(2, reuseport=True))
    daemons.wait_sockets(2)
    wait_until(lambda: ask_udp(net, IPV4[30], 0.2), 5, "nsd answers")
    if daemons.sockets("t") == 1:
        with pytest.raises(AssertionError, match=r"(?s)listening TCP socket.*--transport udp"):
            group.adopt(master.pid)
        group.stop()
    else:
        assert daemons.sockets("t") == 2
        group.adopt(master.pid)
        before = selected(group)
        assert all(ask_tcp(net, source) for source in SOURCES)
        gained = {number: tcp - before[number][1] for number, (_, tcp) in selected(group).items()}
        named = [found["slot"] for found in explained(group).values()]
        assert gained == {number: named.count(number) for number in gained}
        group.stop()
    group.adopt(master.pid, options=("--transport", "udp"))
    found = explained(group)
    stopped = found[SOURCES[0]]["pid"]
    os.kill(stopped, signal.SIGSTOP)  # so the answer tells which process was asked
    try:
        others = [source for source in SOURCES if found[source]["pid"] != stopped]
        assert others and all(ask_udp(net, source) for source in others)
        assert not any(ask_udp(net, source, 0.05) for source in SOURCES if source not in others)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert all(ask_udp(net, source) for source in SOURCES)


def test_a_daemon_whose_sockets_cannot_be_paired_is_adopted_by_one_transport(net, daemons: Daemons, group):
    """knot's threads serve one transport each."""
    process = daemons.start(*daemons.knot(2, reuseport=True))
    daemons.wait_sockets(2, "t")
    wait_until(lambda: ask_udp(net, IPV4[30], 0.2), 5, "knot answers")
    with pytest.raises(AssertionError, match="no epoll set shows which of them belong together"):
        group.adopt(process.pid)
    group.adopt(process.pid, options=("--transport", "udp"))
    for source, found in explained(group, SOURCES[:6]).items():
        before = selected(group)
        assert ask_udp(net, source)
        assert {number: udp - before[number][0] for number, (udp, _) in selected(group).items()} == {
            number: int(number == found["slot"]) for number in before}


def test_a_daemon_of_threads_is_adopted_by_its_sockets(net, daemons: Daemons, group):
    process = daemons.start(*daemons.unbound(2, reuseport=True))
    daemons.wait_sockets(2, "t")
    wait_until(lambda: ask_udp(net, IPV4[30], 0.2), 5, "unbound answers")
    group.adopt(process.pid)
    for source, found in explained(group, SOURCES[:6]).items():
        before = selected(group)
        assert ask_udp(net, source) and ask_tcp(net, source)
        gained = {number: (udp - before[number][0], tcp - before[number][1]) for number, (udp, tcp) in selected(group).items()}
        assert gained == {number: (1, 1) if number == found["slot"] else (0, 0) for number in gained}
    assert set(group.pids().values()) == {process.pid}


def test_nfacctd_and_its_exporters_and_a_worker_that_restarts(net, daemons: Daemons, group):
    first, second = (daemons.start(*daemons.nfacctd(name)) for name in ("one", "two"))
    daemons.wait_said("nfacctd", NFACCTD_READY, 2)
    group.adopt(first.pid, second.pid)
    names = {first.pid: "one", second.pid: "two"}
    expected: dict[str, dict[str, int]] = {"one": {}, "two": {}}
    # Some of each: with a random key one of 128 groups gives eight sources to one worker.
    every = explained(group, IPV4)
    found = {source: every[source] for pid in names for source in [each for each in every if every[each]["pid"] == pid][:4]}
    for source, slot in found.items():
        daemons.export(source)
        expected[names[slot["pid"]]][source] = FLOWS
    wait_until(lambda: {name: daemons.exporters_in(name) for name in expected} == expected, 6, "what the exporters sent")
    assert all(expected.values())
    # With sockets of its own a worker that ends takes its queue along; the next one takes its slot.
    slot = next(each["slot"] for each in found.values() if each["pid"] == first.pid)
    daemons.stop(first, signal.SIGKILL)
    group.wait_state(slot, "empty")
    source = next(source for source, each in found.items() if each["slot"] == slot)
    daemons.export(source)
    wait_until(lambda: daemons.exporters_in("two").get(source) == FLOWS, 6, "the exporter meanwhile, at the other worker")
    third = daemons.start(*daemons.nfacctd("three"))
    daemons.wait_sockets(2)
    # It was started with another configuration than any worker was, so the operator says that it is one.
    wait_until(lambda: any("`hedgerow steer resize 2` gives it a slot" in problem for problem in group.ask("show")["problems"]), 6, "the candidate")
    group.ask("resize", "2")
    group.wait_state(slot, "serving")
    # For a moment its plugin has a copy of the socket, and may be taken for the worker.
    wait_until(lambda: group.pids()[slot] == third.pid, 6, "the restarted worker")
    daemons.wait_said("nfacctd", NFACCTD_READY, 3)
    daemons.export(source)
    wait_until(lambda: daemons.exporters_in("three") == {source: FLOWS}, 6, "the restarted worker's exporter")


@pytest.mark.parametrize("policy", [pytest.param("reject", marks=pytest.mark.long), "next", "kernel"])
def test_an_adopted_slot_without_a_socket_goes_by_empty_until_the_daemon_is_back(net, daemons: Daemons, group, policy):
    workers = [daemons.echo() for _ in range(2)]
    daemons.wait_sockets(2)
    group.adopt(*(worker.pid for worker in workers), options=("--empty", policy, "--empty-after", "100ms"))

    def met() -> dict[str, str]:
        found = {}
        for source in SOURCES[:8]:
            with net.open(socket.SOCK_DGRAM, source) as sock:
                sock.settimeout(0.05)
                sock.connect((ADDRESS, PORT))
                try:
                    sock.send(b"x")
                    found[source] = sock.recv(100).decode()
                except (TimeoutError, ConnectionRefusedError) as error:
                    found[source] = type(error).__name__
        return found

    def wanted() -> dict[str, str]:
        return {source: str(found["pid"]) for source, found in explained(group, SOURCES[:8]).items()}

    before = wanted()
    assert met() == before
    gone, stays = (str(worker.pid) for worker in workers)
    daemons.stop(workers[0], signal.SIGKILL)
    wait_until(lambda: {slot["state"] for slot in group.slots().values()} == {"serving", "empty"}, 5, "an empty slot")
    instead = {"reject": "ConnectionRefusedError", "next": stays, "kernel": stays}[policy]
    assert met() == {source: instead if pid == gone else pid for source, pid in before.items()}
    daemons.stop(workers[1], signal.SIGKILL)  # the daemon as a whole is restarted
    wait_until(lambda: {slot["state"] for slot in group.slots().values()} == {"empty"}, 5, "two empty slots")
    daemons.wait_sockets(0)  # the group has none of its own that would hold the daemon's port
    again = [daemons.echo() for _ in range(2)]
    daemons.wait_sockets(2)
    wait_until(lambda: {slot["state"] for slot in group.slots().values()} == {"serving"}, 5, "both slots")
    assert set(group.pids().values()) == {worker.pid for worker in again}
    assert met() == wanted()
    # The next supervisor goes on with table and slots.
    last = wanted()
    group.kill()
    assert met() == last
    group.adopt(*(worker.pid for worker in again), options=("--empty", policy))
    assert wanted() == last and met() == last


def test_a_daemon_that_comes_back_with_fewer_workers_answers_every_source_also_without_a_supervisor(net, daemons: Daemons, group):
    workers = [daemons.echo() for _ in range(3)]
    daemons.wait_sockets(3)
    group.adopt(*(worker.pid for worker in workers))
    for worker in workers:
        daemons.stop(worker, signal.SIGKILL)
    only = daemons.echo()
    wait_until(lambda: sorted(slot["state"] for slot in group.slots().values()) == ["empty", "empty", "serving"], 5, "one worker")
    assert {net.udp(source) for source in SOURCES} == {str(only.pid)}
    one = next(source for source, found in explained(group).items() if found.get("pid", 0) == 0)
    assert "the kernel gives the packet to any socket of the daemon" in group.cli("explain", one).stdout
    group.kill()
    more = daemons.echo()
    daemons.wait_sockets(2)
    daemons.stop(only, signal.SIGKILL)
    daemons.wait_sockets(1)
    assert {net.udp(source) for source in SOURCES} == {str(more.pid)}, "its socket is in no slot"


def test_a_daemons_own_filter_chooses_again_when_it_is_given_back(net, daemons: Daemons, group):
    third = (ctypes.c_uint32 * 2)(0x06, 2)  # BPF_RET | BPF_K: the third socket
    filters = struct.pack("HxxxxxxQ", 1, ctypes.addressof(third))
    with contextlib.ExitStack() as opened:
        with net.entered():
            sockets = [opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(4)]
            for sock in sockets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                sock.bind((ADDRESS, PORT))
        sockets[0].setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, filters)

        def met() -> set[int]:
            for source in SOURCES:
                with net.open(socket.SOCK_DGRAM, source) as client:
                    client.sendto(b"x", (ADDRESS, PORT))
            got = [(number, bytes) for number, sock in enumerate(sockets) for bytes in received(sock)]
            assert len(got) == len(SOURCES)
            return {number for number, _ in got}

        assert met() == {2}
        for end in (lambda: group.ask("stop"), group.kill):
            group.adopt(os.getpid())
            assert len(met()) > 1
            end()
        assert len(met()) > 1, "the killed one's programs are in force"
        group.stop()  # `clean`
        assert met() == {2}


def received(sock: socket.socket) -> list[bytes]:
    got = []
    with contextlib.suppress(BlockingIOError):
        while True:
            got.append(sock.recv(100, socket.MSG_DONTWAIT))
    return got


def test_pmbmpd_and_routers_that_speak_bmp(daemons: Daemons, group):
    workers = {daemons.start(*daemons.pmbmpd(name)).pid: name for name in ("one", "two")}
    daemons.wait_sockets(2, "t")
    group.adopt(*workers)
    expected: dict[str, set[str]] = {"one": set(), "two": set()}
    for source, slot in explained(group).items():
        name = workers[slot["pid"]]
        if len(expected[name]) < 2:
            expected[name].add(source)
            speaker = daemons.speak_bmp(source, PORT)
            wait_until(lambda name=name, source=source: source in daemons.routers_in(name), 5, f"{source} at {name}")
            daemons.stop(speaker, signal.SIGKILL)
    assert {name: daemons.routers_in(name) for name in expected} == expected


# -- with the supervisor's sockets -------------------------------------------------------------------------------------


def test_nfcapd_has_the_supervisors_sockets_and_loses_nothing_in_a_restart(daemons: Daemons, group, folder):
    for slot in range(2):
        (folder / f"flows-{slot}").mkdir()
    group.run(*BIND, "/usr/bin/nfcapd", "-p", str(PORT), "-b", ADDRESS, "-w", f"{folder}/flows-%s", "-t", "3600",
              options=("--transport", "udp", "--empty-after", "10s"))
    found = explained(group)
    pids = group.pids()
    for source in SOURCES[:8]:
        daemons.export(source)
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)  # what comes now waits in the sockets
    for source in SOURCES[8:]:
        daemons.export(source)
    for slot, pid in pids.items():
        os.kill(pid, signal.SIGCONT)
        group.cli("restart", str(slot))
        daemons.export(next(source for source, each in found.items() if each["slot"] == slot))
    wait_until(lambda: not set(pids.values()) & set(group.pids().values()), 5, "other workers")
    again = {next(source for source, each in found.items() if each["slot"] == slot) for slot in pids}
    wait_until(lambda: all(slot["udp_queued_bytes"] == 0 for slot in group.slots().values()), 5, "empty queues")
    group.process.terminate()
    assert group.process.wait(10) == 0
    met = {slot: daemons.flows_in(folder / f"flows-{slot}") for slot in range(2)}
    assert met == {slot: {source: FLOWS * (2 if source in again else 1) for source, each in found.items() if each["slot"] == slot} for slot in range(2)}
    assert all(met.values())


@pytest.mark.parametrize("daemon", ["nsd", "unbound", "unbound_of_systemd"])
def test_dns_servers_with_the_supervisors_sockets_answer_every_question_while_they_restart(net, daemons: Daemons, group, daemon):
    command = daemons.unbound_of_systemd() if daemon == "unbound_of_systemd" else [*BIND, *getattr(daemons, daemon)(1, reuseport=False)]
    group.run(*command, options=("--empty-after", "10s"))
    wait_until(lambda: all(ask_udp(net, source, 0.3) and ask_tcp(net, source) for source in SOURCES), 5, f"{daemon} answers")
    asked, failed = [], []
    done = threading.Event()

    def ask(source: str) -> None:
        while not done.is_set():
            asked.append(source)
            if not ask_udp(net, source, 3):
                failed.append(source)
            time.sleep(0.01)

    askers = [threading.Thread(target=ask, args=(source,)) for source in SOURCES[:4]]
    for asker in askers:
        asker.start()
    before = group.pids()
    for slot in before:
        group.cli("restart", str(slot))
    wait_until(lambda: not set(before.values()) & {*group.pids().values(), 0}, 5, "other workers")
    done.set()
    for asker in askers:
        asker.join()
    assert (failed, len(asked) > 20) == ([], True)
    assert all(ask_tcp(net, source) for source in SOURCES)


def test_a_daemon_that_binds_another_address_is_told(net, daemons: Daemons, group, folder):
    """Its own bind fails, because the supervisor has the port, and the reason is in the log."""
    group.run(*BIND, "/usr/bin/nfcapd", "-p", str(PORT), "-w", str(folder), options=("--transport", "udp"), workers=1)
    wait_until(lambda: "nfcapd: binds UDP 0.0.0.0:2055, and the sockets handed over are UDP 127.0.0.1:2055" in group.log.read_text(encoding="utf-8"), 5,
               "the reason")
    assert subprocess.run([*BIND, "true"], capture_output=True, check=False).returncode == 1


@pytest.mark.long
def test_a_router_meets_one_nfacctd_with_its_flows_and_its_bmp(daemons: Daemons, group, folder):
    """NetFlow by UDP and BMP by TCP, on one port number."""
    for slot in range(2):
        daemons.nfacctd(f"slot-{slot}", bmp=True)
    group.run(*BIND, "/usr/sbin/nfacctd", "-f", f"{folder}/slot-%s.conf")
    log = group.log  # a worker's output is the supervisor's
    wait_until(lambda: log.read_text(encoding="utf-8").count(NFACCTD_READY) == 2, 15, "both collectors are ready")
    expected: dict[str, set[str]] = {"slot-0": set(), "slot-1": set()}
    for source, found in explained(group).items():
        routers = expected[f"slot-{found['slot']}"]
        if len(routers) < 2:
            routers.add(source)
            daemons.export(source)
            speaker = daemons.speak_bmp(source, PORT)
            wait_until(lambda source=source: any(source in daemons.routers_in(name) for name in expected), 5, f"BMP of {source}")
            daemons.stop(speaker, signal.SIGKILL)
    assert {name: daemons.routers_in(name) for name in expected} == expected
    flows = {name: dict.fromkeys(sources, FLOWS) for name, sources in expected.items()}
    wait_until(lambda: {name: daemons.exporters_in(name) for name in expected} == flows, 6, "the flows")
