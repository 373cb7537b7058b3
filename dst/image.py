# SPDX-License-Identifier: Apache-2.0
"""What a machine of a run holds: the programs under test, a shell, iproute2, the modules; then one seed's plan and
configuration. Some 50 MB, where the lane's image has 400: an emulated machine unpacks it at every boot.

Names sorted, times and owners fixed (deploy/vm/image.py): the same files give the same image, and so the same run.
"""

import shutil
import subprocess
from pathlib import Path

import yaml

from deploy.dev import temporary
from deploy.lab.programs import noted
from deploy.lab.servers import hedgerow_node
from deploy.lab.servers.hedgerow_node import ANNOUNCE_PORT, SERVE_PORT
from deploy.vm import image
from deploy.vm.kernels import Broken, Kernel
from dst.plan import Plan

GUEST = Path(__file__).parent / "guest"
NODE, NODE_WITH_BUGS = "hedgerow-node", "hedgerow-node-bugs"
_TOOLS = ("busybox", "dash", "ip", "tc", "kmod")
_PROGRAMS = ("hedgerow", "hedgerowd", "hr-kv-chaos", "hr-unsynced-fs", "hr-dst-driver")
_MODULES = ("veth", "bridge", "sch_netem", "sch_fq", "sch_htb", "sch_ingress", "cls_bpf", "cls_matchall", "act_bpf",
            "act_gact", "act_mirred", "fuse", "libcrc32c", "crc32c_generic")
_NODES = (1, 2, 3)
_CLIENT, _VIP, _PROXY = "10.77.0.1", "10.99.0.48", "dst"
_CLUSTER = 77
# Of a cluster that lives for some virtual seconds.
_CLUSTER_KEY, _ANNOUNCE_KEY = "6865646765726f772d6473742d6e6f64", "6865646765726f772d6473742d707879"


def make_base(kernel: Kernel, build_dir: Path, into: Path, with_bugs: bool = False) -> Path:
    """What all seeds share."""
    node = build_dir / "bin" / (NODE_WITH_BUGS if with_bugs else NODE)
    programs = {name: noted(build_dir / "bin" / name) for name in _PROGRAMS} | {NODE: noted(node)}
    with temporary.folder("dst") as scratch:
        root = Path(scratch)
        image.make_small_system(kernel, programs, _TOOLS, _MODULES, root)
        (root / "dst").mkdir()
        shutil.copyfile(build_dir / "bpf" / "node_pass.bpf.o", root / "dst/node_pass.bpf.o")
        with (into / "base.cpio").open("wb") as out:
            image.archive_of(root, out)
    return into / "base.cpio"


def make(base: Path, plan: Plan, build_dir: Path, into: Path, bug: str = "") -> Path:
    """The image of one seed."""
    archive = into / "image.cpio"
    with temporary.folder("dst") as scratch:
        root = Path(scratch)
        payload = root / "payload"
        payload.mkdir()
        shutil.copyfile(GUEST / "stage.sh", payload / "script")
        (payload / "script").chmod(0o755)
        folder = root / "dst"
        folder.mkdir()
        (folder / "plan").write_text(plan.text(bug), encoding="ascii")
        if plan.native_xdp():
            (folder / "native_xdp").touch()
        for node in _NODES:
            _write(folder / f"node{node}.yaml", _node(plan, node))
        _write(folder / "hedgerow.yaml", _proxy(plan, _proxy_key(folder / "node1.yaml", build_dir)))
        with archive.open("wb") as out:
            with base.open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
            image.archive_of(root, out)
    return archive


def _write(file: Path, config: dict) -> None:
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="ascii")
    file.chmod(0o600)  # it holds keys


def _address(node: int) -> str:
    return f"10.77.0.{10 + node}"


def _node(plan: Plan, node: int) -> dict:
    config = hedgerow_node.config(
        node, _address(node), [_address(each) for each in _NODES], cluster_id=_CLUSTER, cluster_key=_CLUSTER_KEY, announce_key=_ANNOUNCE_KEY,
        durability=plan.durability, data_dir=f"/data/n{node}/log", admin_socket=f"/run/n{node}.sock",
        proxies=[{"name": _PROXY, "address": f"{_CLIENT}:{ANNOUNCE_PORT}"}])
    return config | ({"offloads": plan.offload_settings()} if plan.offload_settings() else {})


def _proxy_key(node_config: Path, build_dir: Path) -> str:
    done = subprocess.run([build_dir / "bin" / NODE, "proxy-key", "--config", node_config, _PROXY], capture_output=True,
                          text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise Broken(f"{NODE} proxy-key: {done.stderr}")
    return done.stdout.strip()


def _proxy(plan: Plan, key: str) -> dict:
    service = {"name": "kv", "vip": _VIP, "port": SERVE_PORT, "profile": "hkv", "delay": plan.hedge_delay,
               "deadline": f"{plan.timeout_us // 1000}ms", "budget": plan.budget,
               "cluster": {"id": _CLUSTER, "key": key, "announce_port": ANNOUNCE_PORT},
               "backends": [{"name": f"n{node}", "address": _address(node), "port": SERVE_PORT, "node": node}
                            for node in _NODES]}
    # Small maps: the kernel clears them first. A daemon that comes back under load may measure its clock badly.
    return {"instance": "dst", "admin": {"socket": "/run/hedgerow/admin.sock"}, "metrics": {"listen": ""},
            "limits": {"requests": 8192, "parked": 2048, "flows": 4096, "fragments": 256},
            "clock": {"tolerance": "20ms"}, "services": [service]}
