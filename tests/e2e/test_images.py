# SPDX-License-Identifier: Apache-2.0
"""The container images: what is in them, and that their programs work in them with the rights that the manifests give and no more.

No engine and no cluster is needed (harness/image.py). Making them takes a minute, so all of it is `long`; the manifests, the
controller and a proxy beside pods are always tested (test_kubernetes.py, deploy/kubernetes)."""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes import manifests_test as manifests
from harness.image import Image, make_images
from harness.product import BIN, VIP4, wait_until

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
PODS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in manifests.rendered(manifests.FOLDER)
        if each["kind"] in ("DaemonSet", "StatefulSet")}
REMOVE = manifests.rendered(manifests.FOLDER / "remove")[0]["spec"]["template"]["spec"]
LARGEST = {"hedgerow": 30e6, "hedgerow-node": 30e6, "hedgerow-endpoints": 45e6}


def container(pod: str, name: str) -> dict:
    return next(each for each in PODS[pod]["containers"] if each["name"] == name)


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> dict[str, Path]:
    return make_images(BIN.parent, tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def images(archives, tmp_path_factory) -> dict[str, Image]:
    return {name: Image(path, tmp_path_factory.mktemp(name)) for name, path in archives.items()}


def test_an_image_says_what_it_is_and_has_little_in_it(images):
    assert images.keys() == LARGEST.keys()
    version = re.search(r"VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8").split("project(")[1])[1]
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    for name, image in images.items():
        assert image.name == f"docker.io/library/{name}:{version}", "what kubelet asks for"
        labels = {key.rpartition(".")[2]: value for key, value in image.config["Labels"].items() if key.startswith("org.opencontainers.image.")}
        assert labels["title"] == name and labels["version"] == version and labels["revision"] == revision
        assert image.size < LARGEST[name], f"{name}: {image.size} bytes"
        # The name that each package has in it, for scanners, and its licence.
        assert {"libc6", "libstdc++6"} <= {path.name for path in (image.root / "var/lib/dpkg/status.d").iterdir()}
        assert (image.root / "usr/share/doc/libc6/copyright").is_file()
        for program in ("usr/bin/sh", "usr/bin/dash", "usr/bin/bash", "usr/bin/apt", "usr/bin/dpkg"):
            assert not (image.root / program).exists(), f"{name} has {program}"
    assert images["hedgerow-node"].config["User"].startswith("10002"), "the node needs no root"


def test_the_same_tree_makes_the_same_image(images, tmp_path):
    again = make_images(BIN.parent, tmp_path)
    assert Image(again["hedgerow"], tmp_path).digest == images["hedgerow"].digest


def test_the_proxys_container_serves_and_hedges_through_a_vip_with_the_daemonsets_rights(images, lab, servers, product, tmp_path):
    config, run, scratch = (tmp_path / name for name in ("config", "run", "scratch"))
    for folder in (config, run, scratch):
        folder.mkdir()
    shipped = yaml.safe_load((manifests.FOLDER / "proxy/hedgerow.yaml").read_text(encoding="utf-8"))
    settings = product.config(admin=shipped["admin"])
    shutil.copy(product.write(settings), config / "hedgerow.yaml")
    pod, spec = PODS["hedgerow"], container("hedgerow", "hedgerowd")
    mounts = {"/etc/hedgerow": config, "/run/hedgerow": run, "/tmp": scratch, "/sys/fs/bpf": Path("/sys/fs/bpf")}
    assert mounts.keys() == {each["mountPath"] for each in spec["volumeMounts"]}
    product.socket = run / "admin.sock"
    with contextlib.ExitStack() as running:
        daemon = lab.client.popen(images["hedgerow"].command(spec, mounts, pod=pod), log=product.folder / "container.log")
        running.callback(product.sweep)
        running.callback(lab.client.stop, daemon)
        probe = images["hedgerow"].command(spec, mounts, pod=pod, words=spec["readinessProbe"]["exec"]["command"])
        wait_until(lambda: lab.client.run(probe, check=False).returncode == 0, 20, "the readiness probe")
        held = Path(f"/proc/{daemon.pid}/status").read_text(encoding="ascii")
        assert int(re.search(r"^CapEff:\s+(\S+)", held, re.MULTILINE)[1], 16).bit_count() == 4
        assert int(re.search(r"^NoNewPrivs:\s+(\d)", held, re.MULTILINE)[1]) == 1
        monitoring = {"securityContext": {"runAsUser": 10002, "capabilities": {"drop": ["ALL"]}}}
        for words, code in ((["status"], 0), (["down"], 4)):
            argv = ["/usr/bin/hedgerow", *words, "--socket", shipped["admin"]["monitor_socket"]]
            assert lab.client.run(images["hedgerow"].command(monitoring, mounts, pod=pod, words=argv), check=False).returncode == code
        second = lab.client.run(images["hedgerow"].command(spec, mounts, pod=pod), check=False)
        assert second.returncode == 1 and "already running" in second.stdout + second.stderr, second.stdout + second.stderr
        ask = ["dig", "+short", "+tries=1", "+time=2", f"@{VIP4}", "www.example.test"]
        assert lab.client.run(ask).stdout.strip()
        servers["a"].stall()
        for _ in range(25):
            assert lab.client.run(ask).stdout.strip()
        servers["a"].resume()
        status = json.loads(product.admin("status", "--json").stdout)
        service = next(each for each in status["services"] if each["name"] == "dns4")
        assert service["won_by_hedge"] + service["won_by_failover"] > 0
        # The pod is replaced: the kernel part works on, and the next daemon takes it over.
        lab.client.stop(daemon)
        assert lab.client.run(ask).stdout.strip(), "without a daemon"
        daemon = lab.client.popen(images["hedgerow"].command(spec, mounts, pod=pod), log=product.folder / "container.log")
        running.callback(lab.client.stop, daemon)
        wait_until(lambda: lab.client.run(probe, check=False).returncode == 0, 20, "the next pod")
        assert json.loads(product.admin("status", "--json").stdout)["adoption"]["how"] == "adopted"
        product.admin("down")
        # deploy/kubernetes/remove, after a daemon that was only ended.
        daemon = lab.client.popen(images["hedgerow"].command(spec, mounts, pod=pod), log=product.folder / "container.log")
        running.callback(lab.client.stop, daemon)
        wait_until(lambda: lab.client.run(probe, check=False).returncode == 0, 20, "the last pod")
        lab.client.stop(daemon)
        (remover,) = REMOVE["initContainers"]
        remove = images["hedgerow"].command(remover, {where: mounts[where] for where in ("/sys/fs/bpf", "/run/hedgerow")}, pod=REMOVE,
                                            words=[*remover["command"], "--instance", product.instance])
        assert lab.client.run(remove).returncode == 0
        assert lab.client.run(["ip", "link", "show", "hr0"], check=False).returncode != 0


