# SPDX-License-Identifier: Apache-2.0
"""`hedgerow steer run`: one source, one worker, while workers and supervisors come and go."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from deploy.lab import netns
from harness.product import BIN, wait_until
from harness.screen import LEAVE, Screen
from harness.steer import IPV4, IPV6, PORT, Group, fixtures, pid_of, scraped, service_manager, slot_of

SO_ATTACH_REUSEPORT_CBPF = 51

_net, _folder, _group = fixtures("run")


def test_a_source_meets_one_worker_on_both_transports_and_explain_names_it(net, group):
    group.start(workers=4, listen=f"[::]:{PORT}")
    met = {}
    for source in (*IPV4, *IPV6):
        to = "fd00::1" if ":" in source else "127.0.0.1"
        answers = [net.udp(source, to), net.tcp(source, to), net.udp(source, to)]
        met[source] = pid_of(answers[0])
        assert {pid_of(answer) for answer in answers} == {met[source]}
    assert len(set(met.values())) == 4
    for source in (*IPV4[:3], *IPV6[:2]):
        explained = json.loads(group.cli("explain", source, "--json").stdout)
        assert explained["pid"] == met[source]
    shown = group.ask("show")
    assert [slot["buckets"] for slot in shown["slots"]] == [256] * 4
    assert sum(slot["selected_udp"] for slot in shown["slots"]) == 2 * len(met)
    assert sum(slot["selected_tcp"] for slot in shown["slots"]) == len(met)
    assert shown["problems"] == []
    group.process.terminate()
    assert group.process.wait(10) == 0
    assert group.left() == []


def test_a_group_whose_ready_line_cannot_be_written_serves_and_ends_as_others_do(net, group):
    with net.entered(), open("/dev/full", "wb") as full, group.log.open("ab") as log:
        group.process = subprocess.Popen(group._words(group.command()), stdout=full, stderr=log)
    group.process.stdout = open(os.devnull, "rb")
    wait_until(lambda: group.cli("show", "--name", group.name, ok=False).returncode == 0, 10, "the group")
    assert pid_of(net.udp(IPV4[0])) in group.pids().values()
    group.process.terminate()
    assert group.process.wait(10) == 0


def test_show_watch_draws_anew_each_second_and_leaves_the_terminal_as_it_was(net, group):
    group.start()
    watch = [BIN / "hedgerow-steer", "show", "--watch", "--run-dir", group.run_dir, "--name", group.name]

    def selected() -> int:
        """In the second column of counters: what the first slot was given by UDP."""
        return sum(int(line.split()[6]) for line in screen.frame() if " serving " in line)

    with Screen(watch, 120, 20) as screen:
        wait_until(lambda: any("serving" in line for line in screen.frame()), 5, "the slots")
        for source in IPV4[:3]:
            net.udp(source)
        wait_until(lambda: selected() == 3, 5, "the next second")
        screen.press("q")
        assert screen.process.wait(5) == 0
        assert screen.read().rstrip().endswith(LEAVE) and screen.settings() == screen.before
    with subprocess.Popen([*watch, "--json"], stdout=subprocess.PIPE, text=True) as piped:
        assert json.loads(piped.stdout.readline())["name"] == group.name
        piped.send_signal(signal.SIGINT)
        assert piped.wait(5) == 0
    group.stop()
    assert group.cli("show", "--watch", "--name", group.name, ok=False).returncode == 3


def test_the_workers_command_is_its_own(net, group):
    group.start("--user", "nobody", "--transport", "udp", worker=("--json", "-n", "--listen", "x%sx", "100%%"))
    answer = net.udp(IPV4[0], payload=b"arguments")
    assert answer.split("\0") == ["--json", "-n", "--listen", f"x{slot_of(net.udp(IPV4[0]))}x", "100%"]
    assert net.udp(IPV4[0], payload=b"rights") == "65534 0"
    with pytest.raises(ConnectionRefusedError):
        net.tcp(IPV4[0])


def test_what_was_sent_to_a_worker_that_dies_waits_for_the_next_one(net, group):
    group.start(workers=2)
    source = IPV4[0]
    former = net.udp(source)
    os.kill(pid_of(former), signal.SIGSTOP)
    connections = [net.connect(source) for _ in range(5)]
    with net.open(socket.SOCK_DGRAM, source) as sock:
        for number in range(50):
            sock.sendto(str(number).encode(), ("127.0.0.1", PORT))
        os.kill(pid_of(former), signal.SIGKILL)
        answers = [sock.recv(100).decode().split() for _ in range(50)]
    assert [answer[2] for answer in answers] == [str(number) for number in range(50)]
    assert {int(answer[0]) for answer in answers} == {slot_of(former)}
    assert {answer[1] for answer in answers} != {str(pid_of(former))}
    for connection in connections:
        with connection:
            assert connection.recv(100).decode().split()[:2] == answers[0][:2]
    shown = group.slots()[slot_of(former)]
    assert (shown["state"], shown["restarts"], shown["last_exit"], shown["udp_dropped"]) == ("serving", 1, "signal 9 (KILL)", 0)


def test_a_supervisor_that_is_killed_leaves_traffic_alone_and_the_next_one_takes_over(net, group):
    group.start(workers=3)
    met = {source: net.udp(source) for source in IPV4}
    assert f"already running as pid {group.process.pid}" in group.refused(workers=3)
    pids = group.pids()
    group.kill()
    assert {source: net.udp(source) for source in IPV4} == met
    assert {source: slot_of(net.tcp(source)) for source in IPV4} == {source: slot_of(answer) for source, answer in met.items()}
    # One worker dies while no supervisor sees it.
    lost = slot_of(met[IPV4[0]])
    os.kill(pids[lost], signal.SIGKILL)
    assert "--transport" in group.refused("--transport", "udp", workers=3)
    group.start(workers=3)
    wait_until(lambda: group.pids()[lost] not in (0, pids[lost]))
    after = group.pids()
    assert {slot: pid for slot, pid in after.items() if slot != lost} == {slot: pid for slot, pid in pids.items() if slot != lost}
    assert {source: slot_of(net.udp(source)) for source in IPV4} == {source: slot_of(answer) for source, answer in met.items()}
    # It follows the workers of its predecessor.
    other = next(slot for slot in after if slot != lost)
    os.kill(after[other], signal.SIGKILL)
    wait_until(lambda: group.pids()[other] not in (0, after[other]))
    assert group.ask("show")["problems"] == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_dead_group_is_taken_over_from_the_workers_that_run(net, group, lost):
    """A slot whose worker has ended meanwhile gets new sockets; the others keep theirs."""
    group.start(workers=2)
    met, pids = {source: slot_of(net.udp(source)) for source in IPV4}, group.pids()
    group.kill()
    for slot in range(lost):
        os.kill(pids[slot], signal.SIGKILL)
    wait_until(lambda: all(is_zombie(pids[slot]) for slot in range(lost)))
    group.start(workers=2)
    wait_until(lambda: all(group.pids().values()))
    assert [group.pids()[slot] for slot in range(lost, 2)] == [pids[slot] for slot in range(lost, 2)]
    assert {source: slot_of(net.udp(source)) for source in IPV4} == met
    # The next worker has the very socket that is in the kernel's array.
    before = group.pids()[0]
    group.ask("restart", "0")
    wait_until(lambda: group.pids()[0] not in (0, before))
    assert {source: slot_of(net.udp(source)) for source in IPV4} == {source: slot_of(net.tcp(source)) for source in IPV4} == met
    assert group.ask("show")["problems"] == []


def test_a_service_managers_store_keeps_the_queue_of_a_worker_that_ends_without_a_supervisor(net, group):
    """As systemd does: it holds what FDSTORE=1 sends, and hands it to the next start (LISTEN_FDS)."""
    with service_manager(group) as (stored, hear):
        group.start(workers=2)
        hear(4)
        source = next(source for source in IPV4 if slot_of(net.udp(source)) == 0)
        pids = group.pids()
        group.kill()
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: is_zombie(pids[0]))
        with net.open(socket.SOCK_DGRAM, source) as sock:
            sock.sendto(b"waits", ("127.0.0.1", PORT))
            group.start(workers=2, handed=list(stored.values()))
            assert sock.recv(100).decode().split()[::2] == ["0", "waits"]
        assert group.pids()[1] == pids[1]
        group.ask("resize", "1")
        hear(2)
        group.ask("stop")
        hear(0)


def test_a_worker_that_was_started_but_not_recorded_is_found(net, group):
    group.start(workers=2)
    pids = group.pids()
    group.kill()
    path = group.run_dir / group.name / "record.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["slots"][0]["worker"] = {}
    path.write_text(json.dumps(record), encoding="utf-8")
    group.start(workers=2)
    assert group.pids() == pids


@pytest.mark.parametrize("taken_over", [False, True])
def test_what_a_worker_leaves_behind_does_not_serve_beside_the_next_one(net, group, taken_over):
    group.start("--stop-timeout", "200ms", worker=("--deaf",))
    answer = net.udp(IPV4[0])
    child = int(net.udp(IPV4[0], payload=b"child"))
    # A shared socket that is shut down is shut down for all.
    net.udp(IPV4[0], payload=b"shut")
    slot = slot_of(answer)
    if taken_over:
        group.kill()
        group.start("--stop-timeout", "200ms", worker=("--deaf",))
    group.ask("restart", str(slot))
    wait_until(lambda: group.pids()[slot] not in (0, pid_of(answer)))
    assert group.slots()[slot]["last_exit"] == ("ended, of an earlier supervisor" if taken_over else "signal 9 (KILL)")
    wait_until(lambda: not os.path.exists(f"/proc/{child}/exe"))
    assert pid_of(net.udp(IPV4[0])) == pid_of(net.tcp(IPV4[0])) == group.pids()[slot]


def test_a_daemon_in_the_background_does_not_outlive_its_worker(net, group):
    group.start(workers=1)
    net.udp(IPV4[0], payload=b"background")
    inode = os.stat(f"/proc/{group.pids()[0]}/fd/3").st_ino
    wait_until(lambda: [comm for comm in holders(inode) if comm == "sleep"])
    os.kill(group.pids()[0], signal.SIGKILL)
    wait_until(lambda: sorted(holders(inode)) == sorted(["hedgerow-steer", comm_of(group.pids()[0])]))
    assert "(sleep) behind, which has its sockets and is killed" in group.log.read_text(encoding="utf-8")


# Two forks within a millisecond or so: the process in between ends while the supervisor looks at processes.
DAEMON = """import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(1000)"""


def test_daemons_that_fork_twice_at_once_leave_nothing_behind(net, group):
    group.run(sys.executable, "-c", DAEMON, workers=2)
    wait_until(lambda: all(slot["restarts"] > 6 for slot in group.slots().values()), 60, "restarts")
    group.stop()
    assert netns.pids_in({netns.identity(netns.path_of(net.name))}) == []


def test_explain_names_no_worker_that_has_ended(net, group):
    group.start(workers=1)
    assert json.loads(group.cli("explain", IPV4[0], "--json").stdout)["pid"] == group.pids()[0]
    group.process.send_signal(signal.SIGSTOP)  # starts no other one
    try:
        with net.entered():
            os.kill(pid := pid_of(net.udp(IPV4[0])), signal.SIGKILL)
        wait_until(lambda: comm_of(pid) == "" or is_zombie(pid), 5, "its end")
        assert json.loads(group.cli("explain", IPV4[0], "--json").stdout)["pid"] == 0
    finally:
        group.process.send_signal(signal.SIGCONT)


def is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def comm_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def holders(inode: int) -> list[str]:
    """The processes that have the socket."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"socket:[{inode}]" in {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}:
                found.append(comm_of(int(pid)))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("spoil", [b"connect", b"shut down"])
