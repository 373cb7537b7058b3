# SPDX-License-Identifier: Apache-2.0
"""Reads the manifests of this folder, as kustomize puts them together, and judges them by the Kubernetes API's own types.

The types are those of Debian's python3-kubernetes, which are generated from the API's OpenAPI document: every field's name, type
and whether it is required. What they do not know is an error here, as in an API server with strict validation. Of Prometheus'
operator, whose kind is in no package, the fields that we use are listed below, with their types.
"""

from pathlib import Path

import yaml
from kubernetes import client

FOLDER = Path(__file__).resolve().parent
PRIMITIVES = {"str": str, "int": int, "bool": bool, "float": (int, float)}
# https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PodMonitor
POD_MONITOR = {
    "selector": "V1LabelSelector",
    "podMetricsEndpoints": [{"port": "str", "path": "str", "relabelings": [{"sourceLabels": ["str"], "targetLabel": "str", "replacement": "str"}]}],
}


def documents(path: Path) -> list[dict]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def rendered(folder: Path) -> list[dict]:
    """What `kubectl kustomize FOLDER` gives, for the few fields of kustomization files that stand here; another one is an error."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    known = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "secretGenerator", "generatorOptions"}
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
    for generator in kustomization.get("secretGenerator", []):
        assert generator.keys() == {"name", "files"}
        data = dict.fromkeys(generator["files"], "")  # keys are in no tree
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": generator["name"]}, "data": data})
    for each in found if "namespace" in kustomization else []:
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
