# SPDX-License-Identifier: Apache-2.0
"""The life of each program, as a script, and what is wrong with one that met a fault.

A life is right if the program serves on, or ends with a documented exit code and says why in a line; the kernel part serves in either
case, nothing acknowledged is lost, nothing stays behind, and the next start works. A rig (lab, servers, other nodes) serves many
lives, and is made anew after one that went wrong.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "tests"), str(PROJECT / "tests" / "e2e")]

from deploy.kubernetes.endpoints_test import Controller, FakeApi, endpoint, piece  # noqa: E402 (the path comes first)
from deploy.lab import Lab  # noqa: E402
from deploy.lab.cluster import hedgerow_cluster  # noqa: E402
from deploy.lab.data_dirs import DataDirs  # noqa: E402
from deploy.lab.programs import binary  # noqa: E402
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings  # noqa: E402
from harness.dns import UdpClient  # noqa: E402
from harness.product import BIN, VIP4, Product  # noqa: E402
from harness.stack import Stack  # noqa: E402
from harness.steer import HANDED, PORT, Group, made_folder, made_netns  # noqa: E402

START_S, SERVE_S, END_S, COMMAND_S = 15.0, 8.0, 10.0, 25.0
DOCUMENTED = (0, 1, 2, 3, 4)  # docs/cli.md
WAITS = "waits for files, and looks again every second: "
# A library's or an invariant's last words, which say nothing to an operator.
_ABORTS = re.compile(r"terminate called|what\(\):|Check failed|invariant|ASSERTION|assertion|\*\*\* |pure virtual|core dumped|bad_alloc")

Prefix = list[str]


class Wrong(Exception):
    """What the life of a program shows; the rig may be in any state."""


def until(condition: Callable[[], object], within_s: float, what: str):
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Wrong(f"{what}: not within {within_s:.0f} s")
        time.sleep(0.02)
    return value


def wait_for_start(process: subprocess.Popen, log: Path, said: str) -> None:
    """What comes then judges whether it serves: the log may be what fails."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and not re.search(said, log.read_text(errors="replace")) and time.monotonic() < deadline:
        time.sleep(0.02)


def check_end(code: int, said: str) -> None:
    """Of a program that has ended, with all that it wrote."""
    last = said.strip().rsplit("\n", 1)[-1]
    if code not in DOCUMENTED:
        raise Wrong(f"ended with {code}: {last!r}")
    if found := _ABORTS.search(last):
        raise Wrong(f"ended with {code} and {found[0]!r}: {last!r}")
    if code != 0 and not last:
        raise Wrong(f"ended with {code} and said nothing")


def end(process: subprocess.Popen, log: Path, number: int = signal.SIGTERM) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)  # a delay of strace's ends first
        raise Wrong(f"does not end within {END_S:.0f} s of signal {number}") from None
    check_end(process.returncode, log.read_text(errors="replace"))


def command(prefix: Prefix, *words, run=subprocess.run) -> None:
    """A command to its end: right if it did its work or says why it did not."""
    try:
        done = run([*prefix, *map(str, words)], capture_output=True, text=True, check=False, timeout=COMMAND_S, errors="replace")
    except subprocess.TimeoutExpired:
        raise Wrong(f"{Path(str(words[0])).name} {words[1]} does not end within {COMMAND_S:.0f} s") from None
    check_end(done.returncode, done.stdout + done.stderr)  # `doctor` ends with 1 for what it finds