@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0"])
def test_a_udp_socket_that_a_worker_spoilt_is_not_the_next_ones(net, group, spoil, listen):
    group.start(workers=2, listen=f"{listen}:{PORT}")
    source = next(source for source in IPV4 if slot_of(net.udp(source)) == 0)
    with net.open(socket.SOCK_DGRAM, source) as sock:
        sock.sendto(spoil, ("127.0.0.1", PORT))
        wait_until(lambda: any("slot 0" in problem and "UDP socket" in problem for problem in group.ask("show")["problems"]))
    os.kill(group.pids()[0], signal.SIGKILL)
    wait_until(lambda: group.slots()[0]["restarts"] == 1 and group.pids()[0])
    assert slot_of(net.udp(source)) == slot_of(net.tcp(source)) == 0
    assert {slot_of(net.udp(other)) for other in IPV4} == {0, 1}
    assert group.ask("show")["problems"] == []
    group.kill()
    group.start(workers=2, listen=f"{listen}:{PORT}")
    assert slot_of(net.udp(source)) == 0


def test_a_group_whose_record_cannot_be_read_is_left_alone_and_removed_by_clean(net, group):
    group.start(workers=2)
    met, pids = net.udp(IPV4[0]), group.pids()
    group.kill()
    (group.run_dir / group.name / "record.json").write_text("", encoding="ascii")
    assert "for want of a readable record" in group.refused(workers=2)
    assert net.udp(IPV4[0]) == met
    removed = group.ask("clean")["removed"]
    assert {f"worker {pid}" for pid in pids.values()} <= set(removed) and len(removed) == 2 + 2
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids.values())


