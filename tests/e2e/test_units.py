# SPDX-License-Identifier: Apache-2.0
"""Both programs as their shipped units start them: users of their own, exactly the units' capabilities, read-only file
systems and the units' seccomp filters."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.lab import XdpOnSwitch
from deploy.lab.programs import bpf_object
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings
from harness import machine, units
from harness.dns import who_answers
from harness.other_users import open_folder
from harness.product import BIN, VIP4, VIP6, wait_until

TAG = f"self{os.getpid()}7"
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_PERFMON": 38, "CAP_BPF": 39}  # linux/capability.h


@pytest.fixture
def scratch() -> Iterator[Path]:
    with open_folder() as folder, units.bpffs_folders(folder):
        yield folder


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def assert_confined(pid: int, unit: str) -> None:
    """The test would prove nothing about a process that is still root."""
    status = status_of(pid)
    confined = units.confinement(unit)
    assert set(status["Uid"].split()) == {str(confined.uid)} and set(status["Gid"].split()) == {str(confined.gid)}
    granted = sum(1 << CAPABILITIES[name] for name in confined.unit.words("AmbientCapabilities"))
    assert {int(status[each], 16) for each in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {granted}
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")


# -- the proxy ---------------------------------------------------------------------------------------------------------


class ProxyUnit:
    """hedgerowd as its unit starts it, in the lab's client host."""

    def __init__(self, product, scratch: Path):
        self.product = product
        self.folder = scratch / "run"
        self.folder.mkdir()
        self.program = {name: units.program(name, BIN, scratch / "bin") for name in ("hedgerowd", "hedgerow")}
        self.unit = units.confinement("hedgerowd", self.folder)
        units.give(self.folder, self.unit.uid, self.unit.gid, 0o755)
        product.socket, self.monitor = self.folder / "admin.sock", self.folder / "monitor.sock"
        self.file = scratch / "hedgerow.yaml"

    def write(self, **top) -> None:
        admin = {"socket": str(self.product.socket), "monitor_group": str(units.GROUPS["hedgerow-monitor"])}
        shutil.copy(self.product.write(self.product.config(admin=admin, **top)), self.file)
        units.give(self.file, 0, self.unit.gid, 0o640)

    def start(self):
        daemon = self.product.lab.client.popen([*self.unit.wrapper(), self.program["hedgerowd"], "--config", self.file],
                                               log=self.product.log)

        def serves() -> bool:
            assert daemon.poll() is None, self.product.log.read_text()
            return self.product.admin("status", check=False).returncode == 0

        wait_until(serves, timeout_s=30, what="the daemon's start")
        assert_confined(daemon.pid, "hedgerowd")
        return daemon

    def own(self, *words: str, file: Path | None = None) -> subprocess.CompletedProcess:
        """`hedgerow WORDS --config FILE` as the unit's user, as ExecReload= runs it."""
        return self.product.lab.client.run([*self.unit.wrapper(), self.program["hedgerow"], *words, "--config",
                                            file or self.file])


def check_monitoring(unit: ProxyUnit) -> None:
    """A user of the group reads, changes nothing, and cannot open the owner's socket; any other user can open neither."""
    program = unit.program["hedgerow"]

    def ask(group: int, socket: Path, *words: str) -> subprocess.CompletedProcess:
        become = ["setpriv", "--reuid=64798", f"--regid={group}", "--clear-groups"]
        return subprocess.run([*become, program, *words, "--socket", socket], capture_output=True, text=True, check=False,
                              timeout=20)

    member, stranger = units.GROUPS["hedgerow-monitor"], 64798
    assert ask(member, unit.monitor, "status").returncode == 0
    assert ask(member, unit.monitor, "leader", "show").returncode == 0
    for words in (("drain", "a"), ("down",), ("leader", "set", "dns4", "b"), ("reload",)):
        refused = ask(member, unit.monitor, *words)
        assert refused.returncode == 4 and "monitoring" in refused.stderr, (words, refused.stderr)
    # Commands go on to the socket beside it, which the daemon serves without being told.
    assert ask(member, unit.product.socket, "status").returncode == 0
    assert ask(member, unit.product.socket, "drain", "a").returncode == 4
    assert ask(stranger, unit.product.socket, "status").returncode == 4
    assert ask(stranger, unit.monitor, "status").returncode == 4


def check_files(unit: ProxyUnit, folder: Path) -> None:
    """The daemon reads in its configuration's folder; elsewhere, such as in `folder`, not even what its user may read."""
    elsewhere = folder / "hedgerow.yaml"
    shutil.copy(unit.file, elsewhere)
    units.give(elsewhere, 0, unit.unit.gid, 0o640)

    def seen_by_the_daemon(file: Path) -> bool:
        plan = json.loads(unit.product.run("plan", "--config", file, "--json").stdout)
        return "reload" in plan

    assert "files are confined to the daemon's own folders (Landlock)" in unit.product.log.read_text()
    assert "sound" in unit.own("validate", file=elsewhere).stdout, "the user may read it"
    assert seen_by_the_daemon(unit.file) and not seen_by_the_daemon(elsewhere)


