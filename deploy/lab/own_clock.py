# SPDX-License-Identifier: Apache-2.0
"""A wall clock for one process of the lab, which jumps on command while the machine's stands: the process asks hr-clock.so
(deploy/lab/preload/clock.cc), which looks into this file. Used by HedgerowNode (NodeSettings.own_clock).
"""

import mmap
import struct
import time
from pathlib import Path

# As in clock.cc: by how much it is ahead, what it was before, since when (CLOCK_REALTIME); then what the library counts.
_TOLD = struct.Struct("=Q")
_TOLD_AT, _BYTES = 24, 64


class OwnClock:
    """Right until it jumps. The file outlives the process, so that a restarted one goes on with the same clock."""

    def __init__(self, file: Path):
        self.file = file
        file.write_bytes(bytes(_BYTES))
        with open(file, "r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _BYTES)
        self._ahead_ns = 0

    def jump(self, ahead_s: float) -> None:
        """To so much ahead of the machine's clock, or behind it; 0 puts it right."""
        before, self._ahead_ns = self._ahead_ns, round(ahead_s * 1e9)
        # The older two first: between the two stores stamps look as before.
        struct.pack_into("=qq", self._shared, 8, before, time.time_ns())
        struct.pack_into("=q", self._shared, 0, self._ahead_ns)

    @property
    def told(self) -> int:
        """How often a time was reported that is not the machine's."""
        return _TOLD.unpack_from(self._shared, _TOLD_AT)[0]