def test_a_supervisor_that_was_stopped_blames_no_worker_for_it(group):
    group.start("--heartbeat", "800ms", "--empty", "next", "--user", "nobody", workers=2, worker=("--beat", "0.05"))
    group.wait_state(0, "serving")
    group.process.send_signal(signal.SIGSTOP)
    time.sleep(2.4)  # three times as long as a worker may be silent
    group.process.send_signal(signal.SIGCONT)
    time.sleep(0.5)
    assert "silent" not in group.log.read_text(encoding="utf-8")
    # Nobody but the workers' user may fill the socket of their notices.
    status = os.stat(group.run_dir / group.name / "notify.sock")
    assert (status.st_uid, status.st_mode & 0o777) == (65534, 0o600)
    os.kill(group.pids()[0], signal.SIGSTOP)
    group.wait_state(0, "silent")
    os.kill(group.pids()[0], signal.SIGCONT)




def test_a_device_of_several_addresses_and_a_prefix_are_one_source(net, group):
    devices = group.folder / "devices"
    devices.write_text("127.0.1.0/28 7\nfd00::1:8/128 7\n127.0.1.32/29 8 gateway\n", encoding="ascii")
    group.start("--devices", str(devices), "--ipv6-prefix", "64", "--gateway-field", "0:2", workers=8, listen=f"[::]:{PORT}")
    explained = {source: json.loads(group.cli("explain", source, "--json").stdout) for source in (IPV4[0], IPV6[0], IPV6[7])}
    assert [each["source"] for each in explained.values()] == ["device 7", "IPv6 fd00::/64", "device 7"]
    assert {pid_of(net.udp(source)) for source in IPV4[:15]} == {explained[IPV4[0]]["pid"]} == {pid_of(net.tcp(IPV6[7], "fd00::1"))}
    assert {pid_of(net.udp(source, "fd00::1")) for source in IPV6[:7]} == {explained[IPV6[0]]["pid"]}
    by_field = {field: {pid_of(net.udp(gateway, payload=bytes([1, field]))) for gateway in IPV4[31:39]} for field in range(20)}
    assert all(len(met) == 1 for met in by_field.values()) and len(set.union(*by_field.values())) > 3
    payload = json.loads(group.cli("explain", IPV4[33], "--payload", "0103", "--json").stdout)
    assert (payload["source"], {payload["pid"]}) == ("field 0103", by_field[3])


