# SPDX-License-Identifier: Apache-2.0
"""Events of the cluster's DNS and of the proxy, each under load from a pod of each node and from the nodes themselves, and what they cost: first with
kube-proxy alone, then with the product's manifests, by the overlay of docs/kubernetes.md, and the ClusterIP in place.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deploy.kube import programs
from deploy.kube.cluster import DNS, PODS, Cluster, make_cgroup
from deploy.lab.waiting import until

TIMEOUT_S = 2.0
_RATE = 250  # of each client
_NAME = "kubernetes.default.svc.cluster.local"
_HEDGEROW = "app.kubernetes.io/name=hedgerow"
_CONFIG = f"""admin: {{socket: /run/hedgerow/admin.sock, monitor_socket: /run/hedgerow/monitor.sock, monitor_group: hedgerow-monitor}}
services:
  - name: dns
    vip: {DNS}
    in_place: true
    port: 53
    profile: dns
    delay: 10ms
    clients: [{PODS}]
    # Until the endpoints are known.
    backends: [{{name: a, address: 10.77.0.11, port: 53}}, {{name: b, address: 10.77.0.12, port: 53}}]
"""


class Load:
    """Of each node: a pod with a fresh port per query, a pod with 16 sockets, and the node itself."""

    def __init__(self, cluster: Cluster, seconds: float):
        self._clients: dict[str, tuple[subprocess.Popen, tempfile.TemporaryFile]] = {}
        for node in cluster.lab.replicas:
            (pod,) = cluster.pods("app=client", node=node.name)
            (pid,) = cluster.pids(pod, "pause")[:1]
            for kind, sockets, space in (("pod", 0, f"/proc/{pid}/ns/net"), ("pod, 16 sockets", 16, f"/proc/{pid}/ns/net"),
                                         ("node", 0, f"/run/netns/{node.netns}")):
                out = tempfile.TemporaryFile("w+")
                words = ["nsenter", f"--net={space}", sys.executable, programs.HERE / "load.py", DNS, _RATE, seconds, sockets, TIMEOUT_S, _NAME]
                child = subprocess.Popen([str(word) for word in words], stdout=out)
                for cgroup in make_cgroup("clients"):
                    (cgroup / "cgroup.procs").write_text(str(child.pid), encoding="ascii")
                self._clients[f"{node.name}: {kind}"] = child, out
        self._end = time.monotonic() + seconds

    def result(self) -> dict[str, dict]:
        """By client."""
        found = {}
        for name, (child, out) in self._clients.items():
            if child.wait(60 + max(0, self._end - time.monotonic())) != 0:
                raise RuntimeError(f"the client {name} failed")
            out.seek(0)
            found[name] = json.load(out)
        return found


class Events:
    def __init__(self, cluster: Cluster):
        self.cluster, self.rows = cluster, {}

    # -- of the cluster's DNS ------------------------------------------------------------------------------

    def dns_pod(self, node: str) -> dict:
        (pod,) = self.cluster.pods("k8s-app=kube-dns", "kube-system", node)
        return pod

    def dns_signal(self, node: str, number: int) -> None:
        for pid in self.cluster.pids(self.dns_pod(node), "coredns"):
            os.kill(pid, number)

    def killed(self, node: str) -> None:
        self.dns_signal(node, signal.SIGKILL)

    def stopped(self, node: str) -> None:
        self.dns_signal(node, signal.SIGSTOP)
        time.sleep(6)
        self.dns_signal(node, signal.SIGCONT)

    def deleted(self, node: str, *more: str) -> None:
        self.cluster.kubectl("-n=kube-system", "delete", "pod", self.dns_pod(node)["metadata"]["name"], "--wait=false", *more)

    def forced(self, node: str) -> None:
        self.deleted(node, "--grace-period=0", "--force")

    def cut(self, node: str) -> None:
        self.cluster.lab.cut(node)
        time.sleep(8)
        self.cluster.lab.heal(node)

    def rollout(self, _node: str) -> None:
        self.cluster.kubectl("-n=kube-system", "rollout", "restart", "deployment/coredns")
        self.settle()

    def scaled(self, _node: str) -> None:
        for count in (1, 5, 2):
            self.cluster.kubectl("-n=kube-system", "scale", "deployment/coredns", f"--replicas={count}")
            self.settle(count)
            time.sleep(2)

    def settle(self, count: int = 2) -> None:
        """Every pod of the last rollout is ready, and no other one is left."""
        self.cluster.kubectl("-n=kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
        until(lambda: len(self.cluster.get("pods", "-n=kube-system", "-lk8s-app=kube-dns")) == count, 120, lambda: "CoreDNS' pods do not settle", 0.5)

    def spread(self) -> None:
        """One on each node, also where a smaller number has left both on one: a rollout sees to it."""
        self.settle()
        while len(self.cluster.pods("k8s-app=kube-dns", "kube-system", "a")) != 1:
            self.rollout("")

    def wait_until_all_is_answered(self) -> None:
        until(lambda: not any(result["lost"] for result in Load(self.cluster, 1).result().values()), 60, lambda: "the cluster's DNS does not answer")

    # -- of the proxy --------------------------------------------------------------------------------------

    def overlay(self, folder: Path) -> Path:
        """The page's, as it stands, with the files that it names."""
        (text,) = re.findall(r"```yaml\n(apiVersion: kustomize.config.k8s.io.*?)```", (programs.PROJECT / "docs/kubernetes.md").read_text(encoding="utf-8"), re.DOTALL)
        (folder / "hedgerow").symlink_to(programs.PROJECT)
        overlay = folder / "overlay"
        overlay.mkdir()
        (overlay / "kustomization.yaml").write_text(text, encoding="utf-8")
        for names in re.findall(r"files: \[(.*?)\]", text):
            for name in names.split(", "):
                (overlay / name).write_text(_CONFIG if name == "hedgerow.yaml" else "# of the store, which has no host here\n", encoding="utf-8")
        return overlay

    def proxies(self, node: str = "") -> list[dict]:
        return self.cluster.pods(_HEDGEROW, "hedgerow", node)

    def rolled_out(self) -> None:
        self.cluster.kubectl("-n=hedgerow", "rollout", "status", "daemonset/hedgerow", "--timeout=120s")

    def installed(self, _node: str) -> None:
        with tempfile.TemporaryDirectory(prefix="hedgerow-kube-") as folder:
            self.cluster.kubectl("apply", "-k", str(self.overlay(Path(folder))))
        until(self.proxies, 60, lambda: "no pod of the proxy")
        self.rolled_out()

    def daemon_killed(self, node: str) -> None:
        for pid in self.cluster.pids(self.proxies(node)[0], "hedgerowd"):
            os.kill(pid, signal.SIGKILL)

    def proxy_deleted(self, node: str) -> None:
        self.cluster.kubectl("-n=hedgerow", "delete", "pod", self.proxies(node)[0]["metadata"]["name"], "--wait=false")

    def proxies_restarted(self, _node: str) -> None:
        self.cluster.kubectl("-n=hedgerow", "rollout", "restart", "daemonset/hedgerow")
        self.rolled_out()

    def uninstalled(self, _node: str) -> None:
        """And kube-proxy serves some seconds later."""
        self.cluster.kubectl("-n=hedgerow", "delete", "daemonset", "hedgerow")
        time.sleep(25)

    def removed(self, _node: str) -> None:
        self.cluster.kubectl("apply", "-k", str(programs.PROJECT / "deploy/kubernetes/remove"))
        self.cluster.kubectl("-n=hedgerow", "rollout", "status", "daemonset/hedgerow-remove", "--timeout=120s")

    def status(self, node: str) -> dict:
        (pod,) = self.proxies(node)
        return json.loads(self.cluster.kubectl("-n=hedgerow", "exec", pod["metadata"]["name"], "-c", "hedgerowd", "--", "/usr/bin/hedgerow", "status", "--json",
                                               check=False) or "{}")

    # -- the table -----------------------------------------------------------------------------------------

    def measure(self, system: str, name: str, event: Callable[[str], None], nodes: tuple[str, ...] = ("a", "b"), seconds: float = 12) -> None:
        """`event` begins 2 s after the load, which goes on for as long as it may take; once for each node."""
        for node in nodes:
            load = Load(self.cluster, seconds)
            time.sleep(2)
            event(node)
            results = load.result()
            lost = {client: result["lost"] for client, result in results.items() if result["lost"]}
            sent = sum(result["sent"] for result in results.values())
            slowest = max(result["ms"].get("0.999", 0) for result in results.values())
            row = self.rows.setdefault(name, {}).setdefault(system, {"sent": 0, "lost": 0, "p999_ms": 0})
            row.update(sent=row["sent"] + sent, lost=row["lost"] + sum(map(len, lost.values())), p999_ms=max(row["p999_ms"], slowest))
            print(f"{system}: {name} ({node}): {sum(map(len, lost.values()))} of {sent} lost, p99.9 {slowest} ms"
                  + "".join(f"\n    {client}: {len(times)}, sent at {times[0]} to {times[-1]} s" for client, times in lost.items()), flush=True)
            self.spread()


