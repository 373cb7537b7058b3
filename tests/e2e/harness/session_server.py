# SPDX-License-Identifier: Apache-2.0
"""A server with sessions over UDP, for tests of reloads. As QUIC servers do, it knows a session by an id, opens one by a long header, and on
SIGTERM serves the sessions that it has, refuses new ones, and ends with the last. It answers the number of the request, and what it did: `ok`,
`refused` (it ends, and opens none), `lost` (a session that it does not know). Its sockets are handed over (sd_listen_fds(3)), else it binds
127.0.0.1:2055 with SO_REUSEPORT. Arguments: --fails FILE (it ends at once while FILE exists), --mute FILE (it never says READY=1 while FILE exists),
--late FILE (it begins after 4 s while FILE exists), --loads FILE (while FILE exists it says WATCHDOG=1 at once, and begins 1.5 s later),
--idle S (a session without a datagram for so long has ended; 2).
"""

import os
import select
import signal
import socket
import sys
import time

LONG_HEADER = 0x80
IDLE_S = float(sys.argv[sys.argv.index("--idle") + 1]) if "--idle" in sys.argv else 2.0


def given(option: str) -> bool:
    return option in sys.argv and os.path.exists(sys.argv[sys.argv.index(option) + 1])


def opened() -> socket.socket:
    if "LISTEN_FDS" in os.environ:
        return socket.socket(fileno=3)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", 2055))
    return sock


def notify(state: bytes) -> None:
    if "NOTIFY_SOCKET" in os.environ:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(state, os.environ["NOTIFY_SOCKET"])


def main() -> None:
    if given("--fails"):
        sys.exit(3)
    if given("--late"):
        time.sleep(4)
    if given("--loads"):
        notify(b"WATCHDOG=1")
        time.sleep(1.5)
    sock = opened()
    sock.setblocking(False)
    sessions: dict[bytes, float] = {}
    ends = False

    def end(*_: object) -> None:
        nonlocal ends
        ends = True

    signal.signal(signal.SIGTERM, end)
    if not given("--mute"):
        notify(b"READY=1")
    while True:
        select.select([sock], [], [], 0.05)
        now = time.monotonic()
        while True:
            try:
                data, peer = sock.recvfrom(2048)
            except BlockingIOError:
                break
            is_long, ident, number = data[0] & LONG_HEADER, data[5:13], data[13:17]
            if is_long and not ends:
                sessions[ident] = now
            if ident in sessions:
                sessions[ident] = now
            sock.sendto(number + (b"ok" if ident in sessions else b"refused" if is_long else b"lost") + b" %d" % os.getpid(), peer)
        for ident in [ident for ident, heard in sessions.items() if now - heard > IDLE_S]:
            del sessions[ident]
        if ends and not sessions:
            sys.exit(0)


main()