def test_a_resize_moves_the_fewest_and_udp_follows_an_open_connection(net, group):
    group.start("--sessions", "none", workers=2)
    with_connection, without = IPV4[:20], IPV4[20:]
    before = {source: pid_of(net.udp(source)) for source in IPV4}
    connections = {source: net.connect(source) for source in with_connection}
    for source, connection in connections.items():
        assert pid_of(connection.recv(100)) == before[source]
    change = group.ask("resize", "3")
    assert change["moved_buckets"] == 341
    assert [slot["buckets"] for slot in change["slots"]] == [342, 341, 341]
    new = group.pids()[2]
    after = {source: pid_of(net.udp(source)) for source in IPV4}
    assert {source: after[source] for source in with_connection} == {source: before[source] for source in with_connection}
    moved = [source for source in without if after[source] != before[source]]
    assert moved and {after[source] for source in moved} == {new}
    assert pid_of(net.tcp(with_connection[0])) == before[with_connection[0]]
    for source, connection in connections.items():
        connection.sendall(b"still")
        assert pid_of(connection.recv(100)) == before[source]
    assert group.ask("show")["pinned_sources"] == change["pinned_sources"] > 0
    for connection in connections.values():
        connection.close()
    wait_until(lambda: group.ask("show")["pinned_sources"] == 0)
    for source in with_connection:
        assert pid_of(net.udp(source)) == json.loads(group.cli("explain", source, "--json").stdout)["pid"]
        if source == with_connection[3]:
            break
    assert new in {pid_of(net.udp(source)) for source in with_connection}