class Hedgerowd:
    """Start, serve, reload, follow a network change, stop; then the next daemon, and `down`."""

    name = "hedgerowd"
    adopts = False

    def __init__(self, tag: str):
        self.tag = tag

    def __enter__(self):
        self.stack = Stack(self.tag, {}, {"a": "nsd", "b": "nsd"})
        self.product: Product = self.stack.product
        self.product.up()
        self.product.down()
        self.product.check_nothing_left()
        return self

    def __exit__(self, *_exc) -> None:
        self.stack.throw_away(check=False)

    def serves(self, what: str) -> None:
        def answered() -> bool:
            with contextlib.suppress(OSError), UdpClient(self.stack.lab.client, VIP4) as client:
                return client.ask(7, "www.example.test", timeout_s=0.3) is not None
            return False

        until(answered, SERVE_S, f"{what} serves")

    def config(self, delay: str) -> Path:
        return self.product.write(self.product.config(services=self.product.services("dns", delay=delay), unattended_timeout="30s"))

    def live(self, prefix: Prefix) -> None:
        product, log = self.product, self.product.folder / "traced.log"
        log.write_text("")
        file = self.config("10ms")
        if self.adopts:
            self.next_start(file)
            self.leave()
        child = self.stack.lab.client.popen([*prefix, BIN / "hedgerowd", "--config", file], log=log)
        try:
            wait_for_start(child, log, f"serves instance|{WAITS}")
            if child.poll() is None and WAITS in (said := log.read_text(errors="replace")) and "serves instance" not in said:
                end(child, log)  # what it lacks may come
            made = child.poll() is None
            if made:
                self.grow(child, log)
            check_end(child.wait(END_S), log.read_text(errors="replace"))
            if self.adopts or made:
                self.serves("the kernel part without its daemon")
            else:
                self.check_nothing_left(log)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        self.next_start(file)
        self.down()

    def grow(self, child: subprocess.Popen, log: Path) -> None:
        def sent(number: int, said: str) -> None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)
            deadline = time.monotonic() + 3  # the log may be what fails
            while child.poll() is None and not re.search(said, log.read_text(errors="replace"), re.S) and time.monotonic() < deadline:
                time.sleep(0.02)

        self.serves("the daemon")
        self.config("12ms")
        sent(signal.SIGHUP, r"signal 1: reloading[^\n]*\n.*?(reload|cannot|in force|error)")
        client = self.stack.lab.client
        client.run(["ip", "address", "add", "10.77.0.200/32", "dev", "eth0"])
        client.run(["ip", "link", "set", "eth0", "mtu", "1400"])
        self.serves("the daemon after a change of the network")
        client.run(["ip", "address", "del", "10.77.0.200/32", "dev", "eth0"])
        client.run(["ip", "link", "set", "eth0", "mtu", "1500"])
        time.sleep(0.3)
        self.serves("the daemon")
        if child.poll() is None:
            end(child, log)

    def next_start(self, file: Path) -> None:
        done = self.product.run("up", "--config", file)
        if done.returncode != 0:
            raise Wrong(f"the next start fails: {done.stderr.strip()[-300:]}")
        self.serves("the next start")

    def leave(self) -> None:
        pid = self.product.pid
        os.kill(pid, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}").exists(), END_S, "a daemon's end")

    def down(self) -> None:
        done = self.product.admin("down", check=False)
        if done.returncode != 0:
            raise Wrong(f"down: {done.stderr.strip()[-300:]}")
        self.check_nothing_left()

    def check_nothing_left(self, log: Path | None = None) -> None:
        """`log`: of a program that could not remove it, as long as it says so. The next start does, then."""
        with contextlib.suppress(FileNotFoundError):  # of another lab, which went while we looked: once more
            return self._check_nothing_left(log)
        return self._check_nothing_left(log)

    def _check_nothing_left(self, log: Path | None) -> None:
        try:
            self.product.check_nothing_left()
        except AssertionError as differs:
            if log is None or not re.search(r"while (taking down|undoing a failed start): |cannot be removed", log.read_text(errors="replace")):
                # The lock of a daemon that a library ended is no lock any more: flock(2) went with the process.
                left = [line for line in str(differs).splitlines() if re.match("left behind: (link|rule|pin|route|process|run file|bpf )", line)]
                if log is None or any(not re.search(r"run file \S+\.lock ", line) for line in left):
                    raise Wrong("; ".join(line[:70] for line in left)[:600]) from None


class Adopting(Hedgerowd):
    """The same of a daemon that takes over a kernel part."""

    name = "hedgerowd-adopts"
    adopts = True


