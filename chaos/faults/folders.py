# SPDX-License-Identifier: Apache-2.0
"""Faults of what an operator does to a node's files while the node is down: an older copy of its folder is put back, its
configuration is edited.
"""

import re
import shutil
import time
from pathlib import Path

from chaos.faults.fault import Fault, World, number
from deploy.lab.cluster import READY_WITHIN_S
from deploy.lab.servers.store_node import StoreNode
from deploy.lab.waiting import until

_SAID_WITHIN_S = 20.0


class FolderRollback(Fault):
    """The node is restarted, goes on for `behind_s`, and is ended; then its folder is what it was before, as after a restore of a
    volume's snapshot. The node must find that out and take part in nothing, because it has forgotten what it promised. In the
    end it has its own folder again."""

    kind = "folder-rollback"
    keys = {"behind_s": number(0.5, 30)}
    targets = ("follower",)
    shows = "found_out"

    @staticmethod
    def _beside(node: StoreNode, what: str) -> Path:
        return node.data_dir.with_name(f"{node.data_dir.name}-{what}")

    def begin(self) -> None:
        for node in self.world.targets:
            _end(node)
            shutil.copytree(node.data_dir, self._beside(node, "older"))
            node.start()
        self.world.cluster.wait_ready()
        time.sleep(self.behind_s)
        for node in self.world.targets:
            _end(node)
            node.data_dir.rename(self._beside(node, "own"))
            self._beside(node, "older").rename(node.data_dir)
            node.start()

    def hold(self, seconds: float) -> None:
        begun_s = time.monotonic()
        for node in self.world.targets:
            until(lambda node=node: (node.status() or {}).get("role") == "lost", _SAID_WITHIN_S,
                  lambda node=node: f"node {node.number} does not find out")
            self.shown += 1
        time.sleep(max(0.0, seconds - (time.monotonic() - begun_s)))

    def end(self) -> None:
        for node in self.world.targets:
            own = self._beside(node, "own")
            if own.exists():
                _end(node)
                shutil.rmtree(node.data_dir)
                own.rename(node.data_dir)
            shutil.rmtree(self._beside(node, "older"), ignore_errors=True)
        super().end()


class OtherSettings(Fault):
    """The node comes back with another file: `durability` of the other mode, by which its acknowledgements would promise
    something else, and limits that would make it apply commands in another way. The others must refuse it by name; in the end
    it has its own file again."""

    kind = "other-settings"
    targets = ("follower",)
    shows = "refused"

    def __init__(self, world: World, **keys):
        super().__init__(world, **keys)
        self._own: dict[int, dict] = {}  # files by number of the node

    def begin(self) -> None:
        for node in self.world.targets:
            _end(node)
            self._own[node.number] = node.config
            other = "memory" if node.config["durability"] == "disk" else "disk"
            node.config = node.config | {"durability": other, "sessions": {"max": 1, "timeout": "10s"}}
            node.start()

    def hold(self, seconds: float) -> None:
        begun_s = time.monotonic()
        for node in self.world.targets:
            until(lambda node=node: _named(self.world.leader, node), _SAID_WITHIN_S, lambda node=node: f"the leader does not name node {node.number}")
            self.shown += 1
        time.sleep(max(0.0, seconds - (time.monotonic() - begun_s)))

    def end(self) -> None:
        for node in self.world.targets:
            if node.number in self._own:
                _end(node)
                node.config = self._own.pop(node.number)
        super().end()


def _end(node: StoreNode) -> None:
    """In order (SIGTERM)."""
    if node.running:
        node.host.stop(node.process, timeout=READY_WITHIN_S)


def _named(leader: StoreNode, node: StoreNode) -> bool:
    """A problem of the leader names the node and what differs."""
    return any(re.search(rf"\bnode {node.number}\b", said) and "`durability: " in said
               for said in (leader.status() or {}).get("problems", []))
