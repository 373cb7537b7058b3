# SPDX-License-Identifier: Apache-2.0
"""A QEMU that has the model of a network card: this host's, or else a newer one of Debian's, unpacked into the cache.

igb came with QEMU 8.0, and Debian 12 has 7.2; its backports have a newer one, made for Debian 12's libraries.
"""

import shutil
import subprocess
from pathlib import Path

from deploy.vm import kernels, machine
from deploy.vm.kernels import Broken, Unavailable

_SUITES = ("bookworm-backports",)
_PACKAGES = ["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"]


def command(device: str) -> list[str]:
    """The words that start an emulator with this device."""
    if not shutil.which(machine.QEMU):
        raise Broken(f"{machine.QEMU} is not installed (sudo ./dev deps)")
    if _has(device, [machine.QEMU]):
        return [machine.QEMU]
    folder = kernels.cache_folder() / "qemu"
    if not (folder / "complete").exists():
        kernels.first_suite_that_has(_SUITES, f"a QEMU with {device}",
                                     lambda suite: kernels.unpack(suite, _PACKAGES, folder))
    newer = _unpacked(folder)
    if not _has(device, newer):
        raise Unavailable(f"neither this host's QEMU nor that of {', '.join(_SUITES)} runs here with {device}")
    return newer


def _unpacked(folder: Path) -> list[str]:
    share = folder / "usr" / "share"
    return [str(folder / "usr" / "bin" / machine.QEMU), "-L", str(share / "seabios"), "-L", str(share / "qemu")]


def _has(device: str, emulator: list[str]) -> bool:
    """Asked for by name: the list of all devices would load this host's modules into the other QEMU, which refuses them."""
    done = subprocess.run([*emulator, "-device", f"{device},help"], capture_output=True, text=True, check=False)
    return f"{device} options:" in done.stdout
