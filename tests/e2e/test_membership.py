# SPDX-License-Identifier: Apache-2.0
"""The cluster's members change under load, with the kernel's help and without: no write is lost or done twice, none fails, and
nothing is sent any more to whoever has left."""

import os
import threading
import time
from collections.abc import Iterable

import pytest

from bench import membership
from cluster.client import hkv
from deploy.lab import Lab
from deploy.lab.cluster import Cluster, hedgerow_cluster, joining_nodes
from deploy.lab.data_dirs import DataDirs
from deploy.lab.members import Delivered, Operator
from deploy.lab.servers.hedgerow_node import NO_OFFLOADS, PEER_PORT, HedgerowNode, NodeSettings
from deploy.lab.servers.store_node import NodeState
from tests import needs
from test_recovery import wait_for

TAG = f"memb{os.getpid()}"
MODES = pytest.mark.parametrize(("durability", "offloads"), [
    pytest.param("memory", (), id="memory"), pytest.param("disk", (), id="disk", marks=pytest.mark.long),
    pytest.param("memory", NO_OFFLOADS, id="off", marks=pytest.mark.long)])


class Writer:
    """Increments one number, one write after the other, at the node that answered last and then at the others; each until it is
    answered, for at most 5 s."""

    def __init__(self, lab: Lab, nodes: list):
        self._sockets = []
        for node in nodes:
            sock = lab.client.socket()
            sock.connect((node.host.ipv4, node.port))
            sock.settimeout(0.05)
            self._sockets.append(sock)
        self.done, self.slowest_s, self.error = 0, 0.0, ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._stop.set()
        self._thread.join()
        for sock in self._sockets:
            sock.close()

    def more(self, count: int = 50, within_s: float = 20.0) -> None:
        """Waits for so many more."""
        wanted, deadline = self.done + count, time.monotonic() + within_s
        while self.done < wanted and not self.error:
            assert time.monotonic() < deadline, f"{wanted - self.done} of {count} writes are missing"
            time.sleep(0.01)
        assert not self.error, self.error

    def _run(self) -> None:
        answer = self._ask(hkv.OPEN, 0, 4711)
        session, token, seq = (answer.session, answer.token, 0) if answer else (0, 0, 0)
        while session and not self._stop.is_set():
            seq += 1
            answer = self._ask(hkv.WRITE, session, seq, lowest_unanswered=seq, operations=[hkv.incr_operation(b"n")],
                               token=token)
            if answer is None:
                self.error = self.error or f"write {seq} was not answered"
            elif answer.values != [b"%d" % seq]:
                self.error = f"write {seq} gave {answer.values}"
            if self.error:
                return
            self.done = seq

    def _ask(self, kind: int, client_id: int, seq: int, **body) -> hkv.Answer | None:
        begun = time.monotonic()
        datagram = hkv.encode_request(kind, 2_000_000, client_id, seq, **body)
        while time.monotonic() < begun + 5.0:
            for sock in list(self._sockets):
                try:
                    sock.send(datagram)
                    answer = hkv.parse_answer(sock.recv(hkv.MAX_BYTES + 1))
                except OSError:
                    continue  # this node is down, or away
                if answer and (answer.client_id, answer.seq, answer.status) == (client_id, seq, hkv.OK):
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                    self._sockets.remove(sock)
                    self._sockets.insert(0, sock)
                    return answer
        return None


def four(lab: Lab, data: DataDirs, settings: NodeSettings) -> tuple[Cluster, HedgerowNode]:
    """Three of them are a cluster; the fourth waits to be added."""
    cluster = hedgerow_cluster(lab, data.path, settings, joining=1)
    (joins,) = joining_nodes(lab, data.path, settings, 1)
    cluster.nodes.append(joins)
    return cluster, joins


@needs.JUDGES
@pytest.mark.parametrize(("durability", "offloads"), [
    ("memory", "on"), *(pytest.param(*each, marks=pytest.mark.long) for each in (("disk", "off"), ("memory", "off"), ("disk", "on")))])
def test_members_come_and_go_under_load_and_no_client_notices(durability, offloads, monkeypatch):
    """A learner that catches up by a snapshot and is promoted, a voter that is removed, one that moves, and the leader removed;
    2,000 requests/s through the proxy meanwhile."""
    monkeypatch.setattr(membership, "_PAUSE_S", 0.3)  # between the steps, so that each can be seen in the plot
    with Lab(TAG, replicas=4) as lab, membership.cluster_of_three(lab, durability, offloads) as up:
        record = membership.run_once(lab, up, 2.0, seed=1, more=True)
    assert record["phases"]["changing"]["n"] > 5_000
    done = {name: record[name] for name in ("by_snapshot", "promoted", "removed", "moved", "leader_removed")}
    assert done == dict.fromkeys(done, 1)
    assert record["errors"] == 0, record["report"]
    assert record["phases"]["changing"]["lost"] == 0
    assert (record["acked_lost"], record["double_applied"], record["not_linearizable"]) == (0, 0, 0), record["verdict"]
    assert record["sent_before"] > 0, "what comes next would show nothing"
    assert record["to_removed"] == 0
    assert bool(record["offloads_on"]) == (offloads == "on")


