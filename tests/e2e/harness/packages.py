# SPDX-License-Identifier: Apache-2.0
"""The .deb packages of this build, as `./dev package` makes them (deploy/dev/package.sh)."""

import fcntl
import os
import subprocess
from pathlib import Path

from deploy.lab.programs import binary

ROOT = Path(__file__).resolve().parents[3]


def make(folder: Path) -> dict[str, Path]:
    """The packages by their names. Compressed a little: how well is dpkg's, and takes a third of the time."""
    script = ("for part in say package; do . deploy/dev/$part.sh; done; "
              f'make_packages "{binary("hedgerow").parent.parent}" "{folder}"')
    subprocess.run(["bash", "-euc", script], cwd=ROOT, check=True, timeout=600,
                   env={**os.environ, "HEDGEROW_ROOT": str(ROOT), "DPKG_DEB_COMPRESSOR_LEVEL": "0"})
    return _found_in(folder)


def of_this_run(folder: Path) -> dict[str, Path]:
    """Made once in a run of `./dev test`, which names a folder for them: two of its processes need them. By hand into `folder`."""
    if "HEDGEROW_PACKAGES" not in os.environ:
        return make(folder)
    shared = Path(os.environ["HEDGEROW_PACKAGES"])
    shared.mkdir(parents=True, exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "made").exists():
            make(shared)
            (shared / "made").touch()
    return _found_in(shared)


def _found_in(folder: Path) -> dict[str, Path]:
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
