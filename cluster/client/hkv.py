# SPDX-License-Identifier: Apache-2.0
"""A client of the store in Python, standard library only: one UDP socket, connected to one address.

It knows no leader, no second server and no proxy; docs/WIRE_FORMAT.md has the bytes.

    with hkv.Client("10.99.0.48", 4801) as client:
        client.put(b"name", b"alice")
        print(client.get(b"name"), client.incr(b"visits"))

Every call sends one datagram and waits for its answer until its time-out; then it raises NoAnswer, and a write may
have been done or not. Silence is not asked again. A write that is answered OVERLOADED is, under its number, which does it
once: another copy of it, a proxy's, may have been done. In the last quarter of its time it is taken back, by a CANCEL of
its number. So HkvError OVERLOADED means that it was not done and never will be.

The first write opens a session, so that each is done once, whatever is late. A session is the client's own: each of its writes carries
the session's token, which the cluster drew at random. Without a session (`in_session=False`) a write stands for itself, under a number drawn at random, and so does a read. An answer is taken only from the
server's address, and only under the numbers of what was asked. One thread per client.

After a fork the child's client is another one: it has a socket of its own, and its first write opens another session. With the
parent's, the two would give one number to two writes, and take each other's answers.
"""

import contextlib
import errno
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

MAGIC, VERSION = 0x48, 2
# The rows of cluster/wire/hkv_table.h; its test compares them.
OPEN, WRITE, GET, CANCEL = 1, 2, 3, 4
PUT, DELETE, CAS, INCR = 1, 2, 3, 4
STATUSES = ("OK", "NOT_FOUND", "MISMATCH", "NOT_A_NUMBER", "UNKNOWN_SESSION", "BELOW_LOWEST", "OVERLOADED",
            "NOT_LEADER", "MALFORMED", "UNKNOWN_VERSION", "TOO_LARGE", "DENIED", "NO_SPACE", "SHORT")
OK, NOT_FOUND, MISMATCH, UNKNOWN_SESSION, OVERLOADED, MALFORMED, UNKNOWN_VERSION, DENIED, SHORT = 0, 1, 2, 4, 6, 8, 9, 11, 13
# Why a request was DENIED, by number.
DENIALS = ("", "the server serves clients with a key only", "the server knows no client of this name and key",
           "this host's clock and the server's differ by more than 20 s", "no right to read", "no right to write")
MAX_BYTES, MAX_OPERATIONS, MAX_KEY_BYTES = 1232, 64, 250
_REQUEST_HEADER = struct.Struct("<BBBBIQQQQ")
_ANSWER_HEADER = struct.Struct("<BBBBIQQQ")
_SESSION = struct.Struct("<QQ")
_AUTHENTICATED = 0x01  # in the flags: a trailer follows the body
_REQUEST_FLAGS_AT, _ANSWER_FLAGS_AT, _TAG_BYTES, MAX_CLIENT_BYTES = 3, 24, 8, 31
NO_SESSION = 0
# What an ICMP error of an earlier datagram makes of the next call on a connected socket.
_REFUSALS = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOPROTOOPT)
SOCKET_PAUSE_S, SOCKET_PAUSE_MAX_S = 1.0, 32.0  # between sockets that are left because nothing is heard; it doubles
FIRST_PAUSE_S, PAUSE_DOUBLINGS = 0.005, 6  # before a write that was answered OVERLOADED is sent again
# Without a session no longer: a proxy may send copies of the last one for 60 s, and nodes know a nonce for 70.
NONCE_IS_REPEATED_FOR_S = 5.0

_forks = 0  # that this process and those it comes from have gone through


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class HkvError(Exception):
    """The cluster refused; `status` is its number and `hint` the leader's id, or the version it speaks."""

    def __init__(self, status: int, hint: int = 0, denial: int = 0, denied_key: bytes = b""):
        name = STATUSES[status] if status < len(STATUSES) else f"status {status}"
        if status == DENIED and denial < len(DENIALS):
            name += f": {DENIALS[denial]}" + (f" {denied_key!r}" if denied_key else "")
        elif status == UNKNOWN_VERSION:
            name += f": the server speaks version {hint} of hkv, and this client {VERSION}"
        elif name == "NOT_LEADER" and hint:
            name += f", hint {hint}"
        super().__init__(name)
        self.status, self.hint = status, hint


