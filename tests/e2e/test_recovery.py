# SPDX-License-Identifier: Apache-2.0
"""A cluster on a bad day: nodes that have lost their memory, a majority that is gone, and a recovery from what is left."""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import struct
import subprocess
import threading
import time
import zlib
from pathlib import Path

import pytest

from chaos.systems import PROXY_NAME, kv_service
from cluster.client import hkv
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.programs import binary
from deploy.lab.servers.hedgerow_node import SERVE_PORT, HedgerowNode, NodeSettings
from harness.product import Product

TAG = f"self{os.getpid()}8"
PATIENT = ("200ms", "4s")
SETTINGS = NodeSettings(durability="memory", election=PATIENT)


def wait_for(what: str, holds, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)


def run(*words, code: int = 0, answer: str = "") -> subprocess.CompletedProcess:
    """The front door's own way: `hedgerow cluster WORDS`."""
    done = subprocess.run([binary("hedgerow"), "cluster", *map(str, words)], input=answer, capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def host_restarts(node: HedgerowNode) -> None:
    """As far as its node can tell, with a data folder that outlives it: the kernel's maps are gone, and the log was written in
    another run of the host (cluster/storage/watermark.cc)."""
    node.kill_at_once()
    node.lose_memory()
    mark = node.data_dir / "watermark"
    batch, unsynced, _ = struct.unpack_from("<QBB", mark.read_bytes(), 4)
    assert unsynced, "it was in memory mode"
    boot_id = b"another run of this host"
    body = (struct.pack("<QBB", batch, unsynced, len(boot_id)) + boot_id).ljust(124, b"\0")
    mark.write_bytes(struct.pack("<I", zlib.crc32(b"hedgerow watermark 1" + body)) + body)


def is_lost(node: HedgerowNode) -> bool:
    status = node.status()
    return status is not None and status["role"] == "lost"


def said_to_be_lost(node: HedgerowNode) -> list[int]:
    return [int(peer["id"]) for peer in (node.status() or {"peers": []})["peers"] if peer.get("lost")]


def move_away(node: HedgerowNode) -> None:
    before = node.data_dir.with_name(f"{node.data_dir.name}.before-{time.monotonic_ns()}")
    node.data_dir.rename(before)


def dropped_for_their_tag(node: HedgerowNode) -> int:
    counters = (node.status() or {}).get("counters", {})
    return sum(int(counters.get(name, 0)) for name in ("peer_dropped.tag", "kernel.dropped_tag"))


def is_silent(lab: Lab, node: HedgerowNode) -> bool:
    request = hkv.encode_request(hkv.GET, 500_000, 5, 1, 0, key=b"n")
    with lab.client.socket() as sock:
        sock.settimeout(0.7)
        sock.sendto(request, (node.host.ipv4, node.port))
        try:
            sock.recv(2048)
        except (TimeoutError, ConnectionRefusedError):
            return True
    return False


def write_three(lab: Lab, leader: HedgerowNode) -> tuple[int, int]:
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        client.open()
        assert [client.incr(b"n") for _ in range(3)] == [1, 2, 3]
        return client.session, client.token


def increment(lab: Lab, node: HedgerowNode, session: tuple[int, int], seq: int) -> list[bytes]:
    copy = hkv.encode_request(hkv.WRITE, 5_000_000, session[0], seq, seq, operations=[hkv.incr_operation(b"n")], token=session[1])
    with lab.client.socket() as sock:
        sock.settimeout(5.0)
        sock.sendto(copy, (node.host.ipv4, node.port))
        return hkv.parse_answer(sock.recv(2048)).values


def rejoin(cluster: Cluster, was: int, new: int) -> HedgerowNode:
    """At whoever leads by then, who is returned."""
    asked: list[HedgerowNode] = []
    refusals: list[str] = []

    def done() -> bool:
        leader = cluster.leader()
        if leader is None:
            return False
        asked.append(leader)
        refusals.append(leader.change_members("rejoin", was, new))
        return not refusals[-1]

    try:
        wait_for(f"node {was} comes back as {new}", done, within_s=60)
    finally:
        print(refusals)
    return asked[-1]


def restore_and_start(cluster: Cluster, file: Path, nodes: list[HedgerowNode]) -> None:
    for node in nodes:
        node.write_config()
        run("restore", "--config", node.file, "--from", file)
    for node in nodes:
        node.start()


def test_a_majority_that_has_lost_its_memory_says_so_and_begins_anew_with_the_survivor():
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SETTINGS) as cluster):
        survivor = cluster.wait_ready()
        lost = [node for node in cluster.nodes if node is not survivor]
        session = write_three(lab, survivor)
        file = data.path / "beginning"

        # One of three: it takes part in nothing, and the others go on and say which it is.
        host_restarts(lost[0])
        lost[0].start()
        wait_for("it says that it is lost", lambda: is_lost(lost[0]))
        status = lost[0].status()
        assert "this host has restarted" in status["lost"] and not status.get("cluster_lost")
        assert is_silent(lab, lost[0])
        wait_for("the leader hears of it", lambda: said_to_be_lost(survivor) == [lost[0].number])
        assert not survivor.status().get("cluster_lost")
        assert increment(lab, survivor, session, 4) == [b"4"]

        # Two of three: nobody can commit anything, and all say why.
        host_restarts(lost[1])
        lost[1].start()
        for node in cluster.nodes:
            wait_for("all say that the cluster is lost",
                     lambda node=node: "cannot go on by itself" in (node.status() or {}).get("cluster_lost", ""))
        assert is_silent(lab, lost[1])
        text = run("status", "--socket", survivor.socket).stdout
        assert "PROBLEM: LOST: of 3 nodes, 2 have lost" in text

        # It says what would be lost, asks, and changes nothing.
        assert "in use by another process" in run("recover", "--config", survivor.file, code=1).stderr
        survivor.stop()
        doubtful = json.loads(run("recover", "--json", "--config", lost[0].file).stdout)
        assert "restarted since" in doubtful["doubts"][0], "what a lost one has left can be looked at as well"
        plan = run("recover", "--config", survivor.file).stdout
        assert "LOSES every acknowledged write" in plan and "Nothing was written" in plan
        run("recover", "--config", survivor.file, "--out", file, "--accept-data-loss", answer="yes\n", code=1)
        assert not file.exists()
        run("recover", "--config", survivor.file, "--out", file, "--accept-data-loss", answer=f"{SETTINGS.cluster_id}\n")

        # Two begin anew; the third, as it was before, is heard by neither.
        assert "stop it first" in run("restore", "--config", lost[1].file, "--from", file, code=1).stderr
        for node in lost:
            node.stop()
        assert "is not empty" in run("restore", "--config", survivor.file, "--from", file, code=1).stderr
        for node in lost:
            move_away(node)
        restore_and_start(cluster, file, lost)
        survivor.start()  # of the cluster before, with its log
        wait_for("two of three are a cluster", lambda: all((node.status() or {}).get("ready") for node in lost))
        assert {node.status()["role"] for node in lost} == {"leader", "follower"}
        wait_for("it is not believed", lambda: all(dropped_for_their_tag(node) > 0 for node in cluster.nodes))
        assert not survivor.status().get("ready") and int(survivor.status()["cluster_epoch"]) == 0
        survivor.kill_at_once()
        move_away(survivor)
        restore_and_start(cluster, file, [survivor])
        leader = cluster.wait_ready()
        assert {int(node.status()["cluster_epoch"]) for node in cluster.nodes} == {1}
        assert increment(lab, leader, session, 4) == [b"4"], "sessions are in it: not a second time"
        assert increment(lab, leader, session, 5) == [b"5"]

        # Back to a backup, after the kernel has acknowledged what came later: its maps mean nothing to the new logs.
        backup = data.path / "backup"
        run("backup", "--socket", leader.socket, "--out", backup)
        assert increment(lab, leader, session, 6) == [b"6"]
        for node in cluster.nodes:
            node.kill_at_once()
        assert all(node.pins.exists() for node in cluster.nodes)
        for node in cluster.nodes:
            move_away(node)
        restore_and_start(cluster, backup, cluster.nodes)
        leader = cluster.wait_ready()
        assert {int(node.status()["cluster_epoch"]) for node in cluster.nodes} == {2}
        assert increment(lab, leader, session, 5) == [b"5"], "which the backup holds"
        assert increment(lab, leader, session, 6) == [b"6"], "which it does not"


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_lost_node_comes_back_by_one_command_as_another_member(again):
    """In the same folder and at the same address; `again`: and is lost once more, and comes back once more."""
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SETTINGS) as cluster):
        leader = cluster.wait_ready()
        session, seq = write_three(lab, leader), 3
        victim = next(node for node in cluster.nodes if node is not leader)
        was = victim.number
        assert "has not said" in leader.change_members("rejoin", was, 9), "it is well"
        for new in (7, 8) if again else (7,):
            host_restarts(victim)
            victim.start()
            wait_for("the leader hears that it is lost", lambda was=was: was in said_to_be_lost(leader))
            seq += 1
            assert increment(lab, leader, session, seq) == [str(seq).encode()]
            for _ in range(2):  # asked again there is nothing left to do
                leader = rejoin(cluster, was, new)
            roles = {int(member["id"]): member["role"] for member in leader.status()["members"] if member["role"] != "left"}
            assert roles[new] == "voter" and was not in roles and len(roles) == 3
            wait_for("it is that member", lambda new=new: int((victim.status() or {"node": 0})["node"]) == new)
            wait_for("it is ready", lambda: victim.status().get("ready"))
            assert (victim.data_dir / f"lost-as-{was}" / "segments").is_dir(), "what was there is kept"
            seq += 1
            assert increment(lab, victim, session, seq) == [str(seq).encode()]
            was = new

        # It is a member like any other: with one of the other two dead, nothing is acknowledged without it.
        other = next(node for node in cluster.nodes if node not in (leader, victim))
        other.kill_at_once()
        seq += 1
        assert increment(lab, leader, session, seq) == [str(seq).encode()]
        victim.kill_at_once()
        victim.start()
        wait_for("and stays that one", lambda: int((victim.status() or {"node": 0})["node"]) == was)
        wait_for("it is ready", lambda: victim.status().get("ready"))
        seq += 1
        assert increment(lab, leader, session, seq) == [str(seq).encode()]