def test_a_worker_that_leaves_gives_its_connections_to_others(net, group):
    group.start(workers=2)
    source = next(source for source in IPV4 if slot_of(net.udp(source)) == 1)
    leaving = group.pids()[1]
    accepted = net.connect(source)
    assert pid_of(accepted.recv(100)) == leaving
    os.kill(leaving, signal.SIGSTOP)
    waiting = net.connect(source)  # not accepted
    group.ask("resize", "1")
    assert slot_of(waiting.recv(100)) == 0
    assert slot_of(net.tcp(source)) == 0
    assert wait_until(lambda: group.slots()[0]["migrated"] == 1)
    assert list(group.slots()) == [0]
    assert [(other["pid"], other["state"]) for other in group.ask("show")["others"]] == [(leaving, "leaving")]
    os.kill(leaving, signal.SIGCONT)
    wait_until(lambda: group.ask("show")["others"] == [])
    assert slot_of(net.udp(source)) == 0
    waiting.close()
    accepted.close()
    group.ask("resize", "2")
    wait_until(lambda: slot_of(net.udp(source)) == 1)


def test_drain_and_weights_move_shares_and_undrain_brings_them_back(net, group):
    group.start("--sessions", "none", workers=4, worker=())
    before = {source: slot_of(net.udp(source)) for source in IPV4}
    assert group.ask("drain", "2")["moved_buckets"] == 256
    drained = {source: slot_of(net.udp(source)) for source in IPV4}
    assert all(drained[source] == before[source] for source in IPV4 if before[source] != 2) and 2 not in drained.values()
    assert group.slots()[2]["state"] == "drained"
    group.ask("undrain", "2")
    assert {source: slot_of(net.udp(source)) for source in IPV4} == before
    assert [slot["buckets"] for slot in group.ask("weights", "1", "1", "2", "4")["slots"]] == [128, 128, 256, 512]
    refused = group.cli("weights", "1", "2", ok=False)
    assert (refused.returncode, "expected one for each of the 4 slots" in refused.stderr) == (2, True)
    assert "no slot 9; there are 0, 1, 2, 3" in group.cli("drain", "9", ok=False).stderr
    assert group.cli("resize", "257", ok=False).returncode == 2


@pytest.mark.parametrize("policy", ["reject", "next"])
def test_an_empty_slot_is_served_as_the_policy_says_on_both_transports(net, group, policy):
    down = group.folder / "down-SLOT"
    # One that is heard has its sources back at once, else in 1 s.
    heard = () if policy == "reject" else ("--beat", "5")
    group.start("--empty", policy, "--empty-after", "100ms", workers=2, worker=("--down", str(down), *heard))
    source = next(source for source in IPV4 if slot_of(net.udp(source)) == 0)
    (group.folder / "down-0").touch()
    os.kill(group.pids()[0], signal.SIGKILL)
    wait_until(lambda: group.ask("show")["slots"][0]["pid"] == 0 and "is empty" in group.log.read_text(encoding="utf-8"))
    if policy == "reject":
        with pytest.raises(ConnectionRefusedError):
            net.udp(source)
        with pytest.raises(ConnectionRefusedError):
            net.tcp(source)
    else:
        assert (slot_of(net.udp(source)), slot_of(net.tcp(source))) == (1, 1)
    shown = group.slots()[0]
    assert shown["empty_udp"] >= 1 and shown["empty_tcp"] >= 1
    assert slot_of(net.udp(next(other for other in IPV4 if other != source and explained_slot(group, other) == 1))) == 1
    (group.folder / "down-0").unlink()
    group.ask("restart", "0")
    wait_until(lambda: "slot 0 is served again" in group.log.read_text(encoding="utf-8"))
    assert slot_of(net.udp(source)) == 0
    assert slot_of(net.tcp(source)) == 0