class TracedNode(HedgerowNode):
    prefix: Prefix = []

    def command(self) -> list[str]:
        words = super().command()
        at = words.index(str(binary("hedgerow-node")))
        return [*words[:at], *self.prefix, *words[at:]]


class Node:
    """One of three: start, catch up, elect, serve, snapshot, members, backup, stop; the others serve meanwhile, and it starts again."""

    name = "hedgerow-node"
    durability = "disk"

    def __init__(self, tag: str):
        self.tag = tag

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.lab = stack.enter_context(Lab(self.tag, replicas=3))
            data = stack.enter_context(DataDirs(self.tag, "memory"))
            settings = NodeSettings(durability=self.durability)
            cluster = hedgerow_cluster(self.lab, data.path, settings)
            hosts = self.lab.replicas
            self.node = cluster.nodes[0] = TracedNode(hosts[0], 1, hosts, data.path / hosts[0].name, settings)
            self.cluster = stack.enter_context(cluster)
            self.cluster.wait_ready()
            self.acknowledged: dict[str, str] = {}
            self.lives = self.writes = 0
            end(self.node.process, self.node.log)
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._running.close()

    def hkv(self, number: int, *words: str) -> subprocess.CompletedProcess:
        return self.lab.client.run([binary("hkv"), "--server", self.cluster.nodes[number - 1].endpoint, "--timeout", "3s", *words], check=False)

    def put(self, number: int) -> bool:
        self.writes += 1
        key, value = f"k{self.writes % 40}", f"v{self.writes}"
        done = self.hkv(number, "put", key, value).returncode == 0
        if done:
            self.acknowledged[key] = value
        else:
            self.acknowledged.pop(key, None)  # it may have been done or not
        return done

    def ask(self, *words: str) -> None:
        command([], binary("hedgerow-node"), *words, "--socket", self.node.socket)

    def names_a_problem(self) -> bool:
        status = self.node.status()
        return bool(status and status["problems"]) or bool(re.search(r" (warning|error) ", self.node.log.read_text(errors="replace")))

    def ready(self) -> bool:
        return (state := self.node.state()) is not None and state.ready

    def live(self, prefix: Prefix) -> None:
        self.lives += 1
        node, process = self.node, None
        node.prefix = prefix
        node.log.write_text("")
        node.start()
        process = node.process
        try:
            until(lambda: self.put(2), SERVE_S, "the others serve")
            deadline = time.monotonic() + START_S
            while node.running and not (self.ready() or self.put(1)):
                if time.monotonic() > deadline:
                    if not self.names_a_problem():
                        raise Wrong(f"not ready within {START_S:.0f} s, and names no problem")
                    break
                time.sleep(0.05)
            if node.running:
                self.grow()
            if node.running:
                end(process, node.log)
            check_end(process.wait(END_S), node.log.read_text(errors="replace"))
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        node.prefix = []
        until(lambda: self.put(2), SERVE_S, "the others serve")
        node.start()
        until(lambda: self.ready() or not node.running, START_S, "the next start")
        if not node.running:
            raise Wrong(f"the next start fails: {node.log_tail()[-300:]}")
        for key, value in self.acknowledged.items():
            if (found := self.hkv(1, "get", key).stdout.strip()) != value:
                raise Wrong(f"lost: {key} is {found!r}, {value!r} was acknowledged")
        end(node.process, node.log)

    def grow(self) -> None:
        if (leader := self.cluster.leader()) is not None and leader is not self.node:
            leader.transfer(1)
        until(lambda: self.put(2), START_S, "the cluster serves")
        until(lambda: not self.node.running or self.put(1) or self.names_a_problem(), SERVE_S, "the node serves, or names a problem")
        for words in (["snapshot"], ["members"], ["backup", "--out", self.node.folder / f"backup{self.lives}"], ["keys"]):
            self.ask(*words)
        until(lambda: self.put(2), START_S, "the cluster serves")


class MemoryNode(Node):
    """The same in memory mode, where the kernel part acknowledges."""

    name = "hedgerow-node-memory"
    durability = "memory"


