# SPDX-License-Identifier: Apache-2.0
"""A node of our own store: `hedgerow-node` with a configuration made for it, asked by its own status command."""

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from deploy.lab import node_pins
from deploy.lab.host import CommandFailed, Host
from deploy.lab.own_clock import OwnClock
from deploy.lab.programs import binary
from deploy.lab.servers.store_node import NodeState, StoreNode
from deploy.lab.unit_priority import command_prefix

SERVE_PORT, PEER_PORT, ANNOUNCE_PORT = 4801, 4802, 4803
MEMCACHED_PORT = 11211
NO_OFFLOADS = tuple((name, "off") for name in ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog"))


@dataclasses.dataclass(frozen=True)
class NodeSettings:
    """What all nodes of a cluster have in common. The keys are for a lab that lives for minutes."""

    durability: str = "memory"
    cluster_id: int = 77
    cluster_key: str = "6865646765726f772d6c61622d6e6f64"
    announce_key: str = "6865646765726f772d6c61622d707879"
    proxies: tuple[tuple[str, str], ...] = ()  # name, address without port
    election: tuple[str, str] | None = None  # floor, cap; None: the node's own defaults
    offloads: tuple[tuple[str, str], ...] = ()  # such as ("append", "off"); what is not named is as the node ships
    spin: str | None = None
    waiting_max: int | None = None  # requests that may wait for an outcome
    refused: tuple[str, ...] = ()  # BPF programs that the kernel refuses to load, by the kernel's names of them
    snapshots: tuple[tuple[str, int | str], ...] = ()  # such as ("every_entries", 1000), ("rate", "1MiB")
    memcached: tuple[tuple[str, object], ...] | None = None  # keys of that block but `listen`; None: no such front end
    trusted: tuple[str, ...] = ()  # networks: answers of any length to what comes from there
    ballast_bytes: int = 0  # resident memory of the first node beyond what it needs: it dies as slowly as a large process
    own_clock: bool = False  # each node has a wall clock of its own, which can jump
    key_files: bool = False  # the keys stand in files, where they can be changed while the node runs
    named_client: tuple[str, str] | None = None  # name and key of the one client that is served, which must prove itself

    @property
    def uses_native_xdp(self) -> bool:
        return dict(self.offloads).get("xdp") == "native"


def config(number: int, address: str, members: Sequence[str], **keys) -> dict:
    """Of the node at that address; `members` are addresses by their ids from 1. `keys`: those of its cluster and of its files."""
    return {"node": number, "serve": f"{address}:{SERVE_PORT}", "metrics_listen": "",
            "members": [{"id": each, "peer": f"{member}:{PEER_PORT}", "serve": f"{member}:{SERVE_PORT}"}
                        for each, member in enumerate(members, start=1)], **keys}


class HedgerowNode(StoreNode):
    name = "hedgerow-node"

    def __init__(self, host: Host, number: int, members: Sequence[Host], data_dir: Path,
                 settings: NodeSettings = NodeSettings(), join: bool = False):
        """`join`: the cluster is there already, and this node waits until it is added."""
        super().__init__(host, SERVE_PORT, number, data_dir)
        self.socket = self.folder / "admin.sock"
        self.file = self.folder / "node.yaml"
        self.config = self._config(members, settings) | ({"join": "on"} if join else {})
        if settings.key_files:
            self._move_keys_to_files()
        if settings.named_client:
            name, key = settings.named_client
            self.config |= {"anonymous": "off",
                            "named_clients": [{"name": name, "key_file": self._key_file(name, key), "read": [""], "write": [""]}]}
        self.ballast_bytes = settings.ballast_bytes if number == 1 else 0
        self.refused = settings.refused
        self.clock = OwnClock(self.folder / "clock") if settings.own_clock else None

    def _config(self, members: Sequence[Host], settings: NodeSettings) -> dict:
        made = config(self.number, self.host.ipv4, [member.ipv4 for member in members], cluster_id=settings.cluster_id,
                      cluster_key=settings.cluster_key, durability=settings.durability, data_dir=str(self.data_dir), admin_socket=str(self.socket))
        if settings.proxies:
            made["announce_key"] = settings.announce_key
            made["proxies"] = [{"name": name, "address": f"{address}:{ANNOUNCE_PORT}"}
                               for name, address in settings.proxies]
        if settings.election:
            made["election"] = dict(zip(("floor", "cap"), settings.election, strict=True))
        if settings.offloads:
            made["offloads"] = dict(settings.offloads)
        if settings.spin:
            made["spin"] = settings.spin
        if settings.waiting_max:
            made["waiting_max"] = settings.waiting_max
        if settings.snapshots:
            made["snapshots"] = dict(settings.snapshots)
        if settings.trusted:
            made["sources"] = {"trusted": list(settings.trusted)}
        if settings.memcached is not None:
            made["memcached"] = {"listen": f"{self.host.ipv4}:{MEMCACHED_PORT}", **dict(settings.memcached)}
        return made

    def _move_keys_to_files(self) -> None:
        for name in ("cluster_key", "announce_key"):
            if (key := self.config.pop(name, None)) is None:
                continue
            self.config[f"{name}_file"] = self._key_file(name, key)

    def _key_file(self, name: str, key: str) -> str:
        file = self.folder / f"{name}.key"
        file.touch(mode=0o600)
        file.write_text(f"{key}\n", encoding="ascii")
        return str(file)

    def write_config(self) -> None:
        self.file.touch(mode=0o600)  # it holds keys, and the node refuses a file that others may read
        self.file.write_text(yaml.safe_dump(self.config, sort_keys=False), encoding="ascii")

    def command(self) -> list[str]:
        self.write_config()
        return [*command_prefix(), *self._preloaded(), str(binary("hedgerow-node")), "run", "--config", str(self.file)]

    def _preloaded(self) -> list[str]:
        """Under the same pid: `env` becomes the node."""
        libraries, variables = [], []
        if self.ballast_bytes:
            libraries.append(str(binary("hr-ballast.so")))
            variables.append(f"HEDGEROW_LAB_BALLAST_BYTES={self.ballast_bytes}")
        if self.refused:
            libraries.append(str(binary("hr-refuse.so")))
            variables.append(f"HEDGEROW_LAB_REFUSED_PROGRAMS={','.join(self.refused)}")
        if self.clock is not None:
            libraries.append(str(binary("hr-clock.so")))
            variables.append(f"HEDGEROW_LAB_CLOCK={self.clock.file}")
        return ["env", f"LD_PRELOAD={':'.join(libraries)}", *variables] if libraries else []

    def resident_bytes(self) -> int:
        """Of the running process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    @property
    def pins(self) -> Path:
        """What the kernel holds for the node's next life; the log's place on the host names it."""
        return node_pins.of(self.data_dir, self.number)

    def stop(self) -> None:
        """For good: of a node that was killed nothing is left either."""
        super().stop()
        self.lose_memory()

    def lose_memory(self) -> None:
        node_pins.remove(self.data_dir)

    def proxy_key(self, proxy: str) -> str:
        self.write_config()
        done = subprocess.run([binary("hedgerow-node"), "proxy-key", "--config", self.file, proxy],
                              capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    def write_proxy_key(self, proxy: str) -> Path:
        """The proxy's key file, on this host: one key, or two while the announce key is changed."""
        file = self.folder / f"{proxy}.proxy.key"
        file.touch(mode=0o600)
        file.write_text(f"{self.proxy_key(proxy)}\n", encoding="ascii")
        return file

    def keys(self) -> dict:
        """Which keys the members have, by their ids."""
        return json.loads(self._keys("--json"))

    def change_keys(self, *words: str) -> None:
        """`hedgerow-node keys WORDS`, as an operator runs it."""
        self._keys(*words, "--config", str(self.file))

    def _keys(self, *words: str) -> str:
        done = subprocess.run([binary("hedgerow-node"), "keys", *words, "--socket", self.socket], capture_output=True, text=True,
                              check=False, timeout=15)
        if done.returncode != 0:
            raise CommandFailed(f"hedgerow-node keys {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def status(self) -> dict | None:
        """Of `hedgerow-node status --json`; the socket is a file, so it can be asked from anywhere."""
        try:
            done = subprocess.run([binary("hedgerow-node"), "status", "--json", "--socket", self.socket],
                                  capture_output=True, text=True, check=False, timeout=3)
        except subprocess.TimeoutExpired:
            return None
        return json.loads(done.stdout) if done.returncode == 0 else None

    def offloads(self) -> list[dict]:
        """What the node says of its kernel's part: `name`, `on`, `detail`; nothing while it does not answer."""
        return (self.status() or {}).get("offloads", [])

    def transfer(self, number: int) -> bool:
        """Hands leadership, which this node has, to that one; False: it could not."""
        done = subprocess.run([binary("hedgerow-node"), "transfer", "--socket", self.socket, "--to", str(number)],
                              capture_output=True, text=True, check=False, timeout=15)
        return done.returncode == 0

    def snapshot(self) -> bool:
        """Takes one now, and waits for it."""
        done = subprocess.run([binary("hedgerow-node"), "snapshot", "--socket", self.socket], capture_output=True, text=True,
                              check=False, timeout=660)
        return done.returncode == 0

    def change_members(self, *words: str | int) -> str:
        """`hedgerow-node members WORDS`, waited for: what it said of an error, or nothing."""
        done = subprocess.run([binary("hedgerow-node"), "members", *map(str, words), "--socket", self.socket],
                              capture_output=True, text=True, check=False, timeout=40)
        return "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"

    def state(self) -> NodeState | None:
        """None as well while it starts: it has no log yet."""
        status = self.status() if self.running else None
        if status is None or status["role"] == "starting":
            return None
        return NodeState(leads=status["role"] == "leader", ready=bool(status["ready"]), leader=int(status["leader"]),
                         term=int(status["term"]))
