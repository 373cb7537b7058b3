# SPDX-License-Identifier: Apache-2.0
"""The Python client against byte vectors of the format, and against a server in a thread."""

import ctypes
import errno
import os
import socket
import struct
import subprocess
import threading

import pytest

from cluster.client import hkv

HEADER = ("48 02 {kind} 00 40 42 0f 00 07 00 00 00 00 00 00 00 2a 00 00 00 00 00 00 00 {lowest} 00 00 00 00 00 00 00"
          "{token} 00 00 00 00 00 00 00")


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


def request(kind: int, **body) -> bytes:
    return hkv.encode_request(kind, 1_000_000, 7, 42, **body)


def answer_bytes(kind: int, status: int, body: bytes = b"", hint: int = 0, reserved: int = 0, version: int = 2) -> bytes:
    return struct.pack("<BBBBIQQQ", 0x48, version, kind | 0x80, status, hint, 7, 42, reserved) + body


# -- requests ----------------------------------------------------------------------------------------------


def test_open_is_a_header_with_its_nonce_as_seq():
    assert hkv.encode_request(hkv.OPEN, 0, 0, 0x0102030405060708) == unhex(
        "48 02 01 00 00 00 00 00" "00 00 00 00 00 00 00 00" "08 07 06 05 04 03 02 01" "00 00 00 00 00 00 00 00"
        "00 00 00 00 00 00 00 00")


def test_get_carries_its_key():
    assert request(hkv.GET, key=b"ab") == unhex(HEADER.format(kind="03", lowest="00", token="00") + "02 61 62")


@pytest.mark.parametrize("operation, wire", [
    (hkv.put_operation(b"k", b"xyz"), "01 01 6b 03 00 78 79 7a"),
    (hkv.delete_operation(b"k"), "02 01 6b"),
    (hkv.cas_operation(b"k", None, b"v"), "03 01 6b 00 01 00 76"),
    (hkv.cas_operation(b"k", b"", b"v"), "03 01 6b 01 01 00 76 00 00"),
    (hkv.cas_operation(b"k", b"old", b"v"), "03 01 6b 01 01 00 76 03 00 6f 6c 64"),
    (hkv.incr_operation(b"k"), "04 01 6b 01 00 00 00 00 00 00 00"),
    (hkv.incr_operation(b"k", -2), "04 01 6b fe ff ff ff ff ff ff ff"),
])
def test_operations_stand_after_their_count(operation, wire):
    assert request(hkv.WRITE, lowest_unanswered=9, operations=[operation], token=0x55) == unhex(
        HEADER.format(kind="02", lowest="09", token="55") + "01" + wire)


def test_a_write_without_operations_keeps_the_session_alive():
    assert request(hkv.WRITE, lowest_unanswered=42, token=1) == unhex(HEADER.format(kind="02", lowest="2a", token="01") + "00")


def test_a_cancel_is_a_header():
    assert request(hkv.CANCEL, lowest_unanswered=42, token=1) == unhex(HEADER.format(kind="04", lowest="2a", token="01"))


def test_what_fits_no_datagram_is_refused():
    assert len(request(hkv.WRITE, operations=[hkv.put_operation(b"k", bytes(1232 - 40 - 1 - 5))])) == 1232
    for too_much in ([hkv.put_operation(b"k", bytes(1232 - 40 - 1 - 4))], [hkv.delete_operation(b"k")] * 65):
        with pytest.raises(ValueError):
            request(hkv.WRITE, operations=too_much)
    with pytest.raises(ValueError):
        request(hkv.GET, key=bytes(251))
    for delta in (2**63, -2**63 - 1):
        with pytest.raises(ValueError, match="64 bits"):
            hkv.incr_operation(b"k", delta)


# -- proofs ------------------------------------------------------------------------------------------------

WEB = hkv.Credentials("web", bytes(range(1, 17)))


def test_siphash_is_that_of_the_paper():
    assert hkv.siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


def test_a_sealed_request_is_that_of_the_other_clients():
    assert WEB.seal(hkv.encode_request(hkv.OPEN, 0, 0, 5), sent_ms=1_700_000_000_123) == unhex(
        "48 02 01 01 00 00 00 00" "00 00 00 00 00 00 00 00" "05 00 00 00 00 00 00 00" "00 00 00 00 00 00 00 00"
        "00 00 00 00 00 00 00 00" "77 65 62 03" "7b 68 e5 cf 8b 01 00 00" "2f d1 68 0c a7 8c 02 4a")


