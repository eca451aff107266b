"""The CustomResourceDefinitions of the documents: a structural OpenAPI v3 schema from the same models.

Structural means for Kubernetes: everything in place (no `$ref`), exactly one type a field, no alternatives. What JSON Schema
says otherwise is said its way here, or left to the models, which check again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairway.spec.job import JobSpec
from fairway.spec.kinds import KINDS
from fairway.spec.model import SpecModel
from fairway.spec.queue import QueueSpec
from fairway.spec.service import ServiceSpec

GROUP = "fairway.dev"
VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class _Looks:
    """How one kind shows on a cluster."""

    spec: type[SpecModel]
    plural: str
    short: str
    scope: str
    columns: tuple[tuple[str, str], ...]
    selectable: tuple[str, ...] = ()


_LOOKS = {
    "TrainingJob": _Looks(
        JobSpec,
        "trainingjobs",
        "tj",
        "Namespaced",
        (("Phase", ".status.phase"), ("Queue", ".spec.queue"), ("Reason", ".status.reason")),
        (".spec.queue",),
    ),
    "JobQueue": _Looks(
        QueueSpec,
        "jobqueues",
        "jq",
        "Cluster",
        (("Weight", ".spec.weight"), ("Running", ".status.running"), ("Waiting", ".status.waiting")),
    ),
    "ModelService": _Looks(
        ServiceSpec,
        "modelservices",
        "ms",
        "Namespaced",
        (("Model", ".status.model"), ("Ready", ".status.ready"), ("Rollout", ".status.rollout"), ("URL", ".status.url")),
        (".spec.queue",),
    ),
}

_KEPT = (
    "type",
    "description",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "required",
)
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Schema = dict[str, Any]


def crds() -> list[Schema]:
    """The definitions of every kind, ready to be applied."""
    return [crd(kind) for kind in KINDS]


def crd(kind: str = "TrainingJob") -> Schema:
    """The definition of one kind, ready to be applied."""
    looks = _LOOKS[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{looks.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": looks.scope,
            "names": {
                "kind": kind,
                "plural": looks.plural,
                "singular": kind.lower(),
                "shortNames": [looks.short],
                "categories": ["fairway"],
            },
            "versions": [_version(kind, looks)],
        },
    }


def _version(kind: str, looks: _Looks) -> Schema:
    shown = [{"name": name, "type": "string", "jsonPath": path} for name, path in looks.columns]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        **({"selectableFields": [{"jsonPath": path} for path in looks.selectable]} if looks.selectable else {}),
        "additionalPrinterColumns": [*shown, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
        "schema": {"openAPIV3Schema": open_api_schema(kind)},
    }


def open_api_schema(kind: str = "TrainingJob") -> Schema:
    """The structural schema of the whole object."""
    given = _LOOKS[kind].spec.model_json_schema(by_alias=True)
    return {
        "type": "object",
        "description": KINDS[kind].__doc__,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(given, given["$defs"]),
            "status": {"description": "What is; written by Fairway only.", **_OPEN},
        },
    }


def _structural(schema: Schema, defs: Schema) -> Schema:
    schema = _in_place(schema, defs)
    if schema.get("additionalProperties") is True:
        return {**{key: schema[key] for key in ("description",) if key in schema}, **_OPEN}
    found = {key: schema[key] for key in _KEPT if key in schema}
    found.update({"nullable": True} if schema.get("nullable") else {})
    if "const" in schema:
        found["enum"] = [schema["const"]]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:
            found.update({bound: schema[exclusive], exclusive: True})
    if isinstance(schema.get("default"), str | int | float) and schema["default"] != "":
        found["default"] = schema["default"]
    if "properties" in schema:
        found["properties"] = {name: _structural(part, defs) for name, part in schema["properties"].items()}
    elif _values(schema) is not None:
        found["additionalProperties"] = _structural(_values(schema) or {}, defs)
    if "items" in schema:
        found["items"] = _structural(schema["items"], defs)
    return found


def _in_place(schema: Schema, defs: Schema) -> Schema:
    """References followed, and a null among the alternatives said as `nullable`."""
    if "$ref" in schema:
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return {**_in_place(defs[schema["$ref"].removeprefix("#/$defs/")], defs), **own}
    if "anyOf" in schema:
        own = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        (one,) = (part for part in schema["anyOf"] if part != {"type": "null"})
        return {**_in_place(one, defs), **own, "nullable": True}
    return schema


def _values(schema: Schema) -> Schema | None:
    """What a map holds. The rule for its keys has no words in OpenAPI v3; the models check it."""
    by_pattern = list(schema.get("patternProperties", {}).values())
    found = by_pattern[0] if by_pattern else schema.get("additionalProperties")
    return found if isinstance(found, dict) else None