def test_a_slot_that_was_empty_when_it_was_resized_away_is_served_when_it_comes_back(net, group):
    down = group.folder / "down-SLOT"
    group.start("--empty-after", "100ms", workers=3, worker=("--down", str(down), "--beat", "5"))
    before = {source: slot_of(net.udp(source)) for source in IPV4}
    (group.folder / "down-2").touch()
    os.kill(group.pids()[2], signal.SIGKILL)
    wait_until(lambda: group.ask("show")["slots"][2]["state"] == "empty", 5, "an empty slot")
    group.ask("resize", "2")
    wait_until(lambda: len(group.slots()) == 2, 5, "two slots")
    (group.folder / "down-2").unlink()
    group.ask("resize", "3")
    group.wait_state(2, "serving")
    assert {source: slot_of(net.udp(source)) for source in IPV4} == before


@pytest.mark.parametrize("nohup", [True, False])
def test_a_hangup_reloads_all_slots_and_ends_nothing(net, group, nohup):
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    try:
        group.start()
    finally:
        signal.signal(signal.SIGHUP, former)
    pids = group.pids()
    group.process.send_signal(signal.SIGHUP)
    if nohup:  # where it was ignored at the start, it stays so
        assert group.pids() == pids and not group.ask("show")["reloading"]
    else:
        wait_until(lambda: "all slots are being reloaded" in group.log.read_text(encoding="utf-8"))
        wait_until(lambda: not set(group.pids().values()) & set(pids.values()), 10, "both workers")
    assert {pid_of(net.udp(source)) for source in IPV4} == set(group.pids().values())


def test_a_login_session_that_ends_takes_supervisor_and_workers_along_in_order(group):
    """`KillUserProcesses=yes`: each process of the session gets SIGTERM and SIGHUP, in no order."""
    group.start(workers=3)
    for pid in (*group.pids().values(), group.process.pid):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    assert group.process.wait(10) == 0, group.log.read_text(encoding="utf-8")
    assert group.left() == []


def test_a_worker_of_another_user_binds_a_socket_for_a_peer_of_its_own(net, group):
    second = '''
import os, socket, time
def make():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 2055))
    return sock
first, peers = make(), {}
while True:
    data, peer = first.recvfrom(100)
    peers[peer] = make()
    peers[peer].connect(peer)
    peers[peer].send(data + b" " + str(os.getuid()).encode())
'''
    group.run(str(BIN / "hedgerow-steer"), "bind", "--", "/usr/bin/python3", "-c", second, options=("--transport", "udp", "--user", "nobody"))
    wait_until(lambda: {slot["state"] for slot in group.slots().values()} == {"serving"}, 5, "both workers")
    time.sleep(0.5)  # what comes before they have bound waits in their sockets
    assert {net.udp(source) for source in IPV4} == {"x 65534"}
    assert group.ask("show")["problems"] == []
    # Another supervisor's further sockets are of the same user.
    group.kill()
    group.run(str(BIN / "hedgerow-steer"), "bind", "--", "/usr/bin/python3", "-c", second, options=("--transport", "udp", "--user", "nobody"))
    group.ask("resize", "3")


def explained_slot(group: Group, source: str) -> int:
    return json.loads(group.cli("explain", source, "--json").stdout)["slot"]


def test_a_worker_without_heartbeat_is_silent_and_its_slot_empty(net, group):
    group.start("--heartbeat", "300ms", "--empty", "next", workers=2, worker=("--beat", "0.05"))
    group.wait_state(0, "serving")
    source = next(source for source in IPV4 if slot_of(net.udp(source)) == 0)
    pid = group.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    group.wait_state(0, "silent")
    wait_until(lambda: slot_of(net.udp(source)) == 1)
    assert "sends no WATCHDOG=1" in group.ask("show")["problems"][0]
    os.kill(pid, signal.SIGCONT)
    group.wait_state(0, "serving")
    assert pid_of(net.udp(source)) == pid