def sealed_answer(credentials: hkv.Credentials, kind: int, status: int, body: bytes = b"", seq: int = 42) -> bytes:
    answer = struct.pack("<BBBBIQQQ", 0x48, 2, kind | 0x80, status, 0, 7, seq, 1) + body
    return answer + struct.pack("<Q", hkv.siphash(credentials.key, answer))


def test_an_answer_is_proved_by_the_key_alone():
    answer = sealed_answer(WEB, hkv.GET, 0, b"\x02\x00hi")
    assert WEB.proves(answer) and hkv.parse_answer(answer).value == b"hi"
    assert not hkv.Credentials("web", bytes(16)).proves(answer)
    for at in range(len(answer)):
        assert not WEB.proves(answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1:])
        assert not WEB.proves(answer[:at])
    assert not WEB.proves(answer_bytes(hkv.GET, 0, b"\x02\x00hi"))


def test_a_denial_names_the_key():
    denied = hkv.parse_answer(answer_bytes(hkv.WRITE, hkv.DENIED, b"\x05\x05ops/x"))
    assert (denied.denial, denied.denied_key) == (5, b"ops/x")
    assert str(hkv._error(denied)) == "DENIED: no right to write b'ops/x'"
    for body in (b"", b"\x05", b"\x05\x06ops/x", b"\x05\x04ops/x"):
        assert hkv.parse_answer(answer_bytes(hkv.WRITE, hkv.DENIED, body)) is None


@pytest.mark.parametrize("client, key", [("", bytes(16)), ("w" * 32, bytes(16)), ("web", bytes(15))])
def test_credentials_have_a_name_and_a_whole_key(client, key):
    with pytest.raises(ValueError):
        hkv.Credentials(client, key)


def test_a_key_file_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_text("00" * 15 + "ff\n")
    path.chmod(0o600)
    assert hkv.Credentials.from_file("web", path).key == bytes(15) + b"\xff"
    path.chmod(0o644)
    with pytest.raises(ValueError, match="0600"):
        hkv.Credentials.from_file("web", path)


# -- answers -----------------------------------------------------------------------------------------------


def test_an_answer_to_open_carries_the_session():
    answer = hkv.parse_answer(unhex(
        "48 02 81 00 00 00 00 00" "00 00 00 00 00 00 00 00" "08 07 06 05 04 03 02 01" "00 00 00 00 00 00 00 00"
        "15 00 00 00 00 00 00 00" "16 00 00 00 00 00 00 00"))
    assert (answer.kind, answer.status, answer.client_id, answer.seq, answer.session, answer.token) == (
        hkv.OPEN, hkv.OK, 0, 0x0102030405060708, 0x15, 0x16)


def test_answers_with_values():
    assert hkv.parse_answer(answer_bytes(hkv.GET, hkv.OK, b"\x03\x00xyz")).value == b"xyz"
    assert hkv.parse_answer(answer_bytes(hkv.GET, hkv.OK, b"\x00\x00")).value == b""
    assert hkv.parse_answer(answer_bytes(hkv.WRITE, hkv.OK, b"\x02\x00\x00\x01\x005")).values == [b"", b"5"]
    assert hkv.parse_answer(answer_bytes(hkv.WRITE, hkv.OK, b"\x00")).values == []
    assert hkv.parse_answer(answer_bytes(hkv.CANCEL, hkv.OK, b"\x01\x01\x005")).values == [b"5"]
    assert hkv.parse_answer(answer_bytes(hkv.WRITE, 7, hint=3)).hint == 3


def test_the_version_of_an_old_server_is_understood():
    assert hkv.parse_answer(answer_bytes(hkv.GET, hkv.UNKNOWN_VERSION, hint=1, version=1)).hint == 1
    assert hkv.parse_answer(answer_bytes(hkv.GET, hkv.NOT_FOUND, version=1)) is None