def test_a_nodes_container_keeps_what_it_stored_as_a_user_without_capabilities(images, lab, tmp_path):
    folders = {name: tmp_path / name for name in ("data", "run", "scratch", "config", "keys")}
    for name, folder in folders.items():
        folder.mkdir()
        folder.chmod(0o2770)
        shutil.chown(folder, 0, 10002)  # fsGroup
    host = lab.replicas[0]
    pod, spec = PODS["hedgerow-node"], container("hedgerow-node", "hedgerow-node")
    (folders["config"] / f"{host.ipv4}.yaml").write_text(
        "cluster_id: 7\ncluster_key_file: /etc/hedgerow-node-keys/cluster.key\nnode: 1\nmetrics_listen: \"\"\n"
        f"members:\n  - {{id: 1, peer: '{host.ipv4}:4802', serve: '{host.ipv4}:4801'}}\n".replace("'", '"'), encoding="utf-8")
    key = folders["keys"] / "cluster.key"
    key.write_text("0123456789abcdef0123456789abcdef", encoding="ascii")
    key.chmod(0o440)  # defaultMode of the Secret
    shutil.chown(key, 0, 10002)
    mounts = {"/var/lib/hedgerow-node": folders["data"], "/run/hedgerow-node": folders["run"], "/tmp": folders["scratch"],
              "/etc/hedgerow-node": folders["config"], "/etc/hedgerow-node-keys": folders["keys"]}
    assert mounts.keys() == {each["mountPath"] for each in spec["volumeMounts"]}
    image = images["hedgerow-node"]
    words = [*image.config["Entrypoint"], *(word.replace("$(HOST_IP)", host.ipv4) for word in spec["args"])]
    probe = image.command(spec, mounts, pod=pod, words=spec["readinessProbe"]["exec"]["command"])
    hkv = [BIN / "hkv", "--server", f"{host.ipv4}:4801", "--timeout", "2s"]
    for step, expected in ((["put", "name", "alice"], None), (["get", "name"], "alice")):
        node = host.popen(image.command(spec, mounts, pod=pod, words=words), log=tmp_path / "node.log")
        try:
            wait_until(lambda: host.run(probe, check=False).returncode == 0, 20, f"ready: {(tmp_path / 'node.log').read_text()[-2000:]}")
            held = Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
            assert int(re.search(r"^CapEff:\s+(\S+)", held, re.MULTILINE)[1], 16) == 0
            assert re.search(r"^Uid:\s+(\d+)", held, re.MULTILINE)[1] == "10002"
            said = host.run([*hkv, *step]).stdout.strip()
            assert expected is None or said == expected
        finally:
            host.stop(node)