def test_a_foreign_program_is_replaced_and_said(net, group):
    metrics = f"unix:{group.folder}/metrics.sock"
    group.start("--metrics", metrics, workers=4)
    met = {source: net.udp(source) for source in IPV4}
    with net.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        foreign.bind(("127.0.0.1", PORT))
        code = struct.pack("HBBI", 0x06, 0, 0, 0)  # return 0: the first socket
        buffer = ctypes.create_string_buffer(code)
        foreign.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, struct.pack("HxxxxxxP", 1, ctypes.addressof(buffer)))
        wait_until(lambda: "a classic filter chose among the UDP sockets of 127.0.0.1:2055, so sources met any worker: the group's own is attached again"
                   in group.log.read_text(encoding="utf-8"), 5, "the takeover")
        assert {source: net.udp(source) for source in IPV4} == met
        wait_until(lambda: [f"strangers: pid {os.getpid()}" in problem for problem in group.ask("show")["problems"]] == [True], 5, "the stranger alone")
    wait_until(lambda: group.ask("show")["problems"] == [], 5, "no problem")
    assert "hedgerow_steer_taken_over{group=\"%s\"} 0" % group.name in scraped(group.folder / "metrics.sock")


REFUSALS = [
    (("--empty", "maybe"), {}, "expected reject or next"),
    (("--empty", "drop"), {}, "expected reject, with a firewall rule that drops its ICMP errors"),
    ((), {"workers": 0}, "--workers: got \"0\", expected 1 to 256"),
    ((), {"listen": "127.0.0.1"}, "which has no port"),
    (("--heartbeat", "soon"), {}, "--heartbeat: got \"soon\""),
    (("--gateway-field", "12:99"), {}, "--gateway-field"),
    (("--metrics", "nowhere"), {}, "--metrics: got \"nowhere\", expected ADDRESS:PORT or unix:/PATH"),
    ((), {"listen": "[fe80::1]:2055"}, "a link-local address"),
    (("--devices", "/tmp"), {}, "cannot read /tmp: it is no file"),
]


MAY_COME = [
    ((), {"listen": "203.0.113.1:2055"}, "no interface of this host has the address"),
    (("--user", "nobody-here"), {}, "no user nobody-here"),
    (("--group", "no-group-here"), {}, "no group no-group-here"),
    (("--devices", "/nonexistent"), {}, "cannot read /nonexistent"),
]


# The unit starts a supervisor again that ends with 1, and none that ends with 2.
@pytest.mark.parametrize("options,others,error", MAY_COME)
def test_what_may_come_by_itself_ends_a_start_with_an_exit_code_that_the_unit_starts_again(group, options, others, error):
    assert error in group.refused(*options, code=1, **others)
    assert group.left() == []


@pytest.mark.parametrize("options,others,error", REFUSALS)
def test_wrong_options_are_refused_and_nothing_is_left(group, options, others, error):
    assert error in group.refused(*options, code=2, **others)
    assert group.left() == []


def test_an_address_that_others_hold_is_refused_with_pid_and_user(net, group):
    with net.entered(), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of earlier tests linger
        plain.bind(("127.0.0.1", PORT))
        plain.listen()
        error = group.refused()
        assert f"127.0.0.1:2055 (TCP) is held by pid {os.getpid()} (" in error and "user root" in error
    holder = ("import os, socket; os.setuid(65534); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
              "s.setsockopt(1, 15, 1); s.bind(('127.0.0.1', 2055)); print('bound', flush=True); input()")
    with net.entered(), subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"bound\n"
        error = group.refused()
        assert f"(UDP) is held by pid {other.pid} (" in error and "user nobody" in error
        other.communicate(b"\n")
    assert group.left() == []
    group.start()
    second = Group(net, group.folder, f"{group.name}b")
    workers = group.pids()
    error = second.refused()
    assert f"pid {workers[0]}" in error and f"pid {workers[1]}" in error
    assert second.left() == []
    assert "no such program in PATH" in subprocess.run(
        [*group._words(("run", "--listen", "127.0.0.2:99", "-n", "1", "--", "no-such-program"))], capture_output=True, text=True, check=False).stderr