@pytest.mark.parametrize("datagram", [
    b"", b"H", answer_bytes(hkv.GET, hkv.OK, b"\x00\x00")[:31], answer_bytes(hkv.GET, hkv.OK),
    answer_bytes(hkv.GET, hkv.OK, b"\x03\x00xy"), answer_bytes(hkv.GET, hkv.OK, b"\x01\x00xy"),
    answer_bytes(hkv.GET, hkv.NOT_FOUND, b"\x00"), answer_bytes(hkv.WRITE, hkv.OK),
    answer_bytes(hkv.WRITE, hkv.OK, b"\x02\x00\x00"), answer_bytes(hkv.WRITE, hkv.OK, b"\x41" + bytes(130)),
    b"\x47" + answer_bytes(hkv.OPEN, hkv.OK, bytes(16))[1:], b"\x48\x01" + answer_bytes(hkv.OPEN, hkv.OK, bytes(16))[2:],
    answer_bytes(hkv.OPEN, hkv.OK), answer_bytes(hkv.OPEN, hkv.OK, bytes(15)), answer_bytes(hkv.GET, hkv.NOT_FOUND, reserved=1),
    request(hkv.GET, key=b"a"), answer_bytes(hkv.GET, hkv.OK, struct.pack("<H", 1199) + bytes(1199)),
])
def test_what_is_no_answer_is_none(datagram):
    assert hkv.parse_answer(datagram) is None


# -- the client --------------------------------------------------------------------------------------------


class FakeServer(threading.Thread):
    """Answers each request with what `replies` gives: bytes, or several, or nothing."""

    def __init__(self, replies):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.replies, self.requests = replies, []

    def run(self):
        while True:
            datagram, peer = self.socket.recvfrom(2048)
            if datagram == b"end":
                return
            self.requests.append(datagram)
            for reply in self.replies(datagram):
                self.socket.sendto(reply, peer)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_exc):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"end", ("127.0.0.1", self.port))
        self.join()
        self.socket.close()


def reply_to(datagram: bytes, status: int = hkv.OK, body: bytes = b"", session: int = 0, hint: int = 0) -> bytes:
    """An answer repeats bytes 8 to 23 of its request. A session's token is 1000 more than its id."""
    if datagram[2] == hkv.OPEN and status == hkv.OK:
        body = struct.pack("<QQ", session, session + 1000)
    return bytes([0x48, 2, datagram[2] | 0x80, status]) + struct.pack("<I", hint) + datagram[8:24] + bytes(8) + body


def counting_store():
    """OPEN gives session 9, a write is an increment of the only counter, a GET finds it."""
    total = 0

    def replies(datagram: bytes) -> list[bytes]:
        nonlocal total
        if datagram[2] == hkv.OPEN:
            return [reply_to(datagram, session=9)]
        total += datagram[2] == hkv.WRITE
        text = str(total).encode()
        value = struct.pack("<H", len(text)) + text
        return [reply_to(datagram, body=value if datagram[2] == hkv.GET else b"\x01" + value)]

    return replies


def test_a_session_its_numbers_and_its_answers():
    with FakeServer(counting_store()) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        client.open()
        assert client.session == 9
        assert [client.incr(b"n"), client.incr(b"n")] == [1, 2]
        assert client.get(b"n") == b"2"
        headers = [struct.unpack_from("<BBBBIQQQQ", datagram) for datagram in server.requests]
    assert [(kind, *numbers) for _, _, kind, _, _, *numbers in headers[1:3]] == [
        (hkv.WRITE, 9, 1, 1, 1009), (hkv.WRITE, 9, 2, 2, 1009)]
    assert {timeout for _, _, _, _, timeout, *_ in headers} == {20_000_000}


def test_the_numbers_of_a_read_cannot_be_foreseen():
    with FakeServer(counting_store()) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        client.open()
        for _ in range(8):
            client.get(b"n")
        ids = [struct.unpack_from("<QQQQ", datagram, 8) for datagram in server.requests[1:]]
    assert len({number for client_id, seq, _, _ in ids for number in (client_id, seq)}) == 16
    assert all(seq > 2**32 and client_id > 2**32 and not lowest and not token for client_id, seq, lowest, token in ids)


def test_an_old_server_is_named():
    replies = lambda datagram: [b"\x48\x01" + reply_to(datagram, hkv.UNKNOWN_VERSION, hint=1)[2:]]
    with FakeServer(replies) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        with pytest.raises(hkv.HkvError, match="the server speaks version 1 of hkv, and this client 2"):
            client.get(b"n")


