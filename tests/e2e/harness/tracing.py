# SPDX-License-Identifier: Apache-2.0
"""`hedgerow trace` beside a test, and what of it is in the kernel: the lease that the programs read, the ring."""

import contextlib
import json
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness.product import BIN, Product, wait_until

_MEMORY_BYTES = 384  # struct hr_trace of bpf/abi/trace_abi.h
_LOST_AT = 272       # its requests_lost and events_lost


class Trace:
    """A trace under way; `end` asks it to end and returns what it printed."""

    def __init__(self, product: Product, words: tuple[str, ...]):
        self._product = product
        self.out = product.folder / f"trace-{time.monotonic_ns()}.out"
        self.err = self.out.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = product.lab.client.popen([BIN / "hedgerow", "trace", *words, "--socket", product.socket],
                                                    stdout=out, stderr=err)

    def lines(self) -> list[str]:
        """The whole lines so far: the last one may still be on its way."""
        return self.out.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()

    def json(self) -> list[dict]:
        return [json.loads(line) for line in self.lines()]

    def wait(self, timeout_s: float = 10.0) -> int:
        return self.process.wait(timeout_s)

    def end(self) -> list[str]:
        code = self._product.lab.client.stop(self.process, signal.SIGINT)
        assert code == 0, self.err.read_text()
        return self.lines()


@contextlib.contextmanager
def tracing(product: Product, *words: str) -> Iterator[Trace]:
    """The kernel tells from the first line of the block on; afterwards it tells nobody."""
    trace = Trace(product, words)
    try:
        wait_until(lambda: lease_ns(product) > 0 or trace.process.poll() is not None, what="the trace's start")
        yield trace
    finally:
        code = product.lab.client.stop(trace.process, signal.SIGINT)
        assert code == 0, trace.err.read_text()
        wait_until(lambda: lease_ns(product) == 0, what="the trace's end in the kernel")


def memory(product: Product) -> bytes:
    """What the programs share with the tracer. Read by bpftool from the daemon's own maps: the daemon may be dead."""
    for number in _maps(product, ".data.live"):
        done = subprocess.run(["bpftool", "-j", "map", "dump", "id", str(number)], capture_output=True, text=True,
                              check=True, timeout=10)
        value = bytes(int(byte, 16) for byte in json.loads(done.stdout)[0]["value"])
        # Each program's object brought a copy of hr_live, of which the first is in use; its first word is not the tracer's.
        return value[8:8 + _MEMORY_BYTES]
    raise AssertionError("the daemon's programs have no memory for traces")


def lease_ns(product: Product) -> int:
    """0: nobody looks, and no program writes."""
    return struct.unpack_from("<Q", memory(product))[0]


def lost(product: Product) -> tuple[int, int]:
    """Requests over the rate, and events without room, as the kernel counted them for the last tracer."""
    return struct.unpack_from("<QQ", memory(product), _LOST_AT)


def held_rings(pid: int) -> int:
    """Rings of traces that a process holds."""
    count = 0
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            text = path.read_text(encoding="ascii")
            count += "map_type:\t27\n" in text  # BPF_MAP_TYPE_RINGBUF
    return count


def _maps(product: Product, name: str) -> list[int]:
    found = []
    for kind, number in sorted(product.bpf_objects):
        if kind != "map":
            continue
        done = subprocess.run(["bpftool", "-j", "map", "show", "id", str(number)], capture_output=True, text=True,
                              check=False, timeout=10)
        if done.returncode == 0 and json.loads(done.stdout).get("name") == name:
            found.append(number)
    return found
