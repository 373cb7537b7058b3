# SPDX-License-Identifier: Apache-2.0
"""A memcached client over UDP, for what other people's cannot do: storage commands that are answered, chosen frame ids,
the same datagram again; and a load whose every operation is written down as chaos/load/history_file.h says, to be judged
by its checkers.
"""

import dataclasses
import random
import re
import socket
import struct
import threading
import time
from pathlib import Path

from deploy.lab import Host
from harness.servers import frame

COUNTERS, REGISTERS = 4, 8
HEADER = "client,kind,key,value,intended_ns,sent_ns,ended_ns,ending,attempts\n"


class Client:
    """One socket, not connected: whoever it asks, it is the same client. Frame ids are counted up, unless one is given."""

    def __init__(self, host: Host, address: str, port: int):
        self.socket = host.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self._address, self._port = address, port
        self._last_id = random.randrange(65536)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_exc) -> None:
        self.socket.close()

    def next_id(self) -> int:
        self._last_id = (self._last_id + 1) % 65536
        return self._last_id

    def send(self, body: bytes, request_id: int, to: str | None = None) -> None:
        self.socket.sendto(frame(request_id, body), (to or self._address, self._port))

    def receive(self, request_id: int, timeout_s: float) -> bytes | None:
        """The whole answer, of however many datagrams."""
        deadline, parts = time.monotonic() + timeout_s, {}
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                datagram = self.socket.recv(65536)
            except TimeoutError:
                return None
            found, sequence, total, _ = struct.unpack_from("!HHHH", datagram)
            if found != request_id:
                continue
            parts[sequence] = datagram[8:]
            if len(parts) == total:
                return b"".join(parts[number] for number in range(total))
        return None

    def ask(self, body: bytes, timeout_s: float = 5.0, *, request_id: int | None = None,
            again_s: float | None = None, to: str | None = None) -> bytes | None:
        """`again_s`: the same datagram after so long, and again, for two seconds, as the window allows."""
        request_id = self.next_id() if request_id is None else request_id
        self.send(body, request_id, to)
        if again_s is not None:
            until = time.monotonic() + 2
            while time.monotonic() < until:
                if (answer := self.receive(request_id, again_s)) is not None:
                    return answer
                self.send(body, request_id, to)
        return self.receive(request_id, timeout_s)


@dataclasses.dataclass
class Operation:
    client: int
    kind: str
    key: int
    value: int
    sent_ns: int
    ended_ns: int = 0
    ending: str = "pending"
    answer: bytes | None = None

    def line(self) -> str:
        return (f"{self.client},{self.kind},{self.key},{self.value},{self.sent_ns},{self.sent_ns},{self.ended_ns},"
                f"{self.ending},1\n")


def store_counters(client: Client) -> None:
    for key in range(COUNTERS):
        assert client.ask(b"set counter%d 0 0 1\r\n0\r\n" % key) == b"STORED\r\n"


class Load:
    """Clients that ask one thing after the other while the block lasts. A request without an answer within five seconds,
    or with an error, is kept as such. Only increments are repeated: no proxy hedges them."""

    def __init__(self, clients: list[Client], *, pause_s: float = 0.002, careless: bool = False):
        """`careless`: each increment is made twice, under two ids, and told as one: what the checkers must find."""
        self.operations: list[Operation] = []
        self._pause_s, self._careless = pause_s, careless
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number, client))
                         for number, client in enumerate(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def errors(self) -> list[Operation]:
        return [operation for operation in self.operations if operation.ending != "ok"]

    def _run(self, number: int, client: Client) -> None:
        rng = random.Random(number)
        done, values = [], 0
        while not self._stop.is_set():
            kind = rng.choice("iicpppggg")
            key = rng.randrange(COUNTERS if kind in "ic" else REGISTERS)
            values += 1
            operation = Operation(number, kind, key, (number + 1) << 32 | values if kind == "p" else 0,
                                  time.monotonic_ns())
            self._ask(client, operation)
            operation.ended_ns = time.monotonic_ns()
            done.append(operation)
            time.sleep(self._pause_s)
        self.operations += done

    def _ask(self, client: Client, operation: Operation) -> None:
        key = operation.key
        if operation.kind == "i":
            if self._careless:
                client.ask(b"incr counter%d 1\r\n" % key)
            operation.answer = client.ask(b"incr counter%d 1\r\n" % key, again_s=0.25)
            found = re.fullmatch(rb"(\d+)\r\n", operation.answer or b"")
        elif operation.kind == "p":
            text = b"%d" % operation.value
            operation.answer = client.ask(b"set register%d 0 0 %d\r\n%s\r\n" % (key, len(text), text))
            operation.ending = "ok" if operation.answer == b"STORED\r\n" else ending(operation.answer)
            return
        else:
            name = b"counter" if operation.kind == "c" else b"register"
            operation.answer = client.ask(b"get %s%d\r\n" % (name, key))
            found = read_number(operation.answer)
        operation.ending = "ok" if found else ending(operation.answer)
        if found:
            operation.value = int(found[1])


def read_number(answer: bytes | None) -> re.Match | None:
    """Of a get: nothing stored is 0."""
    if answer == b"END\r\n":
        answer = b"VALUE k 0 1\r\n0\r\nEND\r\n"
    return re.fullmatch(rb"VALUE \S+ \d+ \d+\r\n(\d+)\r\nEND\r\n", answer or b"")


def ending(answer: bytes | None) -> str:
    return "timed_out" if answer is None else "error"


def read_everything(client: Client) -> list[Operation]:
    """Every key that a load may have used, once the load is over."""
    reads = []
    for kind, count in (("c", COUNTERS), ("g", REGISTERS)):
        for key in range(count):
            operation = Operation(0, kind, key, 0, time.monotonic_ns())
            answer = client.ask(b"get %s%d\r\n" % (b"counter" if kind == "c" else b"register", key))
            found = read_number(answer)
            assert found, f"{kind}{key}: {answer!r}"
            operation.value, operation.ending, operation.ended_ns = int(found[1]), "ok", time.monotonic_ns()
            reads.append(operation)
    return reads


def write_history(path: Path, operations: list[Operation]) -> Path:
    path.write_text(HEADER + "".join(operation.line() for operation in operations), encoding="ascii")
    return path