class Steer:
    """Run, serve on both transports, resize, upgrade (the next supervisor takes over what a killed one had), stop."""

    name = "hedgerow-steer"

    def __init__(self, tag: str):
        self.tag = tag

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.net = stack.enter_context(made_netns(f"hr-{self.tag}"))
            self.folder = stack.enter_context(made_folder())
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self.net.kill_all()
        Group(self.net, self.folder, self.tag).cli("clean", "--name", self.tag, ok=False)
        self._running.close()

    def start(self, prefix: Prefix, log: Path) -> tuple[Group, subprocess.Popen]:
        group = Group(self.net, self.folder, self.tag)
        words = [*prefix, str(BIN / "hedgerow-steer"), *group.command()]
        with self.net.entered(), log.open("wb") as output:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_for_start(process, log, "ready: ")
        return group, process

    def serves(self) -> None:
        def answered() -> bool:
            with contextlib.suppress(OSError):
                return bool(self.net.udp("127.0.0.7") and self.net.tcp("127.0.0.8"))
            return False

        until(answered, SERVE_S, "the group serves")

    def serves_or_says(self, log: Path) -> None:
        """A worker that cannot be started leaves its slot empty, which the log names."""
        if not re.search(r" (warning|error) ", log.read_text(errors="replace")):
            self.serves()

    def live(self, prefix: Prefix) -> None:
        log = self.folder / "traced.log"
        group, process = self.start(prefix, log)
        try:
            if process.poll() is None:
                self.serves_or_says(log)
                for number in ("3", "2"):
                    command([], *group._words(("resize", number, "--name", self.tag, "--run-dir", str(group.run_dir))))
                self.serves_or_says(log)
                if process.poll() is None:
                    end(process, log)
            check_end(process.wait(END_S), log.read_text(errors="replace"))
        finally:
            process.kill()
            process.wait()
        group, process = self.start([], log)
        if process.poll() is not None:
            raise Wrong(f"the next start fails: {log.read_text(errors='replace')[-300:]}")
        self.serves()
        end(process, log)
        group.cli("clean", "--name", self.tag, ok=False)
        if left := group.left():
            raise Wrong(f"left behind: {left}")


class Commands(Hedgerowd):
    """The commands of the proxy, one after the other, each to its end: those that start and end a daemon trace the command alone."""

    name = "hedgerow"

    def live(self, prefix: Prefix) -> None:
        client, words = self.stack.lab.client, [str(BIN / "hedgerow")]
        file, socket = self.config("10ms"), ["--socket", str(self.product.socket)]

        def traced(*call: str | Path) -> None:
            command([word for word in prefix if word != "-f"] if call[0] == "up" else prefix, *words, *call, run=client_run)

        def client_run(argv, **options):
            return client.run(argv, check=False, timeout=options["timeout"])

        traced("validate", file)
        traced("plan", "--config", file)
        traced("up", "--config", file, "--log", self.product.log)
        if self.product.admin("status", check=False).returncode != 0:
            self.next_start(file)
        for call in (["status"], ["reload"], ["trace", "--count", "1", "--for", "1s"], ["sysdump", "--out", self.product.folder / "dump.tar.gz"], ["doctor"]):
            traced(*call, *([] if call[0] == "doctor" else socket))
        self.serves("the proxy")
        traced("down", *socket)
        if self.product.admin("status", check=False).returncode == 0:
            self.down()
        traced("clean", "--instance", self.product.instance)
        self.product.clean()
        self.check_nothing_left()
        self.next_start(file)
        self.down()


# A daemon of two processes that share their ports: it answers each datagram and greets each connection. With `alone` it does not
# share, and is one process.
DAEMON = """import os, select, socket, sys
alone = "alone" in sys.argv
alone or os.fork()
socks = [socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
for sock in socks:
    alone or sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", 2055))
socks[1].listen()
print("bound", flush=True)
while True:
    for sock in select.select(socks, [], [])[0]:
        if sock is socks[0]: sock.sendto(b"0 0", sock.recvfrom(2048)[1])
        else: sock.accept()[0].sendall(b"0 0")"""