def test_the_controllers_container_writes_the_first_configuration(images, lab, tmp_path):
    pod = PODS["hedgerow"]
    (spec,) = pod["initContainers"]
    template, config = tmp_path / "map", tmp_path / "config"
    # As kubelet lays a ConfigMap out: a link to a folder that is exchanged as a whole.
    (template / "..1").mkdir(parents=True)
    config.mkdir()
    shutil.copy(manifests.FOLDER / "proxy/hedgerow.yaml", template / "..1")
    (template / "..data").symlink_to("..1")
    (template / "hedgerow.yaml").symlink_to("..data/hedgerow.yaml")
    done = lab.client.run(images["hedgerow-endpoints"].command(spec, {"/etc/hedgerow-map": template, "/etc/hedgerow": config}, pod=pod),
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (config / "hedgerow.yaml").read_text(encoding="utf-8") == (template / "hedgerow.yaml").read_text(encoding="utf-8")


# -- deploy/compose ----------------------------------------------------------------------------------------------------


@pytest.fixture
def compose(tmp_path) -> Iterator[tuple[dict, Path]]:
    """The demo as prepare.sh copies it, and its network: a bridge, and a namespace for each service that has an address."""
    folder = tmp_path / "compose"
    subprocess.run([ROOT / "deploy/compose/prepare.sh", folder], check=True, timeout=10, capture_output=True)
    demo = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))
    tag = f"hrc{os.getpid()}"
    addresses = {name: each["networks"]["store"]["ipv4_address"] for name, each in demo["services"].items() if "networks" in each}
    ip = lambda *words: subprocess.run(["ip", *words], check=True, timeout=10)  # noqa: E731
    try:
        ip("netns", "add", f"{tag}-switch")
        ip("-n", f"{tag}-switch", "link", "add", "br0", "type", "bridge")
        ip("-n", f"{tag}-switch", "link", "set", "br0", "up")
        for name, address in addresses.items():
            ip("netns", "add", f"{tag}-{name}")
            ip("-n", f"{tag}-switch", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", f"{tag}-{name}")
            ip("-n", f"{tag}-switch", "link", "set", name, "master", "br0", "up")
            ip("-n", f"{tag}-{name}", "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                ip("-n", f"{tag}-{name}", "link", "set", link, "up")
        yield demo, folder, tag
    finally:
        for name in ("switch", *addresses):
            subprocess.run(["ip", "netns", "del", f"{tag}-{name}"], check=False, timeout=10, capture_output=True)


def test_the_compose_demo_stores_through_the_vip_and_lives_through_a_killed_leader(images, compose, tmp_path):
    demo, folder, tag = compose
    running: dict[str, subprocess.Popen] = {}

    def command(name: str, argv: list[str] | None = None, args: list[str] | None = None) -> list[str]:
        """A service's own command; or `argv` in its container; or its entrypoint with other arguments."""
        service = demo["services"][name]
        assert service["read_only"] and service["security_opt"] == ["no-new-privileges:true"]
        mounts = {}
        for volume in service.get("volumes", []):
            source, where = volume.split(":")[:2]
            mounts[where] = folder if source == "." else Path(source) if source.startswith("/") else tmp_path / source
        for where in (each.split(":")[0] for each in service.get("tmpfs", [])):
            mounts[where] = tmp_path / f"{name}{where.replace('/', '-')}"
        for where, each in mounts.items():
            if not each.exists():
                each.mkdir()
                each.chmod(0o1777 if where == "/tmp" else 0o755)
                shutil.chown(each, 10002 if "hedgerow-node" in where else 0)
        context = {"readOnlyRootFilesystem": True, "capabilities": {"drop": service["cap_drop"], "add": service.get("cap_add", [])}}
        image = images[service["image"].split(":")[0]]
        words = argv or [*service.get("entrypoint", image.config["Entrypoint"]), *(args or service.get("command", image.config["Cmd"]))]
        host = service.get("network_mode", f"service:{name}").removeprefix("service:")
        return ["nsenter", f"--net=/run/netns/{tag}-{host}", *image.command({"securityContext": context}, mounts, words=words)]

    def healthy(name: str) -> bool:
        test = demo["services"][name]["healthcheck"]["test"]
        assert test[0] == "CMD"
        return subprocess.run(command(name, argv=test[1:]), check=False, timeout=20, capture_output=True).returncode == 0

    def client(*args: str) -> str:
        done = subprocess.run(command("client", args=list(args)), check=False, timeout=20, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    try:
        for name in ("node1", "node2", "node3", "proxy"):
            with open(tmp_path / f"{name}.log", "wb") as log:
                running[name] = subprocess.Popen(command(name), stdout=log, stderr=log, start_new_session=True)
        for name in running:
            wait_until(lambda name=name: healthy(name), 30, f"{name}: {(tmp_path / f'{name}.log').read_text()[-1500:]}")
        client("put", "name", "alice")
        assert client("get", "name") == "alice"
        status = json.loads(subprocess.run(command("node1", argv=["/usr/bin/hedgerow-node", "status", "--json"]), check=True, timeout=20,
                                           capture_output=True).stdout)
        leader = f"node{status['leader']}"
        running[leader].kill()
        running.pop(leader).wait()
        client("put", "name", "bob")
        assert client("get", "name") == "bob"
        subprocess.run(command("proxy", argv=["/usr/bin/hedgerow", "down"]), check=True, timeout=20)
    finally:
        for process in running.values():
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
        # Without a daemon and its namespace only the pins are left.
        subprocess.run([BIN / "hedgerow", "clean", "--instance", "compose"], check=False, timeout=20, capture_output=True)