def test_a_node_whose_kernel_maps_are_gone_stays_lost_however_often_it_is_started():
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "memory") as data,
          hedgerow_cluster(lab, data.path, SETTINGS) as cluster):
        leader = cluster.wait_ready()
        session = write_three(lab, leader)
        victim = next(node for node in cluster.nodes if node is not leader)
        victim.kill_at_once()
        shutil.rmtree(victim.pins)
        for _ in range(2):  # what the first start leaves behind must not look like what was lost
            victim.start()
            wait_for("it says that it is lost", lambda: is_lost(victim))
            victim.host.stop(victim.process)
        assert increment(lab, leader, session, 4) == [b"4"]
        victim.stop()


@pytest.mark.parametrize(("mode", "killed"), [("memory", False), ("disk", False), ("memory", True)])
def test_who_starts_with_an_emptied_folder_is_told_and_takes_part_in_nothing(mode, killed):
    """By the others, or, if it was killed, by what the kernel holds for it."""
    settings = NodeSettings(durability=mode, election=PATIENT)
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, mode) as data,
          hedgerow_cluster(lab, data.path, settings) as cluster):
        leader = cluster.wait_ready()
        session = write_three(lab, leader)
        victim = next(node for node in cluster.nodes if node is not leader)
        if killed:
            victim.kill_at_once()
        else:
            victim.stop()
        kept = victim.data_dir.with_name(f"{victim.data_dir.name}.kept")
        victim.data_dir.rename(kept)
        for _ in range(2):  # the second time it knows by itself
            victim.start()
            wait_for("it says that it is lost", lambda: is_lost(victim))
            why = victim.status()["lost"]
            assert ("is not the one that it goes with" if killed else "has recorded another") in why, why
            assert "put it back" in why and "rejoin" in why, why
            assert is_silent(lab, victim)
            wait_for("the leader hears of it", lambda: victim.number in said_to_be_lost(leader))
            victim.host.stop(victim.process)  # what the kernel holds goes with the folder of before
        assert increment(lab, leader, session, 4) == [b"4"], "two of three go on"
        shutil.rmtree(victim.data_dir)
        kept.rename(victim.data_dir)
        victim.start()
        wait_for("with its own log it is a member", lambda: (victim.status() or {}).get("ready"))
        assert increment(lab, victim, session, 5) == [b"5"]