@pytest.mark.own
def test_the_daemon_of_the_unit_serves_hedges_reloads_is_taken_over_and_goes(lab, servers, product, scratch):
    unit = ProxyUnit(product, scratch)
    product.before = machine.take(lab.client, product.instance)
    unit.write()
    unit.own("validate")
    daemon = unit.start()
    assert who_answers(lab.client, VIP4) == "a"
    servers["a"].stall()
    assert who_answers(lab.client, VIP6) == "b"
    servers["a"].resume()
    unit.write(services=product.services("dns", delay="7ms"))
    unit.own("reload")
    assert int(product.service_status()["delay_ns"]) == 7_000_000
    assert f'audit: user {unit.unit.uid}, process ' in (log := product.log.read_text()) and ': Reload {"dry_run":false,' in log
    check_monitoring(unit)
    with open_folder() as elsewhere:
        check_files(unit, elsewhere)
    assert lab.client.stop(daemon, timeout=15) == 0
    assert who_answers(lab.client, VIP4) == "a", "the kernel part works on"
    daemon = unit.start()
    assert product.status()["adoption"]["how"] == "adopted"
    assert who_answers(lab.client, VIP6) == "a"
    product.admin("down")
    assert daemon.wait(15) == 0
    product.check_nothing_left()


# -- the node ----------------------------------------------------------------------------------------------------------


class NodeUnit(HedgerowNode):
    """hedgerow-node as its unit starts it, with a folder of its own."""

    def __init__(self, host, number: int, members, data: Path, scratch: Path):
        super().__init__(host, number, members, data / host.name / "log", NodeSettings(durability="memory"))
        self.unit = units.confinement("hedgerow-node", self.data_dir.parent)
        for folder in (self.data_dir.parent, self.data_dir):
            folder.mkdir()
            units.give(folder, self.unit.uid, self.unit.gid, 0o755 if folder == self.data_dir.parent else 0o700)
        self.socket = self.data_dir.parent / "admin.sock"
        self.file = scratch / f"{host.name}.yaml"
        self.monitor = self.data_dir.parent / "monitor.sock"
        self.config |= {"admin_socket": str(self.socket), "monitor_group": str(units.GROUPS["hedgerow-monitor"])}
        self.program = units.program("hedgerow-node", BIN, scratch / "bin")

    def command(self) -> list[str]:
        self.write_config()
        units.give(self.file, 0, self.unit.gid, 0o640)
        return [*self.unit.wrapper(), str(self.program), "run", "--config", str(self.file)]


def test_nodes_of_the_unit_serve_with_all_offloads_elect_and_come_back(scratch):
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data:
        data.path.chmod(0o711)
        nodes = [NodeUnit(host, number, lab.replicas, data.path, scratch)
                 for number, host in enumerate(lab.replicas, start=1)]
        with Cluster(nodes, XdpOnSwitch(lab, lab.replicas, bpf_object("node_pass"))) as cluster:
            leader = cluster.wait_ready()
            for node in nodes:
                assert_confined(node.process.pid, "hedgerow-node")
                assert "waits longer" not in node.log_tail(), "it may shorten its time slices"
                assert "files are confined to the node's own folders (Landlock)" in node.log_tail()
            with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
                client.open()
                client.put(b"key", b"value")

            def missing() -> list[dict]:
                return [offload for node in nodes for offload in node.offloads() if not offload["on"]]

            wait_until(lambda: all(node.offloads() for node in nodes) and not missing(), timeout_s=20,
                       what="every offload of every node")
            member = ["setpriv", "--reuid=64798", f"--regid={units.GROUPS['hedgerow-monitor']}", "--clear-groups", leader.program]
            asked = [subprocess.run([*member, word, "--socket", leader.monitor], capture_output=True, check=False, timeout=20)
                     for word in ("status", "transfer")]
            assert [done.returncode for done in asked] == [0, 4]
            leader.kill_at_once()
            wait_until(lambda: (next_one := cluster.leader()) is not None and next_one is not leader, timeout_s=20,
                       what="another leader")
            # Each transition stands in the log, and each problem's begin and end.
            led = cluster.leader()
            assert "this node leads in term " in led.log_tail() and "wanted to lead in term " in led.log_tail()
            wait_until(lambda: f"error node {leader.number} " in led.log_tail(), timeout_s=10, what="the silent member in the log")
            leader.start()
            wait_until(lambda: f"info over, after " in led.log_tail(), timeout_s=20, what="its return in the log")
            follower = next(node for node in nodes if node is not cluster.wait_ready())
            with hkv.Client(follower.host.ipv4, follower.port, 5.0, lab.client.socket()) as client:
                assert client.get(b"key") == b"value"
            for node in nodes:
                assert node.host.stop(node.process, timeout=20) == 0, node.log_tail()
                assert not node.pins.exists(), "a node that ended in order owes nothing, and leaves no pins"


def test_neither_unit_can_remove_what_the_other_has_pinned(scratch):
    pinned = units.BPFFS / "hedgerow" / f"mine-{TAG}"
    pinned.mkdir(mode=0o700)
    units.give(pinned, units.USERS["hedgerow"], units.GROUPS["hedgerow"], 0o700)
    try:
        other = units.confinement("hedgerow-node").wrapper()
        for command in (["/usr/bin/rmdir", pinned], ["/usr/bin/mv", pinned, f"{pinned}-taken"], ["/usr/bin/ls", pinned]):
            done = subprocess.run([*other, *command], capture_output=True, text=True, check=False, timeout=20)
            assert done.returncode != 0 and ("not permitted" in done.stderr or "denied" in done.stderr), done.stderr
        assert pinned.exists()
    finally:
        pinned.rmdir()