class NoAnswer(HkvError):
    """Nothing came in time, or OVERLOADED to the last: a write may have been done or not."""

    def __init__(self, timeout_s: float, overloaded: bool = False, unproven: "Answer | None" = None):
        why = f"no answer within {timeout_s:g} s"
        if overloaded:
            why = f"overloaded for {timeout_s:g} s; the write may have been done or not"
        elif unproven is not None:
            why += f" has the right tag; one without says {_error(unproven)}"
        Exception.__init__(self, why)
        self.status, self.hint = None, 0


# -- what goes into a write --------------------------------------------------------------------------------


def put_operation(key: bytes, value: bytes) -> bytes:
    return _head(PUT, key) + _value(value)


def delete_operation(key: bytes) -> bytes:
    return _head(DELETE, key)


def cas_operation(key: bytes, expected: bytes | None, value: bytes) -> bytes:
    """`expected` None: the key must not exist."""
    if expected is None:
        return _head(CAS, key) + b"\x00" + _value(value)
    return _head(CAS, key) + b"\x01" + _value(value) + _value(expected)


def incr_operation(key: bytes, delta: int = 1) -> bytes:
    if not -2**63 <= delta < 2**63:
        raise ValueError(f"{delta} is no whole number of 64 bits")
    return _head(INCR, key) + struct.pack("<q", delta)


def _head(operation: int, key: bytes) -> bytes:
    return bytes([operation]) + _key(key)


def _key(key: bytes) -> bytes:
    if len(key) > MAX_KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes: at most {MAX_KEY_BYTES}")
    return bytes([len(key)]) + key


def _value(value: bytes) -> bytes:
    if len(value) > MAX_BYTES:
        raise ValueError(f"a value of {len(value)} bytes: the whole request has at most {MAX_BYTES}")
    return struct.pack("<H", len(value)) + value


# -- datagrams ---------------------------------------------------------------------------------------------


@dataclass
class Answer:
    kind: int  # the request's
    status: int
    hint: int
    client_id: int
    seq: int
    session: int = 0
    token: int = 0
    value: bytes = b""
    values: list[bytes] = field(default_factory=list)
    denial: int = 0  # with DENIED: an index of DENIALS, and the key for which a right is missing
    denied_key: bytes = b""


def _error(answer: Answer) -> HkvError:
    return HkvError(answer.status, answer.hint, answer.denial, answer.denied_key)


def encode_request(kind: int, timeout_us: int, client_id: int, seq: int, lowest_unanswered: int = 0,
                   key: bytes = b"", operations: Sequence[bytes] = (), token: int = 0, padded: int = 0) -> bytes:
    """`padded`: with zeros behind it the request has so many bytes."""
    body = b""
    if kind == GET:
        body = _key(key)
    elif kind == WRITE:
        if len(operations) > MAX_OPERATIONS:
            raise ValueError(f"{len(operations)} operations: at most {MAX_OPERATIONS}")
        body = bytes([len(operations)]) + b"".join(operations)
    datagram = _REQUEST_HEADER.pack(MAGIC, VERSION, kind, 0, timeout_us, client_id, seq, lowest_unanswered, token) + body
    datagram += bytes(max(0, padded - len(datagram)))
    if len(datagram) > MAX_BYTES:
        raise ValueError(f"a request of {len(datagram)} bytes: at most {MAX_BYTES}")
    return datagram


def parse_answer(datagram: bytes) -> Answer | None:
    """None if it is no answer of this version. UNKNOWN_VERSION is the same in all of them."""
    if len(datagram) < _ANSWER_HEADER.size or len(datagram) > MAX_BYTES:
        return None
    magic, version, kind, status, hint, client_id, seq, reserved = _ANSWER_HEADER.unpack_from(datagram)
    flags = reserved & _AUTHENTICATED
    if magic != MAGIC or not kind & 0x80 or reserved != flags or (version != VERSION and status != UNKNOWN_VERSION):
        return None
    answer = Answer(kind & 0x7F, status, hint, client_id, seq)
    body = datagram[_ANSWER_HEADER.size:]
    if flags:
        if len(body) < _TAG_BYTES:
            return None
        body = body[:-_TAG_BYTES]
    if status == DENIED:
        if len(body) < 2 or len(body) != 2 + body[1]:
            return None
        answer.denial, answer.denied_key = body[0], body[2:]
        return answer
    if status == OK and answer.kind == OPEN:
        if len(body) != _SESSION.size:
            return None
        answer.session, answer.token = _SESSION.unpack(body)
        return answer
    if status == OK and answer.kind in (GET, WRITE, CANCEL):
        values = _parse_values(b"\x01" + body if answer.kind == GET else body)
        if values is None:
            return None
        if answer.kind == GET:
            answer.value = values[0]
        else:
            answer.values = values
        return answer
    return answer if not body else None


