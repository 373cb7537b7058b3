# SPDX-License-Identifier: Apache-2.0
"""A worker for tests of `hedgerow steer`: takes its sockets as sd_listen_fds(3) says, and answers everything with its
slot and pid. Arguments: --beat S (WATCHDOG=1 each S seconds), --down FILE (ends at once while FILE exists), --deaf (to SIGTERM), and
any others, which it gives back to the payload `arguments`.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

SLOT = os.environ["HEDGEROW_STEER_SLOT"]
ME = f"{SLOT} {os.getpid()}".encode()


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def notify(text: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])


def answer_to(payload: bytes) -> bytes:
    if payload == b"arguments":
        return "\0".join(sys.argv[1:]).encode()
    if payload == b"rights":
        with open("/proc/self/status", encoding="ascii") as status:
            effective = next(line.split()[1] for line in status if line.startswith("CapEff"))
        return f"{os.getuid()} {int(effective, 16)}".encode()
    if payload == b"child":
        return str(subprocess.Popen(["sleep", "1000"], close_fds=False, pass_fds=(3, 4)).pid).encode()
    if payload == b"background":
        code = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.execvp('sleep', ['sleep', '1000'])"
        subprocess.Popen([sys.executable, "-c", code], close_fds=False, pass_fds=(3, 4), start_new_session=True).wait()
    if payload in (b"connect", b"shut down"):
        with contextlib.suppress(OSError):
            sock = socket.socket(fileno=os.dup(3))
            sock.shutdown(socket.SHUT_RDWR) if payload == b"shut down" else sock.connect(("127.0.0.1", 9))
    if payload == b"shut":
        socket.socket(fileno=os.dup(4)).shutdown(socket.SHUT_RDWR)
    return ME + b" " + payload


def main() -> None:
    down = option("--down")
    if down and os.path.exists(down.replace("SLOT", SLOT)):
        sys.exit(3)
    assert os.environ["LISTEN_PID"] == str(os.getpid())
    names = os.environ["LISTEN_FDNAMES"].split(":")
    assert len(names) == int(os.environ["LISTEN_FDS"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--deaf" in sys.argv else lambda *_: sys.exit(0))
    selector = selectors.DefaultSelector()
    for number, name in enumerate(names):
        sock = socket.socket(fileno=3 + number)
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, name)
    beat = float(option("--beat") or 0)
    if beat:
        notify("READY=1\nWATCHDOG=1")
    beaten = time.monotonic()
    while True:
        for key, _ in selector.select(beat / 2 if beat else None):
            try:
                if key.data == "udp":
                    payload, source = key.fileobj.recvfrom(2048)
                    key.fileobj.sendto(answer_to(payload), source)
                elif key.data == "tcp":
                    connection, _ = key.fileobj.accept()
                    selector.register(connection, selectors.EVENT_READ, "connection")
                    connection.sendall(ME + b" hello")
                elif payload := key.fileobj.recv(2048):
                    key.fileobj.sendall(answer_to(payload))
                else:
                    raise ConnectionError
            except BlockingIOError:
                continue
            except OSError:  # the client has closed, or the listener was shut down
                selector.unregister(key.fileobj)
                key.fileobj.close()
        if beat and time.monotonic() - beaten >= beat:
            beaten = time.monotonic()
            notify("WATCHDOG=1")


main()