@MODES
def test_one_that_was_removed_while_it_was_down_disturbs_nobody_and_is_told(durability, offloads):
    settings = NodeSettings(durability=durability, offloads=offloads)
    with Lab(TAG, replicas=4) as lab, DataDirs(TAG, durability) as data:
        cluster, joins = four(lab, data, settings)
        with cluster, Writer(lab, cluster.nodes) as writer:
            operator = Operator(cluster)
            leader = operator.leader()
            writer.more()
            operator.add(joins)
            operator.wait_until_caught_up(joins)
            leaves = cluster.nodes[leader.number % 3]
            leaves.kill_at_once()  # so that it hears nothing of it
            operator.change("replace", leaves.number, joins.number)
            writer.more()
            assert operator.role(joins) == "voter"
            leaves.start()
            term = _state_of(leaves).term
            with Delivered(lab, leaves.host) as delivered:
                wait_for("it is told", lambda: (leaves.status() or {}).get("role") == "removed")
                time.sleep(1.5)
                assert delivered.count() == 0, "nobody sends it anything else"
            status = leaves.status()
            assert any(said.startswith("REMOVED: ") for said in status["problems"]) and not status.get("ready")
            writer.more()
            assert _state_of(leaves).term == term, "nobody would vote for it, so it raises no term"
            assert _state_of(leaves).leader == 0
            assert _refused(node for node in cluster.nodes if node is not leaves) > 0, "it has asked"
        assert writer.slowest_s < 2.0


def _state_of(node: HedgerowNode) -> NodeState:
    """As soon as it answers."""
    deadline = time.monotonic() + 10.0
    while (state := node.state()) is None:
        assert node.running and time.monotonic() < deadline, node.log_tail()
        time.sleep(0.05)
    return state


def _refused(nodes: Iterable[HedgerowNode]) -> int:
    """Messages of those who are no members."""
    return sum(int((node.status() or {}).get("counters", {}).get("members_refused", 0)) for node in nodes)


def _is_whole(status: dict) -> bool:
    """No change is under way."""
    return "config_epoch" in status and not status.get("joint") and status["config_epoch"] == status["committed_epoch"]


@MODES
def test_a_leader_that_is_killed_in_the_midst_of_a_change_loses_nothing(durability, offloads):
    settings = NodeSettings(durability=durability, offloads=offloads)
    with Lab(TAG, replicas=4) as lab, DataDirs(TAG, durability) as data:
        cluster, joins = four(lab, data, settings)
        with cluster, Writer(lab, cluster.nodes) as writer:
            operator = Operator(cluster)
            operator.leader()
            writer.more()
            operator.add(joins)
            for words in (("promote", 4), ("remove", 4), ("add", 4, f"{joins.host.ipv4}:{PEER_PORT}"), ("promote", 4)):
                leader = operator.leader()
                asking = threading.Thread(target=leader.change_members, args=words)
                asking.start()
                time.sleep(0.02)
                leader.kill_at_once()
                asking.join()
                writer.more()
                leader.start()
                # Begun and ended, or never begun: either way it can be done now, or is.
                deadline = time.monotonic() + 20.0
                while not _is_whole(status := operator.leader().status() or {}):
                    assert time.monotonic() < deadline, f"a change is half done: {status}"
                    time.sleep(0.05)
            writer.more()


def test_a_file_that_somebody_has_edited_is_refused_and_says_what_to_do():
    settings = NodeSettings(durability="disk", offloads=NO_OFFLOADS)
    with Lab(TAG, replicas=3) as lab, DataDirs(TAG, "disk") as data:
        with hedgerow_cluster(lab, data.path, settings) as cluster:
            leader = cluster.wait_ready()
            edited = cluster.nodes[leader.number % 3]
            edited.host.stop(edited.process)
            members = edited.config["members"]
            edited.config["members"] = [member for member in members if member["id"] == edited.number]
            edited.start()
            assert edited.process.wait(20) != 0
            assert "put 1, 2, 3 back" in edited.log_tail()
            edited.config["members"] = members
            edited.start()
            cluster.wait_ready()