def _parse_values(body: bytes) -> list[bytes] | None:
    """A count and that many values with their lengths, and nothing after them."""
    if not body or body[0] > MAX_OPERATIONS:
        return None
    values, at = [], 1
    for _ in range(body[0]):
        if at + 2 > len(body):
            return None
        end = at + 2 + int.from_bytes(body[at:at + 2], "little")
        if end > len(body):
            return None
        values.append(body[at + 2:end])
        at = end
    return values if at == len(body) else None


# -- proofs ------------------------------------------------------------------------------------------------


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 (Aumasson and Bernstein, 2012)."""
    mask = 2**64 - 1
    k0, k1 = struct.unpack("<QQ", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0 = v0 + v1 & mask
            v1 = (v1 << 13 | v1 >> 51) & mask ^ v0
            v0 = (v0 << 32 | v0 >> 32) & mask
            v2 = v2 + v3 & mask
            v3 = (v3 << 16 | v3 >> 48) & mask ^ v2
            v0 = v0 + v3 & mask
            v3 = (v3 << 21 | v3 >> 43) & mask ^ v0
            v2 = v2 + v1 & mask
            v1 = (v1 << 17 | v1 >> 47) & mask ^ v2
            v2 = (v2 << 32 | v2 >> 32) & mask

    rest = len(message) % 8
    padded = message + bytes(7 - rest) + bytes([len(message) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


@dataclass(frozen=True)
class Credentials:
    """A client's name and its key of 16 bytes: each request has a tag, and answers count only with one."""

    client: str
    key: bytes

    def __post_init__(self):
        if not 1 <= len(self.client.encode()) <= MAX_CLIENT_BYTES:
            raise ValueError(f"a client's name has 1 to {MAX_CLIENT_BYTES} bytes")
        if len(self.key) != 16:
            raise ValueError(f"a key of {len(self.key)} bytes: expected 16")

    @classmethod
    def from_file(cls, client: str, path: str | os.PathLike) -> "Credentials":
        """A file with 32 hexadecimal digits, as `openssl rand -hex 16` prints them, that other users have no right to."""
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & 0o027:
                raise ValueError(f"{path} is open to others, expected mode 0600 or 0640")
            return cls(client, bytes.fromhex(file.read().strip()))

    def seal(self, request: bytes, sent_ms: int | None = None) -> bytes:
        """An encoded request with its trailer. `sent_ms`: since 1970; now, if not given."""
        sent_ms = time.time_ns() // 10**6 if sent_ms is None else sent_ms
        name = self.client.encode()
        sealed = bytearray(request + name + bytes([len(name)]) + struct.pack("<Q", sent_ms))
        sealed[_REQUEST_FLAGS_AT] |= _AUTHENTICATED
        if len(sealed) + _TAG_BYTES > MAX_BYTES:
            raise ValueError(f"a request of {len(sealed) + _TAG_BYTES} bytes: at most {MAX_BYTES}")
        return bytes(sealed) + struct.pack("<Q", siphash(self.key, bytes(sealed)))

    def proves(self, answer: bytes) -> bool:
        """Whether an answer has the tag that a server with this key makes."""
        if len(answer) < _ANSWER_HEADER.size + _TAG_BYTES or not answer[_ANSWER_FLAGS_AT] & _AUTHENTICATED:
            return False
        return answer[-_TAG_BYTES:] == struct.pack("<Q", siphash(self.key, answer[:-_TAG_BYTES]))


# -- the client --------------------------------------------------------------------------------------------


