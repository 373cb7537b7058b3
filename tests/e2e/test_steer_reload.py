# SPDX-License-Identifier: Apache-2.0
"""`hedgerow steer reload`: another worker takes a slot's sources when it is ready, and sessions stay with the one that they began with."""

import collections
import contextlib
import datetime
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.product import BIN, wait_until
from harness.steer import IPV4, PORT, Group, Netns, fixtures, pid_of, service_manager, slot_of

SERVER = (sys.executable, "-c", Path(__file__).with_name("harness").joinpath("session_server.py").read_text(encoding="utf-8"))
PATIENT = (*SERVER, "--idle", "100")
UDP = ("--transport", "udp")
QUIC = (*UDP, "--sessions", "quic")
LONG, SHORT = b"\xc3\0\0\0\1", b"\x43\0\0\0\0"  # an Initial packet of QUIC version 1, and one of an open connection
OTHER = b"\xc3\0\0\0\7"  # opens a session as well, of a protocol that steering does not know

_net, _folder, _group = fixtures("reload")


class Session:
    """A client's: it has a socket of its own, as clients of QUIC have."""

    def __init__(self, net: Netns, source: str, lasts_s: float = 3600.0, opens: bytes = LONG):
        self.sock, self.ident, self.until = net.open(socket.SOCK_DGRAM, source), os.urandom(8), time.monotonic() + lasts_s
        self.sock.connect(("127.0.0.1", PORT))
        self.sock.settimeout(5)
        self.numbers = itertools.count()
        self.answer = self.ask(opens)

    def ask(self, header: bytes = SHORT) -> str:
        """What the server did, and its pid."""
        number = next(self.numbers).to_bytes(4, "big")
        try:
            self.sock.send(header + self.ident + number)
            while (answer := self.sock.recv(100))[:4] != number:
                pass
        except TimeoutError:
            return "timeout 0"
        except ConnectionRefusedError:
            return "unreachable 0"
        return answer[4:].decode()


@contextlib.contextmanager
def sessions(net: Netns, count: int, lasts_s: float = 3600.0, opens: bytes = LONG) -> Iterator[list[Session]]:
    opened = [Session(net, IPV4[i % len(IPV4)], lasts_s, opens) for i in range(count)]
    try:
        yield opened
    finally:
        for session in opened:
            session.sock.close()


def others(group: Group, state: str) -> list[dict]:
    """The pairs of sockets that do not serve: "starting" or "leaving"."""
    return [each for each in group.ask("show")["others"] if each["state"] == state]


