# SPDX-License-Identifier: Apache-2.0
"""Keys are changed without a stop: the cluster key and the announce key of three nodes, and with it the proxy's key, are changed 20 times
under 2,000 requests/s. A change adds the new key on every node (and at the proxy), lets every node seal with it, and removes the former one,
by the commands that an operator has. There must be no error, no election, and no announcement that the proxy does not believe.

`--plant cut-off` skips a step on purpose: the leader seals with a key that no other member has, and drops theirs, by `--force`. The run then
succeeds if its checks find that.
"""

import argparse
import json
import secrets
import time

from bench import experiment
from bench.outcome import Check, at_least, at_most
from chaos.load_process import sending
from chaos.no_false_elections import Seen, elections, look
from chaos.systems import PROXY_NAME, Running, Settings, running
from deploy.lab import Lab
from deploy.lab.data_dirs import MODES
from deploy.lab.servers.hedgerow_node import HedgerowNode

NAME = "chaos-rotate-keys"
TAG = "chaosrotk"
WANTED_CHANGES = 20
RATE = 2_000  # two sockets with a request each millisecond
CUT_OFF = "cut-off"
_ELECTION_CAP = "4s"
_WARM_UP_S = 1.0
_CHANGE_S = 30.0  # what one takes at most, for the length of the load
_SEEN_WITHIN_S = 5.0  # an election that a node without the others' key begins
# What an announcement that is not believed is counted as.
_UNBELIEVED = ("announce_tag", "announce_term", "announce_stale")


class Rotation:
    """The keys of one cluster and its proxy. Every step is waited for."""

    def __init__(self, up: Running):
        self.up = up
        self.nodes: list[HedgerowNode] = up.cluster.nodes
        self.next_key = self.nodes[0].folder / "next.key"

    def change(self) -> dict:
        began = time.monotonic()
        self._draw()
        self._on_all("add", "cluster", "--from", str(self.next_key))
        self._on_all("switch", "cluster")
        self._on_all("remove", "cluster")
        # The proxy has the new key before a node announces with it, and the former one until none does.
        self._draw()
        self._on_all("add", "announce", "--from", str(self.next_key))
        self._tell_proxy()
        self._on_all("switch", "announce")
        self._on_all("remove", "announce")
        self._tell_proxy()
        return {"took_s": round(time.monotonic() - began, 3), "keys": self.nodes[0].keys()["members"][0]["keys"]}

    def cut_off(self) -> dict:
        """The leader alone gets a key, and drops the one that the others have."""
        began = time.monotonic()
        leader = self.up.cluster.wait_ready()
        self._draw()
        leader.change_keys("add", "cluster", "--from", str(self.next_key))
        leader.change_keys("switch", "cluster", "--force")
        leader.change_keys("remove", "cluster", "--force")
        time.sleep(_SEEN_WITHIN_S)
        return {"took_s": round(time.monotonic() - began, 3), "keys": leader.keys()["members"][0]["keys"]}

    def _draw(self) -> None:
        self.next_key.touch(mode=0o600)
        self.next_key.write_text(secrets.token_hex(16) + "\n", encoding="ascii")

    def _on_all(self, *words: str) -> None:
        for node in self.nodes:
            node.change_keys(*words)

    def _tell_proxy(self) -> None:
        self.nodes[0].write_proxy_key(PROXY_NAME)
        self.up.proxy.reload()


def unbelieved(status: dict) -> int:
    counted = [status["services"][0].get("reasons", {}), status.get("reasons", {})]
    return sum(int(reasons.get(name, 0)) for reasons in counted for name in _UNBELIEVED)


def row_of(mode: str, report: dict, first: Seen, last: Seen, changes: list[dict], proxy: tuple[dict, dict]) -> dict:
    """`proxy` is its status before and after."""
    before, after = proxy
    return {"mode": mode, "changes": len(changes), "sent": report["sent"], "errors": report["sent"] - report["ok"],
            "elections": elections(first, last), "resigns": last.resigned - first.resigned,
            "unbelieved": unbelieved(after) - unbelieved(before),
            "different_keys": len({json.dumps(change["keys"], sort_keys=True) for change in changes}),
            "change_s": max(change["took_s"] for change in changes)}


def must_show(rows: list[dict]) -> list[Check]:
    checks = []
    for row in rows:
        mode = row["mode"]
        checks += [at_least(f"{mode}: changes of all keys", row["changes"], WANTED_CHANGES, needs_full=True),
                   at_least(f"{mode}: of them, that left other keys", row["different_keys"], row["changes"]),
                   at_least(f"{mode}: requests", row["sent"], 1),
                   at_most(f"{mode}: errors", row["errors"], 0),
                   at_most(f"{mode}: elections", row["elections"], 0, finds=[CUT_OFF]),
                   at_most(f"{mode}: leaders that resigned", row["resigns"], 0),
                   at_most(f"{mode}: announcements that were not believed", row["unbelieved"], 0)]
    return checks


def one_mode(lab: Lab, settings: Settings, arguments: argparse.Namespace) -> dict:
    with running("hedgerow", lab, settings) as up:
        folder = lab.client.scratch("load")
        report_file = folder / "report.json"
        argv = [*up.load, f"--seconds={10 + arguments.changes * _CHANGE_S:g}", f"--history={folder / 'history.csv'}",
                f"--report={report_file}"]
        rotation, changes = Rotation(up), []
        with sending(lab, argv, folder / "load.log") as load:
            time.sleep(_WARM_UP_S)
            first, before = Seen.of(look(up.cluster)), up.proxy.status()
            for number in range(1, arguments.changes + 1):
                changes.append(rotation.cut_off() if arguments.plant == CUT_OFF else rotation.change())
                print(f"  {number}/{arguments.changes} {changes[-1]['took_s']:.2f} s", flush=True)
                if load.poll() is not None:
                    raise RuntimeError(f"the load ended with {load.returncode} during change {number}")
            last, after = Seen.of(look(up.cluster)), up.proxy.status()
        report = json.loads(report_file.read_text(encoding="ascii"))
        return {"row": row_of(settings.mode, report, first, last, changes, (before, after)), "rate": RATE, "each": changes, "report": report,
                "status": [node.status() for node in up.cluster.nodes], "proxy": after, "config": up.config}


def measure(running_: experiment.Running, arguments: argparse.Namespace) -> None:
    election = (arguments.election_floor, _ELECTION_CAP) if arguments.election_floor else None
    with Lab(arguments.lab, replicas=3) as lab:
        for turn in running_.turns(mode=arguments.mode):
            turn.done(one_mode(lab, Settings(turn["mode"], key_files=True, election=election), arguments))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ["mode"], must_show, experiment.own_rows,
    {"mode": "mode", "changes": "changes", "sent": "requests", "errors": "errors", "elections": "elections", "resigns": "resigns",
     "unbelieved": "not believed", "change_s": "longest change s"}, plants={CUT_OFF: 1}, tag=TAG,
    measure=measure, rounds=1, options=(
        experiment.number("--changes", WANTED_CHANGES, 1, 100, help=f"of all keys; {WANTED_CHANGES} are wanted"),
        experiment.some("--mode", MODES, ["memory"]),
        ("--election-floor", {"metavar": "TIME", "help": "for a busy machine, which lets a leader stand still for longer than the nodes' own "
                              "floor: no leader is taken for dead before"})))