def test_the_first_write_opens_a_session_and_the_one_after_its_end_another():
    unknown = iter([False, True, False])
    def replies(datagram: bytes) -> list[bytes]:
        if datagram[2] == hkv.WRITE and next(unknown):
            return [reply_to(datagram, hkv.UNKNOWN_SESSION)]
        return counted(datagram)
    counted = sessions_store()
    with FakeServer(replies) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        assert (client.incr(b"n"), client.session) == (1, 1)
        with pytest.raises(hkv.HkvError, match="UNKNOWN_SESSION"):
            client.incr(b"n")
        assert (client.incr(b"n"), client.session) == (2, 2)
        assert [datagram[2] for datagram in server.requests] == [hkv.OPEN, hkv.WRITE, hkv.WRITE, hkv.OPEN, hkv.WRITE]


def test_a_write_without_a_session_stands_for_itself_under_a_nonce():
    with FakeServer(counting_store()) as server, hkv.Client("127.0.0.1", server.port, 20, in_session=False) as client:
        assert [client.incr(b"n"), client.incr(b"n")] == [1, 2]
        client.open()
        assert client.incr(b"n") == 3
        headers = [struct.unpack_from("<BBBBIQQQ", datagram)[5:] for datagram in server.requests]
    nonces = [seq for client_id, seq, lowest in headers[:2] if (client_id, lowest) == (0, 0)]
    assert len(set(nonces)) == 2 and min(nonces) > 1000
    assert headers[3] == (9, 1, 1)


# -- after a fork ------------------------------------------------------------------------------------------


def sessions_store():
    """Each OPEN gives another session; an increment is done once for each (session, seq)."""
    answers, sessions = {}, 0

    def replies(datagram: bytes) -> list[bytes]:
        nonlocal sessions
        if datagram[2] == hkv.OPEN:
            sessions += 1
            return [reply_to(datagram, session=sessions)]
        pair = datagram[8:24]
        text = str(answers.setdefault(pair, len(answers) + 1)).encode()
        return [reply_to(datagram, body=b"\x01" + struct.pack("<H", len(text)) + text)]

    return replies