def begun_reload(group: Group, slot: int) -> subprocess.Popen:
    return subprocess.Popen([*group._words(("reload", str(slot))), "--name", group.name, "--run-dir", str(group.run_dir)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def edit_record(group: Group, change: Callable[[list[dict]], None]) -> None:
    path = group.run_dir / group.name / "record.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record["slots"])
    path.write_text(json.dumps(record), encoding="utf-8")


def load(net: Netns, lasts_s: Callable[[], float], goes_on: Callable[[], bool]) -> collections.Counter:
    """40 clients in turn, each of which opens a session anew when one has ended: what became of all exchanges."""
    results: collections.Counter = collections.Counter()
    with sessions(net, 40, lasts_s()) as open_ones:
        while goes_on():
            for i, session in enumerate(open_ones):
                if time.monotonic() > session.until or (results and session.answer.split()[0] != "ok"):
                    session.sock.close()
                    session = open_ones[i] = Session(net, IPV4[i], lasts_s())
                else:
                    session.answer = session.ask()
                results[session.answer.split()[0]] += 1
    return results


def drained(pids: list[int]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)


def test_no_session_is_lost_and_none_refused_by_ten_reloads_where_the_kernel_alone_loses_some(net, group):
    draw = random.Random(53)

    def reloaded_by_steer() -> collections.Counter:
        group.run(*SERVER, options=QUIC)
        former = group.pids()
        reload = [str(word) for word in (*group._words(("reload",)), "--name", group.name, "--run-dir", group.run_dir)]
        reloads: list[subprocess.Popen] = []

        def goes_on() -> bool:
            if reloads and reloads[-1].poll() is None:
                return True
            if reloads and time.monotonic() < begun[-1] + 0.6:
                return True
            if len(reloads) == 10:
                return time.monotonic() < begun[-1] + 3
            begun.append(time.monotonic())
            reloads.append(subprocess.Popen(reload, stdout=subprocess.DEVNULL))
            return True

        begun: list[float] = []
        with net.entered():
            results = load(net, lambda: draw.uniform(0.3, 2.0), goes_on)
        assert [reload.wait() for reload in reloads] == [0] * 10
        wait_until(lambda: not group.ask("show")["others"], 10, "the end of all former workers")
        shown = group.ask("show")
        assert shown["problems"] == [] and shown["sessions_opened"] > 40 and shown["sessions_kept"] > 0
        assert drained(list(former.values())) and [slot["restarts"] for slot in shown["slots"]] == [0, 0]
        group.stop()
        return results

    def swapped_by_hand() -> collections.Counter:
        """As a reload without steering: new workers on sockets of their own, and then SIGTERM for the former ones."""
        workers: list[list[subprocess.Popen]] = []

        def goes_on() -> bool:
            if len(workers) <= 5 and time.monotonic() > begun[-1] + 1:
                workers.append([subprocess.Popen(SERVER) for _ in range(2)])
                time.sleep(0.3)  # they have bound
                for worker in workers[-2] if len(workers) > 1 else ():
                    worker.terminate()
                begun.append(time.monotonic())
            return len(workers) <= 5 or time.monotonic() < begun[-1] + 1

        begun = [0.0]
        try:
            with net.entered():
                goes_on()
                return load(net, lambda: draw.uniform(0.3, 2.0), goes_on)
        finally:
            for worker in itertools.chain(*workers):
                worker.kill()
                worker.wait()

    plain, steered = swapped_by_hand(), reloaded_by_steer()
    assert plain["lost"] > 0 and plain["refused"] > 0, plain
    assert set(steered) == {"ok"} and steered["ok"] > 1000, steered


def test_a_worker_that_does_not_become_ready_changes_nothing(net, group):
    fails = group.folder / "fails"
    group.run(*SERVER, "--fails", str(fails), options=QUIC)
    pids = group.pids()
    with sessions(net, 20) as open_ones:
        # Both have begun to serve: neither looks for the file any more.
        assert {session.answer for session in open_ones} == {f"ok {pid}" for pid in pids.values()}
        fails.touch()
        refused = group.cli("reload", "--name", group.name, ok=False)
        assert refused.returncode == 1
        assert any(f"slot {slot}: the next worker ended before it was ready (exit 3): worker {pid} serves on" in refused.stderr
                   for slot, pid in pids.items())
        assert {session.ask().split()[0] for session in open_ones} == {"ok"}
        assert group.pids() == pids and group.ask("show")["others"] == []
        assert group.ask("show")["problems"][0].startswith("reload: ")
        fails.unlink()
        group.ask("reload", "1")
        assert group.ask("show")["problems"] == [] and group.pids()[0] == pids[0] and group.pids()[1] != pids[1]
        assert {session.ask().split()[0] for session in open_ones} == {"ok"}


def says_when_it_is_asked_to_end(ended: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", f"""
import signal, sys, time
def end(*_):
    open({str(ended)!r}, "a").write(str(time.time()))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    time.sleep(60)
""")


def test_a_former_worker_has_a_second_to_answer_what_it_has_read(group):
    ended = group.folder / "ended"
    group.run(*says_when_it_is_asked_to_end(ended), workers=1, options=UDP)
    former = group.pids()[0]
    group.ask("reload")
    wait_until(lambda: drained([former]), 10, "its end")
    line = next(line for line in group.log.read_text(encoding="utf-8").splitlines() if f"and worker {former} is asked to end" in line)
    served = datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()
    assert float(ended.read_text(encoding="ascii")) - served > 0.5


def test_a_former_worker_has_a_second_from_its_next_supervisor_too(net, group):
    ended = group.folder / "ended"
    command = says_when_it_is_asked_to_end(ended)
    group.run(*command, workers=1, options=UDP)
    former = group.pids()[0]
    assert begun_reload(group, 0).wait() == 0
    group.kill()
    assert not drained([former])
    group.run(*command, workers=1, options=UDP)
    wait_until(lambda: drained([former]), 10, "its end")
    line = next(line for line in group.log.read_text(encoding="utf-8").splitlines() if "took over group" in line)
    taken_over = datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()
    assert float(ended.read_text(encoding="ascii")) - taken_over > 0.5


def test_a_session_stays_where_it_began_when_its_bucket_moves_until_the_time_is_over(net, group):
    group.run(*SERVER, options=(*QUIC, "--drain-timeout", "4s"))
    with sessions(net, 40) as open_ones:
        before = [session.answer for session in open_ones]
        assert len(set(before)) == 2 and all(answer.startswith("ok ") for answer in before)
        for words in (("resize", "3"), ("weights", "1", "2", "3"), ("drain", "0"), ("undrain", "0"), ("resize", "2")):
            group.ask(*words)
            assert [session.ask() for session in open_ones] == before, words
        group.ask("drain", "0")
        with sessions(net, 40) as new_ones:
            assert {session.answer for session in new_ones} == {f"ok {group.pids()[1]}"}
            assert [session.ask() for session in open_ones] == before
        wait_until(lambda: {session.ask().split()[1] for session in open_ones} == {str(group.pids()[1])}, 10, "the end of the change")
    assert group.ask("show")["sessions_kept"] > 0


def test_a_flow_of_any_protocol_stays_with_its_worker_while_that_lives(net, group):
    group.run(*PATIENT, options=UDP)
    with sessions(net, 40, opens=OTHER) as open_ones:
        before = [session.answer for session in open_ones]
        assert len(set(before)) == 2 and all(answer.startswith("ok ") for answer in before)
        for words in (("resize", "3"), ("drain", "0"), ("undrain", "0"), ("resize", "2"), ("drain", "0")):
            group.ask(*words)
            assert [session.ask() for session in open_ones] == before, words
        with sessions(net, 40, opens=OTHER) as new_ones:
            assert {session.answer for session in new_ones} == {f"ok {group.pids()[1]}"}
            assert {session.ask() for session in new_ones} == {f"ok {group.pids()[1]}"}


@contextlib.contextmanager
def daemons(group: Group) -> Iterator[Callable[..., list[int]]]:
    """Each call starts two servers that bind by themselves."""
    started: list[subprocess.Popen] = []

    def start(*words: str) -> list[int]:
        with group.net.entered(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(address := str(group.folder / f"heard-{len(started)}"))
            heard.settimeout(20)
            for _ in range(2):
                started.append(subprocess.Popen([*PATIENT, *words], env={**os.environ, "NOTIFY_SOCKET": address}))
            for _ in range(2):
                heard.recv(100)
        return [server.pid for server in started[-2:]]

    try:
        yield start
    finally:
        for server in started:
            server.kill()
            server.wait()


def test_in_an_overlapping_restart_of_an_adopted_daemon_sessions_stay_and_new_ones_open_at_the_next(net, group):
    with daemons(group) as start:
        first = start()
        group.adopt(*first, options=UDP)
        refused = group.cli("reload", "--name", group.name, ok=False)
        assert refused.returncode == 1 and "no process waits for a slot" in refused.stderr
        with sessions(net, 40, opens=OTHER) as open_ones:
            before = [session.answer for session in open_ones]
            assert {int(answer.split()[1]) for answer in before} == set(first)
            second = start()
            wait_until(lambda: set(group.pids().values()) == set(second), 10, "the next generation")
            assert {each["pid"] for each in others(group, "leaving")} == set(first)
            for pid in first:
                os.kill(pid, signal.SIGTERM)
            with sessions(net, 40, opens=OTHER) as new_ones:
                assert {session.answer for session in new_ones} == {f"ok {pid}" for pid in second}
                assert [session.ask() for session in open_ones] == before
                assert {session.ask() for session in new_ones} == {f"ok {pid}" for pid in second}
            # The next `adopt` knows both generations.
            group.kill()
            group.adopt(*first, *second, options=UDP)
            assert [session.ask() for session in open_ones] == before
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: group.ask("show")["others"] == [], 10, "the end of the former generation")
        assert group.ask("show")["problems"] == []


def test_where_the_next_daemon_ends_soon_after_its_start_the_former_one_serves_again(net, group):
    def met() -> set[int]:
        return {int(net.udp(source, payload=OTHER + bytes(12))[6:]) for source in IPV4}

    with daemons(group) as start:
        first = start()
        options = (*UDP, "--empty", "reject")
        group.adopt(*first, options=options)
        for is_new_supervisor in (False, True):
            second = start()
            wait_until(lambda second=second: set(group.pids().values()) == set(second), 10, "the next generation")
            time.sleep(1)
            assert met() == set(second)
            if is_new_supervisor:
                group.kill()
            for pid in second:
                os.kill(pid, signal.SIGKILL)
            if is_new_supervisor:
                group.adopt(*first, options=options)
            wait_until(lambda: set(group.pids().values()) == set(first), 10, "the former generation")
            assert met() == set(first)
            assert group.ask("show")["others"] == [] and group.ask("show")["problems"] == []


def test_a_flow_that_begins_within_a_change_stays_with_its_worker_in_a_further_one(net, group):
    with daemons(group) as start:
        first = start()
        group.adopt(*first, options=UDP)
        group.ask("weights", "1", "3")
        with sessions(net, 40, opens=OTHER) as begun:
            before = [session.answer for session in begun]
            group.ask("weights", "3", "1")
            assert [session.ask() for session in begun] == before
        second = start()
        wait_until(lambda: set(group.pids().values()) == set(second), 10, "the next generation")
        with sessions(net, 40, opens=OTHER) as begun:
            before = [session.answer for session in begun]
            assert {int(answer.split()[1]) for answer in before} == set(second)
            third = start()
            wait_until(lambda: set(group.pids().values()) == set(third), 10, "the generation behind it")
            assert [session.ask() for session in begun] == before
            with sessions(net, 40, opens=OTHER) as new_ones:
                assert {session.answer for session in new_ones} == {f"ok {pid}" for pid in third}


def test_a_daemon_of_another_command_is_the_next_generation_when_reload_says_so(net, group):
    with daemons(group) as start:
        first = start()
        group.adopt(*first, options=UDP)
        second = start("another", "command")
        wait_until(lambda: len(group.ask("show")["problems"]) == 2, 10, "two candidates")
        assert all("`hedgerow steer reload` that of a former one" in problem for problem in group.ask("show")["problems"])
        assert set(group.pids().values()) == set(first)
        shown = group.ask("reload")
        assert {slot["pid"] for slot in shown["slots"]} == set(second) and shown["problems"] == []
        assert {int(net.udp(source, payload=OTHER + bytes(12))[6:]) for source in IPV4} == set(second)


def test_where_datagrams_are_of_no_session_the_next_worker_takes_all_at_once_and_tcp_stays(net, group):
    group.start("--sessions", "none", workers=2)
    former = group.pids()
    connections = {source: net.connect(source) for source in IPV4[:10]}
    for connection in connections.values():
        assert pid_of(connection.recv(100)) in former.values()
    group.process.send_signal(signal.SIGHUP)
    wait_until(lambda: not set(group.pids().values()) & set(former.values()), 10, "both workers")
    for source in IPV4:
        answers = [net.udp(source), net.tcp(source)]
        assert {pid_of(answer) for answer in answers} == {group.pids()[slot_of(answers[0])]}
    wait_until(lambda: drained(list(former.values())), 5, "the end of the former workers")
    assert all(slot["generation"] == 1 for slot in group.slots().values())
    for connection in connections.values():
        connection.close()


def test_a_supervisor_that_dies_in_a_reload_is_followed_by_one_that_knows_every_worker(net, group):
    mute = group.folder / "mute"
    options = (*QUIC, "--heartbeat", "1h", "--drain-timeout", "10s")
    group.run(*SERVER, "--mute", str(mute), options=options)
    first = group.pids()
    with sessions(net, 20) as open_ones:
        before = [session.answer for session in open_ones]
        group.ask("reload", "0")
        mute.touch()  # the next one is never ready
        with begun_reload(group, 1):
            starting = wait_until(lambda: others(group, "starting"), 5, "a next worker")[0]["pid"]
            assert others(group, "leaving")[0]["pid"] == first[0]
            group.kill()
        assert [session.ask() for session in open_ones] == before
        mute.unlink()
        group.run(*SERVER, "--mute", str(mute), options=options)
        assert [session.ask() for session in open_ones] == before
        wait_until(lambda: drained([starting]), 5, "the end of the worker that was not ready")
        assert group.pids()[1] == first[1] and group.pids()[0] not in (0, first[0])
    wait_until(lambda: drained([first[0]]) and group.ask("show")["others"] == [], 10, "the end of the former worker")


@pytest.mark.parametrize("taken_over", [False, True])
def test_the_next_worker_of_a_slot_that_says_ready_is_waited_for_until_it_does(net, group, taken_over):
    late = group.folder / "late"
    group.run(*SERVER, "--late", str(late), options=QUIC)
    with sessions(net, 20) as open_ones:
        first = {f"ok {pid}" for pid in group.pids().values()}
        wait_until(lambda: all_say_ready(group), 5, "READY=1 of both")
        if taken_over:
            group.kill()
            group.run(*SERVER, "--late", str(late), options=QUIC)
        late.touch()
        with begun_reload(group, 0) as reload:
            wait_until(lambda: [each for each in others(group, "starting") if each["seconds_in_state"] > 1.5], 5, "a next worker that is not ready after 1 s")
            with sessions(net, 20) as new_ones:
                assert {session.answer for session in (*open_ones, *new_ones)} == first
            assert reload.wait(20) == 0
        assert f"ok {group.pids()[0]}" not in first


def all_say_ready(group: Group) -> bool:
    return all(slot.get("says_ready") for slot in json.loads((group.run_dir / group.name / "record.json").read_text(encoding="utf-8"))["slots"])


def test_a_heartbeat_of_a_next_worker_that_still_loads_is_not_its_ready(net, group):
    loads = group.folder / "loads"
    group.run(*SERVER, "--loads", str(loads), options=QUIC)
    wait_until(lambda: all_say_ready(group), 5, "READY=1 of both")
    first = group.pids()
    loads.touch()
    with begun_reload(group, 0) as reload:
        wait_until(lambda: [each for each in others(group, "starting") if each["seconds_in_state"] > 1], 5, "a next worker that still loads after 1 s")
        with sessions(net, 20) as open_ones:
            assert {session.answer for session in open_ones} == {f"ok {pid}" for pid in first.values()}
        assert reload.wait(20) == 0
    assert group.pids()[0] != first[0]


def test_after_a_restart_a_slot_whose_workers_no_longer_say_ready_is_reloaded(group):
    mute = group.folder / "mute"
    group.run(*SERVER, "--mute", str(mute), options=QUIC)
    wait_until(lambda: all_say_ready(group), 5, "READY=1 of both")
    mute.touch()
    group.ask("restart", "0")
    assert not all_say_ready(group)
    with begun_reload(group, 0) as reload:
        assert reload.wait(20) == 0


def test_each_reload_in_a_change_is_a_generation_of_its_own(net, group):
    """The former half of the table still names the first one, whose place must not be another worker's."""
    group.run(*SERVER, options=QUIC)
    for generation in (1, 2):
        group.ask("reload", "0")
        assert group.slots()[0]["generation"] == generation
        wait_until(lambda: group.ask("show")["others"] == [], 10, "the end of the former worker")


def test_a_next_worker_that_was_started_but_not_recorded_is_found_and_ended(group):
    mute = group.folder / "mute"
    group.run(*SERVER, "--mute", str(mute), options=(*QUIC, "--heartbeat", "1h"))
    mute.touch()
    with begun_reload(group, 0):
        starting = wait_until(lambda: others(group, "starting"), 5, "a next worker")[0]["pid"]
        group.kill()
    edit_record(group, lambda slots: [slot.update(worker={}) for slot in slots if slot.get("leaving")])
    group.run(*SERVER, "--mute", str(mute), options=(*QUIC, "--heartbeat", "1h"))
    wait_until(lambda: drained([starting]) and group.ask("show")["others"] == [], 10, "its end")


def test_the_service_managers_store_gives_up_the_sockets_of_a_place_that_is_in_no_record(group):
    mute = group.folder / "mute"
    with service_manager(group) as (stored, hear):
        group.run(*SERVER, "--mute", str(mute), options=(*UDP, "--heartbeat", "1h"))
        mute.touch()
        with begun_reload(group, 0):
            starting = wait_until(lambda: others(group, "starting"), 5, "a next worker")[0]["pid"]
            hear(3)
            group.kill()
        edit_record(group, lambda slots: slots.remove(next(slot for slot in slots if slot.get("leaving"))))
        os.kill(starting, signal.SIGKILL)
        words = ("run", "--listen", f"127.0.0.1:{PORT}", "-n", "2", *UDP, "--heartbeat", "1h", *group._where(), "--", *SERVER, "--mute", str(mute))
        group._start(words, list(stored.values()))
        hear(2)
        assert set(stored) == {"udp-0", "udp-1"}
        group.ask("stop")
        hear(0)


def test_a_takeover_while_a_former_worker_drains_names_no_problem(net, group):
    options = ("--drain-timeout", "30s", "--stop-timeout", "500ms")
    group.start(*options, worker=("--deaf",))
    former = group.pids()[0]
    group.ask("reload", "0")
    wait_until(lambda: others(group, "leaving"), 5, "a former worker")
    time.sleep(0.5)  # its listener is shut down
    group.kill()
    group.start(*options, worker=("--deaf",))
    assert others(group, "leaving")[0]["pid"] == former
    assert group.ask("show")["problems"] == []
    assert {pid_of(net.tcp(source)) for source in IPV4} == set(group.pids().values())
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: group.ask("show")["others"] == [], 5, "its end")


def test_no_connection_of_a_quic_server_is_lost_by_reloads(net, group):
    """ngtcp2's server and clients, as they are. On SIGTERM it ends with all its connections; SIGURG it ignores, and has until --drain-timeout."""
    path = f"/usr/sbin:{os.environ['PATH']}"
    server, client = shutil.which("gtlsserver", path=path), shutil.which("gtlsclient", path=path)
    if server is None or client is None:
        pytest.skip("ngtcp2-server and ngtcp2-client are not installed")
    size, folder = 3_000_000, group.folder
    (folder / "www").mkdir()
    (folder / "www" / "file").write_bytes(os.urandom(size))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key", "-out", folder / "certificate", "-days", "3",
                    "-subj", "/CN=localhost"], check=True, capture_output=True)
    group.run(str(BIN / "hedgerow-steer"), "bind", "--", server, "127.0.0.1", str(PORT), str(folder / "key"), str(folder / "certificate"), "-q",
              "-d", str(folder / "www"), options=(*QUIC, "--drain-signal", "URG", "--drain-timeout", "8s"))
    outcomes: collections.Counter = collections.Counter()
    done = threading.Event()

    def fetch(number: int) -> None:
        into, draw = folder / str(number), random.Random(number)
        into.mkdir()
        while not done.is_set():
            (into / "file").unlink(missing_ok=True)
            command = (client, "127.0.0.1", str(PORT), "https://localhost/file", "-q", "--exit-on-all-streams-close", f"--download={into}",
                       f"--delay-stream={draw.randrange(2500)}ms")
            status = subprocess.run(["ip", "netns", "exec", net.name, "timeout", "20", *command], capture_output=True, check=False).returncode
            outcomes[status == 0 and (into / "file").stat().st_size == size] += 1

    clients = [threading.Thread(target=fetch, args=(number,)) for number in range(8)]
    for each in clients:
        each.start()
    for _ in range(3):
        time.sleep(2)
        group.ask("reload")
    done.set()
    for each in clients:
        each.join()
    shown = group.ask("show")
    assert set(outcomes) == {True} and outcomes[True] > 20, outcomes
    assert shown["sessions_kept"] > 0 and shown["problems"] == [] and [slot["generation"] for slot in shown["slots"]] == [3, 3]