class SteerAdopt(Steer):
    """Adopts a daemon that knows nothing of it, serves, stops: the daemon goes on."""

    name = "hedgerow-steer-adopt"

    def start(self, prefix: Prefix, log: Path) -> tuple[Group, subprocess.Popen]:
        group = Group(self.net, self.folder, self.tag)
        words = [*prefix, str(BIN / "hedgerow-steer"), "adopt", "--listen", f"127.0.0.1:{PORT}", *group._where(), *map(str, self.pids)]
        with self.net.entered(), log.open("wb") as output:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_for_start(process, log, "ready: ")
        return group, process

    def live(self, prefix: Prefix) -> None:
        log, own = self.folder / "traced.log", self.folder / "daemon.log"
        with self.net.entered(), own.open("wb") as output:
            daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        try:
            until(lambda: own.read_text().count("bound") == 2, START_S, "the daemon")
            self.pids = [daemon.pid, *map(int, Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split())]
            for traced in (prefix, []):
                group, process = self.start(traced, log)
                try:
                    if process.poll() is None:
                        self.serves()
                        command([], *group._words(("show", "--name", self.tag, "--run-dir", str(group.run_dir))))
                        if process.poll() is None:
                            end(process, log)
                    elif not traced:
                        raise Wrong(f"the next start fails: {log.read_text(errors='replace')[-300:]}")
                    check_end(process.wait(END_S), log.read_text(errors="replace"))
                finally:
                    process.kill()
                    process.wait()
                self.serves()  # the daemon by itself
            group.cli("clean", "--name", self.tag, ok=False)
            if left := group.left():
                raise Wrong(f"left behind: {left}")
        finally:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


