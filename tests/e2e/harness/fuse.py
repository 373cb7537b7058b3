# SPDX-License-Identifier: Apache-2.0
"""Whether a machine lets us mount disks that lose what was not synced (chaos/unsynced)."""

import os
import subprocess
import tempfile
from pathlib import Path

from deploy.lab.programs import binary


def why_no_fuse() -> str:
    """Why nothing can be mounted here, as in a container that must not; empty when it can, or when the program fails for
    another reason, which is no excuse."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="hedgerow-fuse-") as folder:
        mount = Path(folder, "mount")
        mount.mkdir()
        # Its input ends at once, and so does the mount.
        done = subprocess.run([binary("hr-unsynced-fs"), Path(folder, "disk"), mount], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=30)
    refused = [line for line in done.stderr.splitlines() if "not permitted" in line or "denied" in line]
    return refused[0] if refused else ""