def in_child(work) -> bytes:
    """What `work` returns in a process that was forked off, as text."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, repr(work()).encode())
        except BaseException as error:  # it must not go on as a second pytest
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        written = pipe.read()
    os.waitpid(pid, 0)
    return written.decode()


def test_a_forked_child_writes_in_a_session_and_from_a_socket_of_its_own():
    with FakeServer(sessions_store()) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        client.open()
        assert client.incr(b"n") == 1
        ours = client._socket.getsockname()
        # Both would give the next write the number 2, and the second would get the first one's answer.
        assert in_child(lambda: (client.incr(b"n"), client.session, client._socket.getsockname() != ours)) == repr((2, 2, True))
        assert in_child(lambda: (client.incr(b"n"), client.session)) == repr((3, 3))
        assert (client.incr(b"n"), client.session, client._socket.getsockname()) == (4, 1, ours)


def test_a_forked_child_without_a_session_needs_none():
    with FakeServer(sessions_store()) as server, hkv.Client("127.0.0.1", server.port, 20, in_session=False) as client:
        assert client.incr(b"n") == 1
        assert in_child(lambda: (client.incr(b"n"), client.session)) == repr((2, 0))


def test_a_source_address_that_has_left_the_host_is_replaced():
    def work():
        assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0, "CLONE_NEWNET needs root: sudo ./dev test"
        for words in ("link set lo up", "address add 10.9.9.2/32 dev lo", "route replace local 127.0.0.1 dev lo src 10.9.9.2 table local"):
            subprocess.run(["ip", *words.split()], check=True)
        with FakeServer(counting_store()) as server, hkv.Client("127.0.0.1", server.port, 5) as client:
            found = [client.incr(b"n"), client._socket.getsockname()[0]]
            for words in ("address delete 10.9.9.2/32 dev lo", "route delete local 127.0.0.1 dev lo table local"):
                subprocess.run(["ip", *words.split()], check=True)
            return [*found, client.incr(b"n"), client._socket.getsockname()[0]]

    assert in_child(work) == repr([1, "10.9.9.2", 2, "127.0.0.1"])


def test_after_a_request_without_any_answer_another_socket_asks():
    with FakeServer(lambda _datagram: []) as server, hkv.Client("127.0.0.1", server.port, 0.05) as client:
        before = client._socket.getsockname()
        with pytest.raises(hkv.NoAnswer):
            client.get(b"n")
        after = client._socket.getsockname()
        assert after != before
        with pytest.raises(hkv.NoAnswer):
            client.get(b"n")
        assert client._socket.getsockname() == after  # a source port at most a second


def test_after_a_fork_a_socket_that_the_caller_gave_is_an_error_in_the_child_alone():
    with FakeServer(sessions_store()) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        client = hkv.Client("127.0.0.1", server.port, 20, sock=given)
        client.open()
        assert "make a client with a socket of its own" in in_child(lambda: client.incr(b"n"))
        assert client.incr(b"n") == 1


def name_of(monkeypatch, *addresses: tuple[str, int]) -> None:
    """From now on a name has these addresses."""
    families = {True: socket.AF_INET6, False: socket.AF_INET}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, type=0: [
        (families[":" in address], type, 0, "", (address, number)) for address, number in addresses])


def test_an_address_that_refuses_is_left_for_the_next_one(monkeypatch):
    with FakeServer(counting_store()) as server:
        name_of(monkeypatch, ("::1", server.port), ("127.91.4.1", server.port), ("127.0.0.1", server.port))
        with hkv.Client("store.example", server.port, 20) as client:
            client.open()
            assert client.incr(b"n") == 1
            assert client.get(b"n") == b"1"
        assert len(server.requests) == 3, "nothing is sent twice to the one that answers"


def test_an_address_without_a_route_is_left_for_the_next_one(monkeypatch):
    with FakeServer(counting_store()) as server:
        name_of(monkeypatch, ("255.255.255.255", server.port), ("127.0.0.1", server.port))  # connect(2) is refused
        with hkv.Client("store.example", server.port, 20) as client:
            assert client.incr(b"n") == 1


def test_where_no_address_answers_the_request_ends(monkeypatch):
    with FakeServer(counting_store()) as server:
        port = server.port
    name_of(monkeypatch, ("127.91.4.1", port), ("127.91.4.2", port))
    with hkv.Client("store.example", port, 0.2) as client, pytest.raises(hkv.NoAnswer):
        client.get(b"n")


def test_the_address_that_has_answered_is_kept(monkeypatch):
    with FakeServer(counting_store()) as first, FakeServer(counting_store()) as second:
        name_of(monkeypatch, ("127.0.0.1", first.port), ("127.0.0.1", second.port))
        with hkv.Client("store.example", first.port, 20) as client:
            assert client.incr(b"n") == 1
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(b"end", ("127.0.0.1", first.port))
            first.join()
            first.socket.close()
            with pytest.raises(hkv.NoAnswer):
                client.get(b"n", timeout_s=0.2)
            assert second.requests == []


def test_statuses_are_errors_but_for_those_that_are_results():
    statuses = iter([1, 0, 2, 7])
    replies = lambda datagram: [reply_to(datagram, status := next(statuses), hint=5 if status == 7 else 0,
                                         session=1 if datagram[2] == hkv.OPEN else 0)]
    with FakeServer(replies) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        assert client.get(b"a") is None
        client.open()
        assert client.cas(b"a", b"x", b"y") is False
        with pytest.raises(hkv.HkvError, match="NOT_LEADER, hint 5"):
            client.get(b"a")


# -- overload ----------------------------------------------------------------------------------------------


class OverloadedStore:
    """Knows each pair of client_id and seq, as the cluster does. `refuses` says whether a copy of a write is answered OVERLOADED;
    `late` copies are done first all the same, as a proxy's may be."""

    def __init__(self, refuses, late=lambda _datagram: False):
        self.refuses, self.late, self.known, self.total = refuses, late, {}, 0

    def __call__(self, datagram: bytes) -> list[bytes]:
        if datagram[2] == hkv.OPEN:
            return [reply_to(datagram, session=9)]
        if self.late(datagram):
            self.serve(datagram)
        if self.refuses(datagram):
            return [reply_to(datagram, hkv.OVERLOADED, hint=2**32 - 1)]
        return [reply_to(datagram, body=self.serve(datagram))]

    def serve(self, datagram: bytes) -> bytes:
        if datagram[8:24] not in self.known:
            done = datagram[2] == hkv.WRITE
            self.total += done
            text = str(self.total).encode()
            self.known[datagram[8:24]] = b"\x01" + struct.pack("<H", len(text)) + text if done else b"\x00"
        return self.known[datagram[8:24]]