def dns_events(events: Events) -> list[tuple]:
    """Name, event, nodes, seconds."""
    both = ("a", "b")
    return [("nothing", lambda node: None, ("a",), 6), ("CoreDNS killed", events.killed, both, 8), ("CoreDNS stopped for 6 s", events.stopped, both, 12),
            ("CoreDNS pod deleted", events.deleted, both, 14), ("CoreDNS pod deleted by force", events.forced, both, 10),
            ("node cut off for 8 s", events.cut, both, 16), ("CoreDNS rollout", events.rollout, ("a",), 24), ("CoreDNS scaled 1, 5, 2", events.scaled, ("a",), 40)]


def proxy_events(events: Events) -> list[tuple]:
    both = ("a", "b")
    return [("daemon killed", events.daemon_killed, both, 12), ("proxy pod deleted", events.proxy_deleted, both, 14),
            ("DaemonSet restarted", events.proxies_restarted, ("a",), 30)]


def run(cluster: Cluster) -> int:
    events = Events(cluster)
    events.wait_until_all_is_answered()
    for name, event, nodes, seconds in dns_events(events):
        events.measure("kube-proxy", name, event, nodes, seconds)
    events.wait_until_all_is_answered()  # what kube-proxy still loses after the last event is none of the installation's
    events.measure("hedgerow", "DaemonSet installed", events.installed, ("a",), 30)
    for name, event, nodes, seconds in [*dns_events(events), *proxy_events(events)]:
        events.measure("hedgerow", name, event, nodes, seconds)
    events.measure("hedgerow", "DaemonSet deleted", events.uninstalled, ("a",), 30)
    events.measure("hedgerow", "remove/ applied", events.removed, ("a",), 15)
    return table(events.rows)


def table(rows: dict[str, dict]) -> int:
    """1 where a query was lost with the product."""
    def cell(found: dict | None) -> str:
        return f"{found['lost']} of {found['sent']}, p99.9 {found['p999_ms']:.0f} ms" if found else ""

    print("\n| event | lost with kube-proxy alone | lost with Hedgerow |\n|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {cell(row.get('kube-proxy'))} | {cell(row.get('hedgerow'))} |")
    return int(any(row["hedgerow"]["lost"] for row in rows.values() if "hedgerow" in row))
