# SPDX-License-Identifier: Apache-2.0
"""The manifests: every field is one of the API's, references lead somewhere, and the rights are those that were measured."""

import copy
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes import endpoints, manifests
from deploy.kubernetes.manifests import FOLDER

ROOT = FOLDER.parents[1]
BIN = Path(os.environ.get("HEDGEROW_BIN", ROOT / "build/release/bin"))
BASES = [FOLDER, FOLDER / "monitoring", FOLDER / "remove"]
ALL = [each for base in BASES for each in manifests.rendered(base)]
PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in ALL if each["kind"] in ("DaemonSet", "StatefulSet")}
CONTAINERS = [(name, container) for name, pod in PODS.items()
              for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]]
UNIT = {"hedgerow": "hedgerowd", "hedgerow-node": "hedgerow-node"}


def of(kind: str, name: str) -> dict:
    return next(each for each in ALL if each["kind"] == kind and each["metadata"]["name"] == name)


@pytest.mark.parametrize("manifest", ALL, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_every_field_is_one_of_the_apis(manifest):
    assert manifests.errors(manifest, manifests.type_of(manifest)) == []


@pytest.mark.parametrize("path, value, expected", [
    (("spec", "template", "spec", "hostNetwrok"), True, "hostNetwrok: there is no such field"),
    (("spec", "template", "spec", "containers", 0, "securityContext", "capabilities", "ad"), ["BPF"], "capabilities.ad: there is no such field"),
    (("spec", "template", "spec", "containers", 0, "livenessProbe", "periodSeconds"), "10s", "periodSeconds: '10s' is no int"),
    (("spec", "template", "spec", "containers", 0, "volumeMounts", 0, "mountPath"), None, "mountPath: None is no str"),
    (("spec", "template", "spec", "hostNetwork"), "yes", "hostNetwork: 'yes' is no bool"),
    (("spec", "selector"), ..., "`selector`, must not be `None`"),
    (("spec", "template", "spec", "containers", 0, "name"), ..., "`name`, must not be `None`"),
])
def test_a_planted_mistake_is_found(path, value, expected):
    manifest = copy.deepcopy(of("DaemonSet", "hedgerow"))
    at = manifest
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    assert expected in "; ".join(manifests.errors(manifest, "V1DaemonSet"))


def test_a_kind_that_the_api_does_not_have_is_found():
    with pytest.raises(LookupError):
        manifests.type_of({"apiVersion": "policy/v1", "kind": "PodDisruptionBudgets"})


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_mounts_is_there(name):
    pod = PODS[name]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    claimed = {each["metadata"]["name"] for each in (of("StatefulSet", name)["spec"]["volumeClaimTemplates"] if name == "hedgerow-node" else [])}
    mounted = {mount["name"] for _, container in CONTAINERS if container in [*pod.get("initContainers", []), *pod["containers"]]
               for mount in container.get("volumeMounts", [])}
    assert mounted == volumes.keys() | claimed, "each volume is mounted, and nothing else"
    for volume in volumes.values():
        if "configMap" in volume:
            of("ConfigMap", volume["configMap"]["name"])
        if "secret" in volume:
            of("Secret", volume["secret"]["secretName"])


def test_selectors_find_their_pods():
    for each in ALL:
        selector = each.get("spec", {}).get("selector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        if each["kind"] in ("DaemonSet", "StatefulSet"):
            assert each["spec"]["template"]["metadata"]["labels"] == wanted
        else:
            assert any(pod["metadata"]["labels"] == wanted for pod in PODS.values()), each["metadata"]["name"]


def test_the_proxy_has_the_capabilities_of_its_unit_and_no_other_container_has_any():
    unit = (ROOT / "deploy/systemd/hedgerowd.service").read_text(encoding="utf-8")
    measured = {word.removeprefix("CAP_") for word in re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)[1].split()}
    for name, container in CONTAINERS:
        context = container["securityContext"]
        added = set(context["capabilities"].get("add", []))
        assert context["capabilities"]["drop"] == ["ALL"], container["name"]
        assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
        assert not context.get("privileged")
        assert added == {"hedgerowd": measured, "clean": {"NET_ADMIN", "BPF"}}.get(container["name"], set()), f"{name}: {container['name']}"


def test_what_excludes_and_outlives_pods_is_the_hosts():
    """The lock of an instance, the pins, and the last known list."""
    for name, wanted in (("hedgerow", {"bpf": "/sys/fs/bpf", "run": "/run/hedgerow", "config": "/run/hedgerow-config"}),
                         ("hedgerow-remove", {"bpf": "/sys/fs/bpf", "run": "/run/hedgerow"})):
        assert {each["name"]: each["hostPath"]["path"] for each in PODS[name]["spec"]["volumes"] if "hostPath" in each} == wanted


def test_a_disruption_leaves_a_majority():
    replicas = of("StatefulSet", "hedgerow-node")["spec"]["replicas"]
    assert replicas - of("PodDisruptionBudget", "hedgerow-node")["spec"]["maxUnavailable"] > replicas / 2
    assert replicas == len([name for name in of("ConfigMap", "hedgerow-node")["data"]])


def test_a_node_is_ready_for_the_budget_only_when_it_is_ready():
    (node,) = [each for _, each in CONTAINERS if each["name"] == "hedgerow-node"]
    assert node["readinessProbe"]["exec"]["command"][-1] == "--ready"
    assert "--ready" not in node["livenessProbe"]["exec"]["command"], "a node without a majority is not ended"


@pytest.mark.parametrize("program, name", [("hedgerow", "hedgerow"), ("hedgerow-node", "hedgerow-node")])
def test_the_configurations_are_valid(program, name, tmp_path):
    data = of("ConfigMap", name)["data"]
    for file, text in data.items():
        if name == "hedgerow-node":
            assert f'"{file.removesuffix(".yaml")}:4802"' in text, "a file is named by the address of the host that it is for"
            key = tmp_path / "cluster.key"
            key.write_text("0123456789abcdef0123456789abcdef", encoding="ascii")
            key.chmod(0o600)
            text = text.replace("/etc/hedgerow-node-keys/cluster.key", str(key))
        (tmp_path / file).write_text(text, encoding="utf-8")
        (tmp_path / file).chmod(0o640)
        done = subprocess.run([BIN / program, "validate", "--config", tmp_path / file], capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 0, done.stdout + done.stderr
    if name == "hedgerow-node":
        ids = [(yaml.safe_load(text)["node"], file) for file, text in data.items()]
        members = {each["id"]: each["peer"] for each in yaml.safe_load(text)["members"]}
        assert all(members[number].startswith(file.removesuffix("yaml").rstrip(".") + ":") for number, file in ids)


def test_the_controller_has_the_rights_it_uses_and_takes_its_arguments():
    rule, = of("Role", "hedgerow-endpoints")["rules"]
    assert rule == {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    for _, container in CONTAINERS:
        if container["image"].startswith("hedgerow-endpoints") and "args" in container:
            endpoints.parse([*container["args"], "--service", "dns", "--endpoints", "default/dns", "--api", "http://localhost"])


def test_probes_are_commands_that_the_programs_have():
    for _, container in CONTAINERS:
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if kind in container:
                program, *words = container[kind]["exec"]["command"]
                assert program.startswith("/usr/bin/")
                text = subprocess.run([BIN / Path(program).name, "help", words[0]], capture_output=True, text=True, check=True, timeout=10).stdout
                assert all(word in text for word in words)


def test_the_compose_files_configurations_are_valid_and_name_its_addresses(tmp_path):
    folder = ROOT / "deploy/compose"
    demo = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))
    addresses = {name: each["networks"]["store"]["ipv4_address"] for name, each in demo["services"].items() if "networks" in each}
    proxy = yaml.safe_load((folder / "hedgerow.yaml").read_text(encoding="utf-8"))
    assert {each["name"]: each["address"] for each in proxy["services"][0]["backends"]} == {
        name: address for name, address in addresses.items() if name != "proxy"}
    key = tmp_path / "cluster.key"
    key.write_text("0123456789abcdef0123456789abcdef", encoding="ascii")
    key.chmod(0o640)
    for file in sorted(folder.glob("*.yaml")):
        if file.name == "compose.yaml":
            continue
        text = file.read_text(encoding="utf-8")
        (tmp_path / file.name).write_text(text.replace("/etc/hedgerow-node/cluster.key", str(key)), encoding="utf-8")
        program = BIN / ("hedgerow" if file.name == "hedgerow.yaml" else "hedgerow-node")
        done = subprocess.run([program, "validate", "--config", tmp_path / file.name], capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 0, done.stdout + done.stderr
        if program.name == "hedgerow-node":
            node = yaml.safe_load(text)
            assert next(each for each in node["members"] if each["id"] == node["node"])["serve"] == f"{addresses[file.stem]}:4801"
