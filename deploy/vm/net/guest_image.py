# SPDX-License-Identifier: Apache-2.0
"""What a machine of this lane boots from: the product, a DNS server and dig, iproute2, and the modules of the cards. Some
70 MB, where the other lane's image has 400: an emulated machine unpacks it at every boot."""

import shutil
from pathlib import Path

from deploy.dev import temporary
from deploy.vm import image
from deploy.vm.kernels import Kernel
from deploy.vm.net.models import MODELS

PROGRAMS = ("hedgerow", "hedgerowd", "hedgerow-node", "hkv")
_TOOLS = ("busybox", "dash", "ip", "tc", "ethtool", "kmod", "dig", "nsd")
_MODULES = (*(module for model in MODELS.values() for module in model.modules), "8021q", "bonding", "bridge", "veth", "sch_fq",
            "sch_htb", "sch_ingress", "cls_bpf", "cls_matchall", "act_bpf", "act_gact", "act_mirred", "act_pedit", "ipv6",
            "libcrc32c", "crc32c_generic")


def make(kernel: Kernel, build_dir: Path, into: Path) -> Path:
    programs = {name: build_dir / "bin" / name for name in PROGRAMS}
    archive = into / f"{kernel.series}.cpio"
    with temporary.folder("vm") as scratch:
        root = Path(scratch)
        image.make_small_system(kernel, programs, _TOOLS, _MODULES, root)
        (root / "payload").mkdir()
        shutil.copyfile(Path(__file__).parent / "guest.sh", root / "payload/script")
        (root / "payload/script").chmod(0o755)
        with archive.open("wb") as out:
            image.archive_of(root, out)
    return archive
