# SPDX-License-Identifier: Apache-2.0
"""The manifests, as kustomize puts them together: every field is one of the API's, references lead somewhere, and the rights are those
that were measured.

The types are those of Debian's python3-kubernetes, which are generated from the API's OpenAPI document: every field's name, type
and whether it is required. What they do not know is an error here, as in an API server with strict validation. Of Prometheus'
operator, whose kind is in no package, the fields that we use are listed below, with their types.
"""

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from deploy.kubernetes import endpoints

FOLDER = Path(__file__).resolve().parent
PRIMITIVES = {"str": str, "int": int, "bool": bool, "float": (int, float)}
# https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PodMonitor
POD_MONITOR = {
    "selector": "V1LabelSelector",
    "podMetricsEndpoints": [{"port": "str", "path": "str", "relabelings": [{"sourceLabels": ["str"], "targetLabel": "str", "replacement": "str"}]}],
}
ROOT = FOLDER.parents[1]
BIN = Path(os.environ.get("HEDGEROW_BIN", ROOT / "build/release/bin"))


def documents(path: Path) -> list[dict]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def rendered(folder: Path) -> list[dict]:
    """What `kubectl kustomize FOLDER` gives, for the few fields of kustomization files that stand here; another one is an error."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    known = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "generatorOptions"}
    assert kustomization["kind"] == "Kustomization" and kustomization["apiVersion"] == "kustomize.config.k8s.io/v1beta1"
    assert kustomization.keys() <= known, f"{folder.name}: {kustomization.keys() - known}"
    found = []
    for name in kustomization["resources"]:
        path = folder / name
        found += rendered(path) if path.is_dir() else documents(path)
    for generator in kustomization.get("configMapGenerator", []):
        assert generator.keys() == {"name", "files"}
        data = {name: (folder / name).read_text(encoding="utf-8") for name in generator["files"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})
    for each in found if "namespace" in kustomization else []:
        if each["kind"] != "Namespace":
            each["metadata"].setdefault("namespace", kustomization["namespace"])
    return found


def type_of(manifest: dict) -> object:
    version, kind = manifest["apiVersion"], manifest["kind"]
    if (version, kind) == ("monitoring.coreos.com/v1", "PodMonitor"):
        return {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta", "spec": POD_MONITOR}
    # A kind stands in one group: v1 here is "v1", "apps/v1" and so on.
    name = version.rpartition("/")[2].title() + kind
    if not hasattr(client, name):
        raise LookupError(f"the API has no {kind} of {version}")
    return name


def errors(value: object, wanted: object, path: str = "") -> list[str]:
    """Where a value is none of a type: `wanted` is a type's name, or written out as a dict or a list of one."""
    if isinstance(wanted, dict):
        return _fields(value, wanted, path)
    if isinstance(wanted, list) or wanted.startswith("list["):
        inner = wanted[0] if isinstance(wanted, list) else wanted[5:-1]
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [error for number, each in enumerate(value) for error in errors(each, inner, f"{path}[{number}]")]
    if wanted.startswith("dict("):
        inner = wanted[5:-1].split(", ")[1]
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no map"]
        return [error for key, each in value.items() for error in errors(each, inner, f"{path}.{key}")]
    if wanted in PRIMITIVES:
        right = isinstance(value, PRIMITIVES[wanted]) and (wanted == "bool" or not isinstance(value, bool))
        return [] if right else [f"{path}: {value!r} is no {wanted}"]
    if wanted == "object":  # a number or a name, such as a port or maxUnavailable
        return [] if isinstance(value, (int, str)) else [f"{path}: {value!r} is neither a number nor a text"]
    model = getattr(client, wanted)
    found = _fields(value, {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}, path)
    return found or _refused_by_model(value, model, path)


def _fields(value: object, fields: dict, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is no block"]
    return [error for key, each in value.items() for error in (
        errors(each, fields[key], f"{path}.{key}") if key in fields else [f"{path}.{key}: there is no such field"])]


def _refused_by_model(value: dict, model: type, path: str) -> list[str]:
    """The constructor knows what is required, and the words that a field may have."""
    names = {field: name for name, field in model.attribute_map.items()}
    try:
        model(**{names[key]: each for key, each in value.items()})
    except ValueError as error:
        return [f"{path}: {error}"]
    return []


BASES = [FOLDER, FOLDER / "monitoring", FOLDER / "remove"]
ALL = [each for base in BASES for each in rendered(base)]
PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in ALL if each["kind"] in ("DaemonSet", "StatefulSet")}
CONTAINERS = [(name, container) for name, pod in PODS.items()
              for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]]
UNIT = {"hedgerow": "hedgerowd", "hedgerow-node": "hedgerow-node"}


def of(kind: str, name: str) -> dict:
    return next(each for each in ALL if each["kind"] == kind and each["metadata"]["name"] == name)