@pytest.mark.parametrize("found_by", ["the host", "the others"])
def test_an_older_copy_of_a_folder_is_found_out_and_comes_back_as_another_member(found_by):
    settings = NodeSettings(durability="disk", election=PATIENT)
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data,
          hedgerow_cluster(lab, data.path, settings) as cluster):
        leader = cluster.wait_ready()
        session = write_three(lab, leader)
        victim = next(node for node in cluster.nodes if node is not leader)
        copy = victim.data_dir.with_name(f"{victim.data_dir.name}.copy")
        victim.host.stop(victim.process)
        shutil.copytree(victim.data_dir, copy)
        victim.start()
        wait_for("it is ready", lambda: (victim.status() or {}).get("ready"))
        assert increment(lab, leader, session, 4) == [b"4"]
        victim.host.stop(victim.process)
        shutil.rmtree(victim.data_dir)
        copy.rename(victim.data_dir)
        if found_by == "the others":
            for remembered in victim.socket.parent.glob("started-*"):
                remembered.unlink()
        victim.start()
        wait_for("it says that it is lost", lambda: is_lost(victim))
        why = victim.status()["lost"]
        assert ("this host remembers a later start" if found_by == "the host" else "or a later state of it") in why, why
        assert is_silent(lab, victim)
        wait_for("the leader hears of it", lambda: victim.number in said_to_be_lost(leader))
        assert increment(lab, leader, session, 5) == [b"5"], "two of three go on"
        rejoin(cluster, victim.number, 7)
        wait_for("it is that member", lambda: int((victim.status() or {"node": 0})["node"]) == 7)
        wait_for("it is ready", lambda: victim.status().get("ready"))
        assert increment(lab, victim, session, 6) == [b"6"]