class Client:
    def __init__(self, host: str, port: int = 4801, timeout_s: float = 1.0, sock: socket.socket | None = None,
                 credentials: Credentials | None = None, in_session: bool = True):
        """The first write opens a session. `in_session=False`: writes stand for themselves, known by a nonce for a while only, so that a copy
        which the network, a proxy or this host holds longer is done once more; for programs that end after a write. Of a name's addresses the first one that the kernel has a route to is asked; one that refuses, before it has answered
        anything, is left for the next one. `sock`: a UDP socket to use instead of an own one, for instance from another network namespace. A client with
        such a socket cannot be used after a fork."""
        self.timeout_s = timeout_s
        self._credentials = credentials
        self._in_session = in_session
        if sock is None:
            self._addresses = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        else:
            self._addresses = []
            sock.connect((host, port))
        self._start(sock)

    def _start(self, sock: socket.socket | None) -> None:
        """As new, in the process that calls it."""
        self._at = -1  # in _addresses
        self._untried = len(self._addresses)  # may be tried for what is asked
        self._heard = False  # the present one has answered
        self._heard_at = self._left_at = float("-inf")  # and when it last has; when a socket was last left because of silence
        self._socket_pause_s = SOCKET_PAUSE_S
        self._socket = sock if sock is not None else self._connect_next()
        self.session, self.token = NO_SESSION, 0
        self.unpaired = 0  # datagrams that were no answer to what was asked: late, duplicate, foreign
        self.unproven = 0  # answers without the right tag, to a client with credentials
        self._last_unproven: Answer | None = None
        self._next_seq = 1
        self._padded = 0  # bytes of a GET, as the longest answer so far has wanted
        self._forked = _forks

    def _connect_next(self) -> socket.socket:
        """To the next address that the kernel has a route to. Raises the last one's error."""
        while True:
            self._untried -= 1
            self._at = (self._at + 1) % len(self._addresses)
            family, kind, protocol, _, address = self._addresses[self._at]
            sock = None
            try:
                sock = socket.socket(family, kind, protocol)
                sock.connect(address)
                return sock
            except OSError:
                if sock is not None:
                    sock.close()
                if self._untried <= 0:
                    raise

    def _try_next_address(self) -> bool:
        """The present one has refused. One that has answered before is the server's, which will be back there."""
        if self._heard or self._untried <= 0:
            return False
        try:
            moved = self._connect_next()
        except OSError:
            return False
        self._socket.close()
        self._socket = moved
        return True

    def _reconnect(self) -> None:
        """A socket keeps the source address that it was connected with, which may leave this host: DHCP gives another one, a tunnel comes or goes."""
        if not self._addresses:
            return
        self._at, self._untried = self._at - 1, 1
        with contextlib.suppress(OSError):  # without a route the former one is as good
            moved = self._connect_next()
            self._socket.close()
            self._socket = moved

    def _leave_silent_socket(self, asked_at: float) -> None:
        """At most once a second, since each one takes a source port."""
        now = time.monotonic()
        if self._heard_at < asked_at and now >= self._left_at + self._socket_pause_s:
            self._left_at, self._socket_pause_s = now, min(2 * self._socket_pause_s, SOCKET_PAUSE_MAX_S)
            self._reconnect()

    def _be_of_this_process(self) -> None:
        if self._forked == _forks:
            return
        if not self._addresses:
            raise RuntimeError("this process was forked, and the client's socket is its parent's as well: "
                               "make a client with a socket of its own")
        self._socket.close()  # this process's descriptor; the parent has its own
        self._start(None)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_exc) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def open(self, timeout_s: float | None = None) -> None:
        self._be_of_this_process()
        answer = self._ask(OPEN, 0, secrets.randbits(64), timeout_s)
        if answer.status != OK:
            raise _error(answer)
        self.session, self.token, self._in_session = answer.session, answer.token, True

    def get(self, key: bytes, timeout_s: float | None = None) -> bytes | None:
        """None: there is no such key."""
        self._be_of_this_process()
        answer = self._ask(GET, secrets.randbits(64), secrets.randbits(64), timeout_s, key=key, padded=self._padded)
        if answer.status == SHORT and self._padded < answer.hint <= MAX_BYTES:
            # An answer is no longer than three times its request: this one as long as that wants, and later ones, too.
            self._padded = answer.hint
            answer = self._ask(GET, secrets.randbits(64), secrets.randbits(64), timeout_s, key=key, padded=self._padded)
        if answer.status == NOT_FOUND:
            return None
        if answer.status != OK:
            raise _error(answer)
        return answer.value

    def put(self, key: bytes, value: bytes, timeout_s: float | None = None) -> None:
        self.write([put_operation(key, value)], timeout_s)

    def delete(self, key: bytes, timeout_s: float | None = None) -> None:
        self.write([delete_operation(key)], timeout_s)

    def cas(self, key: bytes, expected: bytes | None, value: bytes, timeout_s: float | None = None) -> bool:
        """False: the key held something else."""
        try:
            self.write([cas_operation(key, expected, value)], timeout_s)
        except HkvError as error:
            if error.status == MISMATCH:
                return False
            raise
        return True

    def incr(self, key: bytes, delta: int = 1, timeout_s: float | None = None) -> int:
        return int(self.write([incr_operation(key, delta)], timeout_s)[0])

    def write(self, operations: Sequence[bytes], timeout_s: float | None = None) -> list[bytes]:
        """All of them or none; for each a value: an increment's number, else empty."""
        self._be_of_this_process()
        if self._in_session and self.session == NO_SESSION:
            self.open(timeout_s)
        if self.session == NO_SESSION:
            answer = self._ask(WRITE, NO_SESSION, secrets.randbits(64), timeout_s, operations=operations)
        else:
            seq = self._take_seq()
            # One request at a time: whatever came before it is answered or given up.
            answer = self._ask(WRITE, self.session, seq, timeout_s, lowest_unanswered=seq, operations=operations,
                               token=self.token)
            if answer.status == UNKNOWN_SESSION:
                self.session = NO_SESSION  # the next write opens another
        if answer.status != OK:
            raise _error(answer)
        return answer.values

    def _take_seq(self) -> int:
        self._next_seq += 1
        return self._next_seq - 1

    def _ask(self, kind: int, client_id: int, seq: int, timeout_s: float | None, operations: Sequence[bytes] = (),
             **body) -> Answer:
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        settle_s = min(timeout_s, NONCE_IS_REPEATED_FOR_S) if client_id == NO_SESSION else timeout_s
        settle_by = deadline - timeout_s + settle_s
        refused, left_s, asked = 0, timeout_s, {kind}
        self._last_unproven = None
        self._untried = max(len(self._addresses) - 1, 0)
        while True:
            timeout_us = max(1, min(int(left_s * 1e6), 2**32 - 1))
            self._send(encode_request(kind, timeout_us, client_id, seq, operations=operations, **body))
            repeat_at = None
            while (answer := self._receive(asked, client_id, seq, repeat_at or deadline)) is not None:
                if answer.status == OVERLOADED and (operations or CANCEL in asked):
                    refused += 1
                    repeat_at = repeat_at or self._repeat_at(refused, settle_by - settle_s / 4, settle_by)
                    continue
                if CANCEL in asked and self._was_not_done(answer):
                    answer.status = OVERLOADED
                return answer
            if repeat_at is None:
                self._leave_silent_socket(deadline - timeout_s)
                raise NoAnswer(timeout_s, refused > 0, self._last_unproven)
            left_s = deadline - time.monotonic()
            if time.monotonic() >= settle_by - settle_s / 4:
                kind, operations = CANCEL, ()
                asked.add(kind)

    @staticmethod
    def _was_not_done(answer: Answer) -> bool:
        """The CANCEL came before the write, which is never done then. The write itself is answered MISMATCH for that; it may as
        well have been done and have compared in vain: what it found is not known, that nothing was done is."""
        if answer.kind == CANCEL:
            return answer.status == OK and not answer.values
        return answer.status == MISMATCH

    @staticmethod
    def _repeat_at(refused: int, take_back_at: float, settle_by: float) -> float | None:
        """After a pause that grows, at random so that clients refused together do not come back together; in time for a write
        to be taken back, and for an answer to that. None: it is too late."""
        now = time.monotonic()
        pause_s = FIRST_PAUSE_S * 2 ** min(refused - 1, PAUSE_DOUBLINGS) * (1 + secrets.randbelow(50) / 100)
        no_later = take_back_at if now < take_back_at else now + max((settle_by - now) / 2, FIRST_PAUSE_S)
        repeat_at = min(now + pause_s, no_later)
        return repeat_at if repeat_at < settle_by else None

    def _receive(self, kinds: set[int], client_id: int, seq: int, until: float) -> Answer | None:
        """None: nothing came that belongs to it. Some errors a server sends without having understood what was asked."""
        while (left_s := until - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                datagram = self._socket.recv(MAX_BYTES + 1)
            except TimeoutError:
                return None
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                if self._try_next_address():
                    self._send(self._asked)
                continue  # an ICMP error does not mean that no other server answers
            answer = parse_answer(datagram)
            if answer is not None and (self._credentials is None or self._credentials.proves(datagram)):
                self._heard_at, self._socket_pause_s = time.monotonic(), SOCKET_PAUSE_S
            if answer is None or (answer.client_id, answer.seq) != (client_id, seq) or not (
                    answer.kind in kinds or answer.status in (MALFORMED, UNKNOWN_VERSION)):
                self.unpaired += 1
            elif self._credentials is not None and not self._credentials.proves(datagram):
                self.unproven += 1
                self._last_unproven = answer
            else:
                self._heard = True
                return answer
        return None

    def _send(self, datagram: bytes) -> None:
        self._asked = datagram
        if self._credentials is not None:
            datagram = self._credentials.seal(datagram)
        for tried in range(3):
            try:
                self._socket.send(datagram)
                return
            except OSError as error:  # it may be an earlier datagram's, and this one has not left
                if tried == 0 and error.errno in (errno.ENETUNREACH, errno.EINVAL):
                    self._reconnect()
                elif tried < 2 and error.errno in _REFUSALS:
                    self._try_next_address()
                else:
                    raise