@pytest.mark.parametrize("manifest", ALL, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_every_field_is_one_of_the_apis(manifest):
    assert errors(manifest, type_of(manifest)) == []


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
    assert expected in "; ".join(errors(manifest, "V1DaemonSet"))


def test_a_kind_that_the_api_does_not_have_is_found():
    with pytest.raises(LookupError):
        type_of({"apiVersion": "policy/v1", "kind": "PodDisruptionBudgets"})


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
            assert volume["secret"]["secretName"] == name, "the overlay's"


def one(found: list[dict], kind: str, name: str) -> dict:
    (manifest,) = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return manifest


def patch(manifest: dict, operation: dict) -> None:
    """RFC 6902, `add` and `replace`."""
    *steps, last = operation["path"].removeprefix("/").split("/")
    at = manifest
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if last == "-":
        at.append(operation["value"])
    else:
        assert operation["op"] == "add" or last in at, operation["path"]
        at[last] = operation["value"]


def overlaid(folder: Path) -> list[dict]:
    """What `kubectl kustomize FOLDER` gives for an overlay: files are looked for beside the generator, wherever the base is."""
    (overlay,) = documents(folder / "kustomization.yaml")
    found = [each for name in overlay["resources"] for each in rendered(folder / name)]
    for kind in ("ConfigMap", "Secret"):
        for generator in overlay[f"{kind[0].lower()}{kind[1:]}Generator"]:
            data = {name: (folder / name).read_text(encoding="utf-8") for name in generator["files"]}
            if generator.get("behavior") == "replace":
                one(found, kind, generator["name"])["data"] = data
            else:
                found.append({"apiVersion": "v1", "kind": kind, "metadata": {key: generator[key] for key in ("name", "namespace")}, "data": data})
    for each in overlay["patches"]:
        for operation in yaml.safe_load(each["patch"]):
            patch(one(found, each["target"]["kind"], each["target"]["name"]), operation)
    return found


def test_the_overlay_of_the_page_builds_and_runs_as_it_stands(tmp_path):
    """With the files that it names beside it, and the tree elsewhere; by kubectl's own kustomize, too, where there is one."""
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(apiVersion: kustomize.config.k8s.io.*?)```", page, re.DOTALL)
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(text.replace("../hedgerow/deploy/kubernetes", os.path.relpath(FOLDER, overlay)), encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        overlaid(overlay)
    names = {name for generator in re.findall(r"files: \[(.*?)\]", text) for name in generator.split(", ")}
    assert {"hedgerow.yaml", "cluster.key"} < names
    for name in names:
        (overlay / name).write_text(f"# {name}\n", encoding="utf-8")
    built = overlaid(overlay)
    for manifest in built:
        assert errors(manifest, type_of(manifest)) == [], manifest["metadata"]["name"]
    assert one(built, "ConfigMap", "hedgerow")["data"] == {"hedgerow.yaml": "# hedgerow.yaml\n"}
    assert one(built, "Secret", "hedgerow-node")["data"].keys() == {"cluster.key"}
    proxy = one(built, "DaemonSet", "hedgerow")["spec"]["template"]["spec"]
    for container in (proxy["initContainers"][0], proxy["containers"][1]):
        parsed = endpoints.parse([*container["args"], "--api", "http://localhost"])
        namespace = parsed.endpoints.split("/")[0]
        assert [each["name"] for each in container["env"]] == ["NODE_NAME"]
    for kind in ("Role", "RoleBinding"):
        assert one(built, kind, "hedgerow-endpoints")["metadata"]["namespace"] == namespace, "where the Service is"
    if kubectl := shutil.which("kubectl"):
        done = subprocess.run([kubectl, "kustomize", overlay], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        theirs = [each for each in yaml.safe_load_all(done.stdout) if each]
        described = [{(each["kind"], each["metadata"]["name"], each["metadata"].get("namespace")) for each in both} for both in (built, theirs)]
        assert described[0] == described[1]


def test_the_proxys_folder_alone_has_its_namespace():
    assert "Namespace" in [each["kind"] for each in rendered(FOLDER / "proxy")]


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


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_the_compose_files_configurations_are_valid_and_name_its_addresses(tmp_path, nodes):
    folder = tmp_path / "compose"
    subprocess.run([ROOT / "deploy/compose/prepare.sh", folder, str(nodes)], check=True, timeout=10, capture_output=True)
    demo = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))
    addresses = {name: each["networks"]["store"]["ipv4_address"] for name, each in demo["services"].items() if "networks" in each}
    proxy = yaml.safe_load((folder / "hedgerow.yaml").read_text(encoding="utf-8"))
    assert {each["name"]: each["address"] for each in proxy["services"][0]["backends"]} == {
        name: address for name, address in addresses.items() if name != "proxy"}
    assert len(addresses) == nodes + 1
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