def test_a_backup_taken_under_load_is_another_cluster():
    with Lab(TAG, replicas=1) as lab, DataDirs(TAG, "disk") as data:
        settings = NodeSettings(durability="disk", election=PATIENT)
        file, torn = data.path / "backup", data.path / "torn"
        with hedgerow_cluster(lab, data.path, settings) as cluster:
            leader = cluster.wait_ready()
            session = write_three(lab, leader)
            load = lab.client.popen([str(binary("hr-kv-load")), f"--server={leader.endpoint}", "--clients=8", "--keys=50",
                                     "--value_bytes=900", "--warm_up=100ms", "--measured=3s", "--rate=1000"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(0.5)
                said = json.loads(run("backup", "--json", "--socket", leader.socket, "--out", file).stdout)
                assert int(said["index"]) > 3 and int(said["begins_epoch"]) == 1 and said["doubt"] == ""
                assert int(said["size_bytes"]) == file.stat().st_size
                assert "is there already" in run("backup", "--socket", leader.socket, "--out", file, code=1).stderr
                # As on NFS, CIFS or FUSE.
                without_flags = ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e", "inject=renameat2:error=EINVAL"]
                elsewhere = data.path / "elsewhere"
                subprocess.run([*without_flags, binary("hedgerow-node"), "backup", "--socket", leader.socket, "--out", elsewhere], check=True, timeout=60)
                assert elsewhere.stat().st_size > 0 and not elsewhere.with_name("elsewhere.partial").exists()
            finally:
                lab.client.stop(load)
            assert increment(lab, leader, session, 4) == [b"4"], "after the backup"
        torn.write_bytes(file.read_bytes()[:-1])
        move_away(leader)
        other = NodeSettings(durability="disk", election=PATIENT, cluster_id=78, cluster_key="00" * 15 + "01")
        with contextlib.ExitStack() as stack:
            cluster = hedgerow_cluster(lab, data.path, other)
            node = cluster.nodes[0]
            node.write_config()
            assert "is damaged" in run("restore", "--config", node.file, "--from", torn, code=1).stderr
            assert not node.data_dir.exists(), "it is read as a whole before anything is made"
            run("restore", "--config", node.file, "--from", file)
            stack.enter_context(cluster)
            assert cluster.wait_ready() is node
            assert node.status()["cluster_id"] == "78"
            assert increment(lab, node, session, 3) == [b"3"], "not a second time"
            assert increment(lab, node, session, 4) == [b"4"], "which came after the backup"


def through(lab: Lab, session: tuple[int, int], seq: int) -> list[bytes] | None:
    """An increment, through the proxy; nothing: it was not answered, or refused."""
    copy = hkv.encode_request(hkv.WRITE, 1_000_000, session[0], seq, seq, operations=[hkv.incr_operation(b"n")], token=session[1])
    with lab.client.socket() as sock:
        sock.settimeout(2.0)
        sock.sendto(copy, (VIP_KV[0], SERVE_PORT))
        try:
            answer = hkv.parse_answer(sock.recv(2048))
        except (TimeoutError, ConnectionRefusedError):
            return None
    return answer.values if answer.status == hkv.OK else None


def reload(proxy: Product, service: dict, epoch: int) -> None:
    """The service with this epoch is in force from now on."""
    proxy.write(proxy.config(services=[{**service, "cluster": {**service["cluster"], "epoch": epoch}}]))
    said = json.loads(proxy.admin("reload", "--json").stdout)
    assert said["applied"], said


def test_a_proxy_follows_the_cluster_that_began_anew_once_it_is_told_the_epoch():
    """And until then believes nobody of it: whoever leads the cluster of before would be believed again."""
    settings = NodeSettings(durability="disk", election=PATIENT)
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(TAG, replicas=3))
        data = stack.enter_context(DataDirs(TAG, "disk"))
        settings = dataclasses.replace(settings, proxies=((PROXY_NAME, lab.client.ipv4),))
        cluster = stack.enter_context(hedgerow_cluster(lab, data.path, settings))
        leader = cluster.wait_ready()
        proxy = Product(lab, instance=TAG)
        service = kv_service(lab, cluster, deadline="3s")
        stack.callback(proxy.sweep)
        proxy.up(services=[service])

        def said() -> dict:
            return next(each for each in proxy.ask("leader", "show")["leaders"] if each["service"] == "kv")

        def follows(epoch: int) -> bool:
            by = cluster.leader()
            now = said()
            return (by is not None and now["source"] == "announced" and now["leader"] == by.host.name
                    and int(now["cluster_epoch"]) == epoch)

        def refused() -> int:
            return int(proxy.status()["reasons"].get("announce_epoch", 0))

        wait_for("the proxy follows the leader", lambda: follows(0))
        session = write_three(lab, leader)
        assert through(lab, session, 4) == [b"4"]
        assert refused() == 0

        backup = data.path / "backup"
        run("backup", "--socket", leader.socket, "--out", backup)
        assert through(lab, session, 5) == [b"5"], "which the backup does not hold"
        for node in cluster.nodes:
            node.stop()
            move_away(node)
        restore_and_start(cluster, backup, cluster.nodes)
        leader = cluster.wait_ready()
        wait_for("its announcements are refused", lambda: refused() > 3)
        assert int(said()["cluster_epoch"]) == 0, "nothing of another epoch is believed"

        reload(proxy, service, epoch=1)
        wait_for("the proxy follows the new one", lambda: follows(1))
        assert through(lab, session, 4) == [b"4"], "sessions are in the backup: not a second time"
        assert through(lab, session, 5) == [b"5"]
        other = next(node for node in cluster.nodes if node is not leader)
        assert leader.transfer(other.number)
        wait_for("and whoever leads it next", lambda: follows(1))
        assert through(lab, session, 6) == [b"6"]

        # Back to the epoch of before: the new cluster is the stranger.
        so_far = refused()
        reload(proxy, service, epoch=0)
        wait_for("it is not believed any more", lambda: refused() > so_far + 3)
        assert said()["source"] == "configured" or int(said()["cluster_epoch"]) == 0
        reload(proxy, service, epoch=1)
        wait_for("the proxy follows it again", lambda: follows(1))
        assert through(lab, session, 7) == [b"7"]
        proxy.finish()


def restart_with(node: HedgerowNode, folder: Path | None) -> None:
    """In order, with the program in `folder`; None: this tree's."""
    node.host.stop(node.process)
    ours = str(binary("hedgerow-node"))
    theirs = str(Path(ours if folder is None else folder / "hedgerow-node").resolve())
    command = type(node).command
    node.command = lambda: [theirs if word == ours else word for word in command(node)]
    node.start()
    wait_for(f"{theirs} runs", lambda: theirs in {os.path.realpath(f"/proc/{pid}/exe") for pid in node.host.pids()})


class Load(threading.Thread):
    """Counts a key up, one write after the other and at whichever node answers, until it is told to stop."""

    def __init__(self, lab: Lab, nodes: list[HedgerowNode], session: tuple[int, int]):
        super().__init__(daemon=True)
        self.lab, self.nodes, self.session = lab, nodes, session
        self.done, self.wrong, self.stop = 0, [], threading.Event()

    def run(self) -> None:
        asked = itertools.cycle(self.nodes)
        while not self.stop.is_set():
            seq = self.done + 1
            copy = hkv.encode_request(hkv.WRITE, 5_000_000, self.session[0], seq, seq, operations=[hkv.incr_operation(b"load")],
                                      token=self.session[1])
            node = next(asked)
            with self.lab.client.socket() as sock, contextlib.suppress(TimeoutError, ConnectionRefusedError):
                sock.settimeout(1.0)
                sock.sendto(copy, (node.host.ipv4, node.port))
                answer = hkv.parse_answer(sock.recv(2048))
                if answer.status != hkv.OK:
                    continue
                self.done = seq
                if answer.values != [str(seq).encode()]:
                    self.wrong.append((seq, answer.values))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.join()


def open_session(lab: Lab, leader: HedgerowNode) -> tuple[int, int]:
    with hkv.Client(leader.host.ipv4, leader.port, 5.0, lab.client.socket()) as client:
        client.open()
        return client.session, client.token


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_nodes_of_the_version_before_and_of_this_one_are_one_cluster(mode):
    """One after the other to this version, and back again, under load, with every write there and none twice. The version before is the one
    that tests/upgrade_from names (docs/cluster.md, Versions)."""
    previous = os.environ.get("HEDGEROW_PREVIOUS")
    if not previous:
        pytest.skip("HEDGEROW_PREVIOUS names no folder with the hedgerow-node of the version before")
    settings = NodeSettings(durability=mode, election=PATIENT)
    with (Lab(TAG, replicas=3) as lab, DataDirs(TAG, mode) as data,
          hedgerow_cluster(lab, data.path, settings) as cluster):
        for node in cluster.nodes:
            restart_with(node, Path(previous))
        leader = cluster.wait_ready()
        session, seq = write_three(lab, leader), 3
        with Load(lab, cluster.nodes, open_session(lab, leader)) as load:
            for folder in (None, Path(previous)):
                for node in cluster.nodes:
                    before = load.done
                    restart_with(node, folder)
                    leader = cluster.wait_ready()
                    for asked in cluster.nodes:  # whoever leads, of whichever version
                        seq += 1
                        assert increment(lab, asked, session, seq) == [str(seq).encode()]
                        assert increment(lab, leader, session, seq) == [str(seq).encode()], "not a second time"
                    wait_for("the load goes on", lambda before=before: load.done > before)
        assert load.wrong == [], "each once"


def test_a_backup_of_a_node_that_is_cut_off_is_written_and_is_no_success():
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data, hedgerow_cluster(
            lab, data.path, NodeSettings(durability="disk")) as cluster:
        leader = cluster.wait_ready()
        write_three(lab, leader)
        for node in cluster.nodes:
            if node is not leader:
                node.kill_at_once()
        wait_for("it knows that it leads nobody", lambda: not leader.status()["ready"])
        file = data.path / "backup"
        assert "WARNING: this node is not ready" in run("backup", "--socket", leader.socket, "--out", file, code=1).stderr
        assert file.exists(), "it may be all that is left"
        said = json.loads(run("backup", "--json", "--socket", leader.socket, "--out", data.path / "second", code=1).stdout)
        assert "this node is not ready" in said["doubt"], "a script learns why as well"
