# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes on one machine: the hosts `a` and `b` of a lab are its nodes, `client` has its control plane. Each node has containerd,
kubelet, kube-proxy and a network plugin of its own; what it leaves goes with the lab's tag, its control groups by their names.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.kube import programs
from deploy.lab import Lab, names
from deploy.lab.data_dirs import DataDirs
from deploy.lab.host import Host
from deploy.lab.waiting import until

TAG = "kube"
SERVICES, PODS = "10.96.0.0/16", "10.244.0.0/16"
DNS = "10.96.0.10"
_API = f"https://{names.CLIENT_IPV4}:6443"
_CGROUPS = Path("/sys/fs/cgroup")
# Users and their groups: their tokens are their names.
_USERS = {"admin": "system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": "", "system:kube-proxy": "",
          "system:node:a": "system:nodes", "system:node:b": "system:nodes"}


def _json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return path


class Cluster:
    """`cni`: of both nodes, or of a and b; `proxy`: kube-proxy's mode."""

    def __init__(self, cni: tuple[str, str] = ("bridge", "ptp"), proxy: str = "iptables"):
        self.cni, self.proxy = cni, proxy
        self.lab = Lab(TAG, replicas=2, strict_rp_filter=False)
        self._data = DataDirs(TAG, "disk")
        self._env = {"PATH": programs.path_variable()}

    # -- life ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self, archives: list[Path]) -> Iterator["Cluster"]:
        try:
            self.up(archives)
            yield self
        finally:
            self.down()

    def up(self, archives: list[Path]) -> None:
        """`archives`: the images that each node has. Ends when CoreDNS is rolled out."""
        down_pods()
        self.lab.up()
        self.folder = self._data.__enter__().path
        self._network()
        self._control_plane()
        for number, host in enumerate(self.lab.replicas):
            self._node(host, number, archives)
        self.kubectl("create", "clusterrolebinding", "kube-proxy", "--clusterrole=system:node-proxier", "--user=system:kube-proxy")
        until(lambda: self.kubectl("get", "nodes", "--no-headers").count(" Ready") == 2, 120, lambda: f"nodes not ready: {self.folder}", 0.5)
        self.apply(*DNS_PODS, *CLIENTS)
        for what in ("daemonset/client", "-n=kube-system deployment/coredns"):
            self.kubectl("rollout", "status", *what.split(), "--timeout=120s")

    def down(self) -> None:
        self.lab.registry.kill_all()  # what would start pods again
        down_pods()
        self.lab.down()
        self._data.remove()

    def keep(self) -> None:
        self.lab.keep()

    def _network(self) -> None:
        """Pods' networks are routed between the hosts; a default route leads nowhere."""
        for host in self.lab.hosts.values():
            host.sysctl("net.ipv4.ip_forward", 1)
            for number, node in enumerate(self.lab.replicas):
                if node is not host:
                    host.run(["ip", "route", "add", f"10.244.{number}.0/24", "via", node.ipv4])
            if host is self.lab.client:
                host.run(["ip", "route", "add", "unreachable", "default"])
            else:
                host.run(["ip", "route", "add", "default", "via", names.CLIENT_IPV4])

    def _start(self, name: str, *options: str) -> None:
        self.lab.client.popen(["nice", "-n", "5", name, *options], env=self._env, log=self.folder / f"{name}.log")

    def _control_plane(self) -> None:
        """The API server makes its own certificate, which is its own authority; what else is needed is a key for pods' tokens."""
        key, tokens = self.folder / "pods.key", self.folder / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text("".join(f'{user},{user},{user},"{group}"\n' for user, group in _USERS.items()), encoding="ascii")
        self._start("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync")
        self._start("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--bind-address={names.CLIENT_IPV4}", f"--advertise-address={names.CLIENT_IPV4}",
                    f"--cert-dir={self.folder}", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                    "--service-account-issuer=https://kubernetes.default.svc.cluster.local", f"--service-cluster-ip-range={SERVICES}",
                    f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
                    "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP")
        until(lambda: self.kubectl("get", "--raw=/readyz", check=False) == "ok", 120, lambda: f"the API server does not start: {self.folder}", 0.5)
        self._start("kube-controller-manager", f"--kubeconfig={self._kubeconfig('admin')}", f"--root-ca-file={self.folder}/apiserver.crt",
                    f"--service-account-private-key-file={key}", "--use-service-account-credentials", "--leader-elect=false", f"--cluster-cidr={PODS}")
        self._start("kube-scheduler", f"--kubeconfig={self._kubeconfig('admin')}", "--leader-elect=false")

    def _kubeconfig(self, user: str) -> Path:
        return _json(self.folder / f"{user.replace(':', '-')}.conf", {
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": _API, "certificate-authority": f"{self.folder}/apiserver.crt"}}],
            "users": [{"name": "u", "user": {"token": user}}]})

    def _node(self, host: Host, number: int, archives: list[Path]) -> None:
        folder = self.folder / host.name
        (folder / "cni").mkdir(parents=True)
        make_cgroup(host.name)
        ipam = {"type": "host-local", "ranges": [[{"subnet": f"10.244.{number}.0/24"}]]}
        plugin = ({"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
                  if self.cni[number] == "bridge" else {"type": "ptp", "ipMasq": False, "ipam": {**ipam, "routes": [{"dst": "0.0.0.0/0"}]}})
        _json(folder / "cni/pods.conflist", {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]})
        (folder / "containerd.toml").write_text(f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{programs.PAUSE}"
  restrict_oom_score_adj = true  # in a container without CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{programs.cache_folder()}/debian/usr/lib/cni"
    conf_dir = "{folder}/cni"
""", encoding="utf-8")
        _json(folder / "kubelet.json", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs", "failSwapOn": False, "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "clusterDNS": [DNS], "clusterDomain": "cluster.local", "resolvConf": "/run/resolv.conf",
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"}, "imageGCHighThresholdPercent": 100,
            "volumePluginDir": "/run/kubelet-plugins"})
        _json(folder / "kube-proxy.json", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": self.proxy, "clusterCIDR": PODS,
            "clientConnection": {"kubeconfig": str(self._kubeconfig("system:kube-proxy"))},
            # Else it writes settings that are the machine's.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}})
        shutil.copy(self._kubeconfig(f"system:node:{host.name}"), folder / "kubelet.conf")
        host.popen(["unshare", "--mount", "--uts", programs.HERE / "node.sh", host.name, host.ipv4, folder, *archives], env=self._env,
                   log=folder / "node.log")

    # -- use -----------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, check: bool = True, stdin: str | None = None, timeout: float = 180) -> str:
        return self.lab.client.run(["kubectl", f"--kubeconfig={self._kubeconfig('admin')}", *words], env=self._env, check=check, stdin=stdin,
                                   timeout=timeout).stdout.strip()

    def get(self, *words: str) -> list[dict]:
        return json.loads(self.kubectl("get", "-o", "json", *words))["items"]

    def apply(self, *manifests: dict) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def pods(self, selector: str, namespace: str = "default", node: str = "") -> list[dict]:
        """Those that are to stay."""
        found = self.get("pods", "-n", namespace, "-l", selector, *([f"--field-selector=spec.nodeName={node}"] if node else []))
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pids(self, pod: dict, program: str) -> list[int]:
        """A pod's processes that run this program, as the machine numbers them."""
        found = []
        for folder in next(iter(_hierarchies())).glob(f"hedgerow-kube-*/kubepods/**/pod{pod['metadata']['uid']}"):
            for pid in _processes(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/exe").endswith(f"/{program}"):
                        found.append(pid)
        return found


def _hierarchies() -> list[Path]:
    """Of control groups: version 2 is one. Of version 1 the one of pids is the first."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    found = {path.resolve() for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists()}
    return sorted(found, key=lambda path: path.name != "pids")


def make_cgroup(name: str) -> list[Path]:
    """Beside builds of this machine it is to have its part of the processors, as a machine has."""
    made = []
    for hierarchy in _hierarchies():
        cgroup = hierarchy / f"hedgerow-kube-{name}"
        cgroup.mkdir(exist_ok=True)
        of_version_1 = {file: (hierarchy / file).read_text(encoding="ascii") for file in ("cpuset.cpus", "cpuset.mems")
                        if hierarchy != _CGROUPS and (hierarchy / file).exists()}  # a new one has none
        for file, value in {**of_version_1, "cpu.shares": "16384", "cpu.weight": "1600"}.items():
            if (cgroup / file).exists():
                (cgroup / file).write_text(value, encoding="ascii")
        made.append(cgroup)
    return made


def _processes(cgroup: Path) -> list[int]:
    return [int(pid) for file in cgroup.rglob("cgroup.procs") for pid in file.read_text(encoding="ascii").split()]


def down_pods() -> None:
    """What containers of a cluster still run, and the control groups of its nodes."""
    for hierarchy in _hierarchies():
        for cgroup in hierarchy.glob("hedgerow-kube-*"):
            deadline = time.monotonic() + 10
            while (pids := _processes(cgroup)) and time.monotonic() < deadline:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
            for folder in [*sorted((each for each in cgroup.rglob("*") if each.is_dir()), reverse=True), cgroup]:
                folder.rmdir()


def _rule(groups: list[str], resources: list[str]) -> dict:
    return {"apiGroups": groups, "resources": resources, "verbs": ["list", "watch"]}


def _meta(name: str, **more: object) -> dict:
    return {"name": name, "namespace": "kube-system", **more}


_RBAC = "rbac.authorization.k8s.io"
_LABELS = {"k8s-app": "kube-dns"}
_COREFILE = """.:53 {
  errors
  health {
    lameduck 5s
  }
  ready
  kubernetes cluster.local {
    ttl 30
  }
}
"""
# As kubeadm makes it.
DNS_PODS = (
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta("coredns")},
    {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "coredns"},
     "rules": [_rule([""], ["endpoints", "services", "pods", "namespaces"]), _rule(["discovery.k8s.io"], ["endpointslices"])]},
    {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "coredns"},
     "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "coredns"}, "subjects": [{"kind": "ServiceAccount", **_meta("coredns")}]},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta("coredns"), "data": {"Corefile": _COREFILE}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta("coredns"), "spec": {
        "replicas": 2, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}, "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": {
            "priorityClassName": "system-cluster-critical", "serviceAccountName": "coredns", "dnsPolicy": "Default",
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                                           "labelSelector": {"matchLabels": _LABELS}, "matchLabelKeys": ["pod-template-hash"]}],
            "containers": [{
                "name": "coredns", "image": programs.COREDNS, "args": ["-conf", "/etc/coredns/Corefile"], "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "170Mi"}},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "readOnlyRootFilesystem": True},
                "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 60, "timeoutSeconds": 5, "failureThreshold": 5},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}}}],
            "volumes": [{"name": "config", "configMap": {"name": "coredns"}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": _meta("kube-dns", labels=_LABELS), "spec": {
        "selector": _LABELS, "clusterIP": DNS, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]}})
# A pod on each node, whose network namespace clients are started in.
CLIENTS = ({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "client", "namespace": "default"}, "spec": {
    "selector": {"matchLabels": {"app": "client"}}, "template": {"metadata": {"labels": {"app": "client"}}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "client", "image": programs.PAUSE}]}}}},)
