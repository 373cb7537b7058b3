# SPDX-License-Identifier: Apache-2.0
"""What a machine of this lane boots from: the product, a DNS server and dig, iproute2, and the modules of the cards. Some
70 MB, where the other lane's image has 400: an emulated machine unpacks it at every boot."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.vm import image
from deploy.vm.kernels import Broken, Kernel
from deploy.vm.net.models import MODELS

PROGRAMS = ("hedgerow", "hedgerowd", "hedgerow-node", "hkv")
_TOOLS = ("busybox", "dash", "ip", "tc", "ethtool", "kmod", "dig", "nsd")
_MODULES = (*(module for model in MODELS.values() for module in model.modules), "8021q", "bonding", "bridge", "veth", "sch_fq",
            "sch_htb", "sch_ingress", "cls_bpf", "cls_matchall", "act_bpf", "act_gact", "act_mirred", "act_pedit", "ipv6",
            "libcrc32c", "crc32c_generic")


def make(kernel: Kernel, build_dir: Path, into: Path) -> Path:
    programs = {name: build_dir / "bin" / name for name in PROGRAMS}
    if missing := [path.name for path in programs.values() if not path.exists()]:
        raise Broken(f"{', '.join(missing)}: not built (./dev build)")
    tools = {image.host_program(name) for name in _TOOLS}
    archive = into / f"{kernel.series}.cpio"
    with tempfile.TemporaryDirectory(prefix="hedgerow-vm-net-") as scratch:
        root = Path(scratch)
        image.make_folders(root)
        image.copy_files(tools | image.libraries_of(tools | set(programs.values())), root)
        image.put_modules(kernel, root, _MODULES)
        image.finish_system(root)
        for name, program in programs.items():
            subprocess.run(["strip", "-o", root / "usr/bin" / name, program], check=True)
        # The machines' first process (guest/init) wants to know where the project is; here is none.
        (root / "hedgerow").mkdir()
        (root / "hedgerow/.built_at").write_text("/hedgerow\n", encoding="ascii")
        (root / "payload").mkdir()
        shutil.copyfile(Path(__file__).parent / "guest.sh", root / "payload/script")
        (root / "payload/script").chmod(0o755)
        with archive.open("wb") as out:
            image.archive_of(root, out)
    return archive
