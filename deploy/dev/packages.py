# SPDX-License-Identifier: Apache-2.0
"""For tests: the .deb packages of this build, as `./dev package` makes them (package.sh)."""

import os
import subprocess
from pathlib import Path

from deploy.lab.servers.load import binary

ROOT = Path(__file__).resolve().parents[2]


def make(folder: Path) -> dict[str, Path]:
    """The packages by their names. Compressed a little: how well is dpkg's, and takes a third of the time."""
    script = ("for part in say package; do . deploy/dev/$part.sh; done; "
              f'make_packages "{binary("hedgerow").parent.parent}" "{folder}"')
    subprocess.run(["bash", "-euc", script], cwd=ROOT, check=True, timeout=600,
                   env={**os.environ, "HEDGEROW_ROOT": str(ROOT), "DPKG_DEB_COMPRESSOR_LEVEL": "0"})
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