@pytest.mark.parametrize("session", [True, False])
def test_an_overloaded_write_is_sent_again_under_its_number_and_done_once(session):
    left = iter([True, True, False, False])
    first = iter([True])
    store = OverloadedStore(lambda _datagram: next(left), late=lambda _datagram: next(first, False))
    with FakeServer(store) as server, hkv.Client("127.0.0.1", server.port, 20, in_session=session) as client:
        assert client.incr(b"n") == 1
        assert client.incr(b"n") == 2
        assert client.unpaired == 0
    writes = [datagram for datagram in server.requests if datagram[2] == hkv.WRITE]
    assert len({datagram[8:24] for datagram in writes[:3]}) == 1 and len(writes) == 4


def test_an_overloaded_write_that_raises_is_never_done():
    store = OverloadedStore(lambda datagram: datagram[2] == hkv.WRITE)
    with FakeServer(store) as server, hkv.Client("127.0.0.1", server.port, 4) as client:
        client.open()
        with pytest.raises(hkv.HkvError, match="^OVERLOADED$") as raised:
            client.incr(b"n")
        assert raised.value.status == hkv.OVERLOADED
    store.serve(server.requests[1])  # a copy that was late
    assert store.total == 0


@pytest.mark.parametrize("kind, status, raised", [
    (hkv.WRITE, hkv.MISMATCH, "^OVERLOADED$"),   # the CANCEL came first, or the write has compared in vain
    (hkv.CANCEL, hkv.MISMATCH, "^MISMATCH$"),    # the write has
])
def test_what_a_mismatch_means_after_a_cancel(kind, status, raised):
    def replies(datagram: bytes) -> list[bytes]:
        if datagram[2] != hkv.CANCEL:
            return [reply_to(datagram, hkv.OVERLOADED, session=9)]
        return [reply_to(datagram[:2] + bytes([kind]) + datagram[3:], status)]

    with FakeServer(replies) as server, hkv.Client("127.0.0.1", server.port, 2, in_session=False) as client:
        with pytest.raises(hkv.HkvError, match=raised):
            client.put(b"n", b"v")
    assert {datagram[2] for datagram in server.requests} == {hkv.WRITE, hkv.CANCEL}


def test_a_write_that_is_overloaded_to_the_last_is_in_doubt():
    with FakeServer(OverloadedStore(lambda _datagram: True)) as server, hkv.Client("127.0.0.1", server.port, 0.2) as client:
        with pytest.raises(hkv.NoAnswer, match="may have been done or not"):
            client.incr(b"n")
    assert len(server.requests) > 2


def test_an_overloaded_read_is_an_error_at_once():
    with FakeServer(OverloadedStore(lambda _datagram: True)) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        with pytest.raises(hkv.HkvError, match="^OVERLOADED$"):
            client.get(b"n")
    assert len(server.requests) == 1


def test_an_answer_to_something_else_does_not_end_the_wait():
    def replies(datagram: bytes) -> list[bytes]:
        other = bytearray(datagram)
        other[16] ^= 1
        return [reply_to(bytes(other), hkv.NOT_FOUND), b"noise", reply_to(datagram, body=b"\x01\x00x")]

    with FakeServer(replies) as server, hkv.Client("127.0.0.1", server.port, 20) as client:
        assert client.get(b"a") == b"x"
        assert client.unpaired == 2


def test_silence_ends_at_the_time_out_and_nothing_is_sent_again():
    with FakeServer(lambda _datagram: []) as server, hkv.Client("127.0.0.1", server.port) as client:
        with pytest.raises(hkv.NoAnswer, match="0.05 s"):
            client.get(b"a", timeout_s=0.05)
    assert len(server.requests) == 1


class FilteredSocket(socket.socket):
    """As a connected socket after a filter's ICMP error: the next call reports it, and does nothing else."""

    errors = {"send": True, "recv": True}

    def fail_once(self, call: str) -> None:
        if self.errors.pop(call, False):
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    def send(self, *arguments):
        self.fail_once("send")
        return super().send(*arguments)

    def recv(self, *arguments):
        self.fail_once("recv")
        return super().recv(*arguments)


def test_an_icmp_error_of_an_earlier_datagram_costs_no_request():
    with FakeServer(lambda datagram: [reply_to(datagram, body=b"\x01\x00x")]) as server, FilteredSocket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        assert hkv.Client("127.0.0.1", server.port, 20, sock=given).get(b"a") == b"x"
    assert given.errors == {}


def test_a_closed_port_is_silence_too():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with hkv.Client("127.0.0.1", port, 0.05) as client:
        for _ in range(2):
            with pytest.raises(hkv.NoAnswer):
                client.get(b"a")