class SteerBind(Steer):
    """A daemon that binds by itself gets the sockets that were handed over, or does not start and says why."""

    name = "hedgerow-steer-bind"

    def live(self, prefix: Prefix) -> None:
        log = self.folder / "traced.log"
        for traced in (prefix, []):
            with contextlib.ExitStack() as handed, self.net.entered(), log.open("wb") as output:
                socks = []
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    sock = handed.enter_context(socket.socket(socket.AF_INET, kind))
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the life before
                    sock.bind(("127.0.0.1", PORT))
                    socks.append(sock)
                socks[1].listen()
                numbers = [sock.fileno() for sock in socks]
                process = subprocess.Popen([sys.executable, "-c", HANDED, ",".join(map(str, numbers)), *(traced or ["/usr/bin/env"]), str(BIN / "hedgerow-steer"),
                                            "bind", "--", sys.executable, "-c", DAEMON, "alone"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=numbers)
            try:
                wait_for_start(process, log, "bound")
                said = log.read_text(errors="replace")
                if process.poll() is None:
                    self.serves()
                elif not re.search("Traceback|error while loading", said):  # the daemon's own words
                    check_end(process.returncode, said)
                    if not traced:
                        raise Wrong(f"the next start fails: {said[-300:]}")
            finally:
                process.kill()
                process.wait()
                self.net.kill_all()


class Endpoints:
    """hedgerow-endpoints: writes the file from a list and from an event, has the daemon reload, stops."""

    name = "hedgerow-endpoints"

    def __init__(self, tag: str):
        self.tag = tag

    def __enter__(self):
        return self

    def __exit__(self, *_exc) -> None:
        pass

    def live(self, prefix: Prefix) -> None:
        with made_folder() as folder:
            controller = Controller(folder, None)
            for traced in (prefix, []):
                with FakeApi() as controller.api:
                    self._live(traced, controller)
            if left := list(folder.glob(".*.new")):
                raise Wrong(f"left behind: {left}")

    def _live(self, traced: Prefix, controller: Controller) -> None:
        api, log = controller.api, controller.folder / "log"
        a, b = (endpoint(f"10.77.0.{number}", f"dns-{number}") for number in (21, 22))
        api.slices = [piece("dns-1", a)]
        with log.open("wb") as output:
            process = subprocess.Popen([*traced, *controller.words()], stdout=output, stderr=output)

        def has(count: int) -> bool:
            """Or it says what it cannot do."""
            return process.poll() is not None or len(controller.backends()) == count or bool(re.search("(tries|trying) again|stays:", controller.log()))

        try:
            until(lambda: has(1), START_S, "the list is in the file")
            api.send("MODIFIED", piece("dns-1", a, b))
            until(lambda: has(2), START_S, "the event is in the file")
            until(lambda: has(-1) or controller.asked("reload") > 0, START_S, "the reload")
            if process.poll() is None:
                end(process, log)
            elif not traced:
                raise Wrong(f"the next start fails: {controller.log()[-300:]}")
            if "Traceback" in controller.log():
                raise Wrong(f"it ended by a traceback: {controller.log()[-300:]}")
            check_end(process.returncode, controller.log())
        finally:
            process.kill()
            process.wait()
            api.shutdown()


class Store:
    """One node that others' lives ask."""

    def __init__(self, tag: str):
        self.tag = tag

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.lab = stack.enter_context(Lab(self.tag, replicas=1))
            self.data = stack.enter_context(DataDirs(self.tag, "memory"))
            cluster = hedgerow_cluster(self.lab, self.data.path, NodeSettings(durability="disk"))
            self.cluster = stack.enter_context(cluster)
            self.cluster.wait_ready()
            self.node = cluster.nodes[0]
            self.hkv([], "put", "kept", "value")
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._running.close()

    def hkv(self, prefix: Prefix, *words: str) -> subprocess.CompletedProcess:
        return self.lab.client.run([*prefix, binary("hkv"), "--server", self.node.endpoint, "--timeout", "3s", *words], check=False, timeout=COMMAND_S)

    def expect(self, key: str, value: str) -> None:
        if (found := self.hkv([], "get", key).stdout.strip()) != value:
            raise Wrong(f"lost: {key} is {found!r}, {value!r} was acknowledged")


class Hkv(Store):
    """hkv: writes, reads, counts, deletes, each to its end."""

    name = "hkv"
    lives = 0

    def live(self, prefix: Prefix) -> None:
        Hkv.lives += 1
        key, value = f"k{Hkv.lives}", f"v{Hkv.lives}"
        for words in (["put", key, value], ["get", key], ["cas", key, value, value], ["incr", f"n{key}"], ["delete", f"n{key}"]):
            done = self.hkv(prefix, *words)
            check_end(done.returncode, done.stdout + done.stderr)
            if words[0] == "put" and done.returncode == 0:
                self.expect(key, value)
        self.expect("kept", "value")


class Restore(Store):
    """hedgerow-node restore: makes the log of a stopped node from a backup; a node then serves what was in it."""

    name = "hedgerow-node-restore"
    lives = 0

    def __enter__(self):
        super().__enter__()
        self.backup = self.data.path / "backup"
        command([], binary("hedgerow-node"), "backup", "--out", self.backup, "--socket", self.node.socket)
        end(self.node.process, self.node.log)
        return self

    def live(self, prefix: Prefix) -> None:
        node = self.node
        shutil.rmtree(node.data_dir)
        node.lose_memory()
        for traced in (prefix, [], []):
            done = self.node.host.run([*traced, binary("hedgerow-node"), "restore", "--config", node.file, "--from", self.backup], check=False, timeout=COMMAND_S)
            check_end(done.returncode, done.stdout + done.stderr)
            if done.returncode == 0:
                break
            if not traced and "is not empty" not in done.stderr:
                raise Wrong(f"the next restore fails: {done.stderr[-300:]}")
            if not traced:
                shutil.rmtree(node.data_dir)  # as it says
        else:
            raise Wrong(f"a restore into an empty folder fails: {done.stderr[-300:]}")
        node.start()
        until(lambda: ((state := node.state()) is not None and state.ready) or not node.running, START_S, "the restored node")
        self.expect("kept", "value")
        end(node.process, node.log)


LIVES = {life.name: life for life in (Hedgerowd, Adopting, Commands, Node, MemoryNode, Steer, SteerAdopt, SteerBind, Endpoints, Hkv, Restore)}
