"""Manifests of configs/k8s and the schemas that they are held against."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs" / "k8s"
CRDS = Path(__file__).parent / "crds"
Manifest = dict[str, Any]


def manifests(name: str = "*") -> list[Manifest]:
    """All documents of the files of that name."""
    files = sorted(FOLDER.glob(f"{name}.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def closed(schema: Any) -> Any:  # noqa: ANN401 - a JSON schema
    """A structural schema as JSON schema that refuses unknown fields, as `kubectl --validate=strict` does."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(value) for name, value in schema.items() if not name.startswith("x-kubernetes")}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_ended:
        made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


@cache
def validator(kind: str) -> Draft202012Validator:
    """Holds a RayCluster, RayJob or CiliumNetworkPolicy against its closed schema."""
    if kind == "CiliumNetworkPolicy":
        return Draft202012Validator(json.loads((CRDS / "ciliumnetworkpolicy.json").read_text()))
    raw = json.loads(gzip.decompress((CRDS / f"{kind.lower()}.v1.json.gz").read_bytes()))
    made: Manifest = closed(raw)
    made["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(made)
