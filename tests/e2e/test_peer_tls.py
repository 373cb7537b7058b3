# SPDX-License-Identifier: Apache-2.0
"""Mutual TLS between nodes: a follower far behind gets its snapshot under certificates that are exchanged meanwhile, and from
strangers' idle connections neither end suffers."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.programs import binary
from deploy.lab.servers.hedgerow_node import PEER_PORT, HedgerowNode, NodeSettings

TAG = f"self{os.getpid()}t"
WITHIN_S = 60.0
VALUE = b"v" * 900
SETTINGS = NodeSettings(durability="disk", election=("200ms", "4s"),
                        offloads=tuple((name, "off") for name in ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog")),
                        snapshots=(("every_entries", 500), ("tail_entries", 50), ("rate", "256KiB")))


def wait_for(what: str, holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)


class Authority:
    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self.folder.mkdir(parents=True)
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9", "-keyout", "ca.key",
                      "-out", "ca.pem", "-subj", f"/CN={name}")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=30)

    def give(self, folder: Path, dns_name: str, trusted: "Authority") -> dict[str, str]:
        """A certificate, its key, and an authority to trust, each put into its place by a rename. Returns what the configuration says."""
        self._openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "node.key", "-out", "node.csr",
                      "-subj", "/CN=a node")
        (self.folder / "node.ext").write_text(f"subjectAltName=DNS:{dns_name}\n", encoding="ascii")
        self._openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9", "-extfile",
                      "node.ext", "-out", "node.pem")
        folder.mkdir(exist_ok=True)
        for name, source in (("node.pem", self.folder / "node.pem"), ("node.key", self.folder / "node.key"),
                             ("authority.pem", trusted.folder / "ca.pem")):
            new = folder / f"{name}.next"
            new.touch(mode=0o600)
            new.write_bytes(source.read_bytes())
            new.rename(folder / name)
        return {"certificate_file": str(folder / "node.pem"), "key_file": str(folder / "node.key"),
                "authority_file": str(folder / "authority.pem")}


def certify(node: HedgerowNode, authority: Authority, trusted: Authority | None = None, name: str = "") -> None:
    """While the node runs, or before it starts."""
    node.config["peer_tls"] = authority.give(node.folder / "tls", name or f"node-{node.number}.hedgerow", trusted or authority)


def counter(node: HedgerowNode, name: str) -> int:
    return int(((node.status() or {}).get("counters") or {}).get(name, 0))


def problems(node: HedgerowNode) -> str:
    return "\n".join((node.status() or {}).get("problems", []))


def write(lab: Lab, leader: HedgerowNode, first: int, keys: int) -> None:
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        client.open()
        for i in range(first, first + keys):
            client.put(b"%d" % i, VALUE)


def validate(node: HedgerowNode) -> str:
    node.write_config()
    return subprocess.run([binary("hedgerow-node"), "validate", "--config", node.file], capture_output=True, text=True, check=False,
                          timeout=30).stderr


def idle_connections(lab: Lab, node: HedgerowNode, count: int) -> subprocess.Popen:
    """From a host that is no member: connections on which nothing is ever said, opened again as often as they are closed."""
    program = ("import socket, sys, time\n"
               f"def connect():\n    s = socket.create_connection(('{node.host.ipv4}', {PEER_PORT}), 5)\n    s.setblocking(False)\n    return s\n"
               f"open_ = [connect() for _ in range({count})]\n"
               "print('connected', flush=True)\n"
               "while True:\n    time.sleep(0.2)\n"
               "    for i, s in enumerate(open_):\n"
               "        try:\n            closed = s.recv(1) == b''\n"
               "        except BlockingIOError:\n            closed = False\n"
               "        except OSError:\n            closed = True\n"
               "        if closed:\n            s.close(); open_[i] = connect()\n")
    child = lab.client.popen(["/usr/bin/python3", "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == "connected"
    return child


def test_a_follower_catches_up_under_certificates_that_change_meanwhile(tmp_path):
    authority, others, following = (Authority(tmp_path / name, name) for name in ("ours", "others", "next"))
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data:
        cluster = hedgerow_cluster(lab, data.path, SETTINGS)
        for node in cluster.nodes:
            certify(node, authority)
        with cluster:
            leader = cluster.wait_ready()
            behind = next(node for node in cluster.nodes if node is not leader)
            behind.kill_at_once()
            write(lab, leader, 0, 1500)
            wait_for("the log begins after what the other node has", lambda: int(leader.status()["snapshots"]["log_start"]) > 700)

            # Another member's certificate: the node does not start with it. One of another authority: no member takes it.
            certify(behind, authority, name="node-9.hedgerow")
            assert f"got a certificate for node-9.hedgerow, expected one for node-{behind.number}.hedgerow" in validate(behind)
            certify(behind, others, trusted=authority)
            behind.start()
            wait_for("the leader says which node it cannot reach and why",
                     lambda: f"node {behind.number} needs one and does not get it: " in problems(leader)
                     and "certificate" in problems(leader))
            assert counter(behind, "snapshot_transfers.receive_begun") == 0

            # Without a restart.
            certify(behind, authority)
            wait_for("the transfer begins", lambda: counter(behind, "snapshot_bytes.received") > 100_000)
            strangers = idle_connections(lab, behind, 500)
            for node in cluster.nodes:
                certify(node, following)
            write(lab, leader, 1500, 50)
            try:
                wait_for("the snapshot is installed", lambda: counter(behind, "snapshots.installed"))
            finally:
                lab.client.stop(strangers)
            assert counter(behind, "snapshot_transfers.receive_broken_off") == 0
            assert counter(behind, "snapshot_connections.source") > 0
            wait_for("it has all", lambda: behind.status()["applied"] == leader.status()["applied"])
            assert not problems(behind)
