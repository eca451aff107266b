"""Schemas of the CustomResourceDefinitions: structural OpenAPI v3, generated from the spec models.

Structural means for Kubernetes: everything in place (no `$ref`), exactly one type per field, no alternatives. JSON Schema
constructs that break these rules are converted here, or left to the models, which validate again.
"""

from __future__ import annotations

from typing import Any

from fairway.spec.spec_model import SpecModel

GROUP = "fairway.dev"
VERSION = "v1alpha1"


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


def structural(model: type[SpecModel]) -> Schema:
    """Return the structural schema of a model, in the Kubernetes spelling."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Schema, defs: Schema) -> Schema:
    schema = _in_place(schema, defs)
    if "description" in schema:
        schema = {**schema, "description": " ".join(schema["description"].split())}  # a docstring of several lines
    if schema.get("additionalProperties") is True:
        return {**{key: schema[key] for key in ("description",) if key in schema}, **_OPEN}
    result = {key: schema[key] for key in _KEPT if key in schema}
    result.update({"nullable": True} if schema.get("nullable") else {})
    if "const" in schema:
        result["enum"] = [schema["const"]]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:
            result.update({bound: schema[exclusive], exclusive: True})
    if isinstance(schema.get("default"), str | int | float) and schema["default"] != "":
        result["default"] = schema["default"]
    if "properties" in schema:
        result["properties"] = {name: _structural(part, defs) for name, part in schema["properties"].items()}
    elif _values(schema) is not None:
        result["additionalProperties"] = _structural(_values(schema) or {}, defs)
    if "items" in schema:
        result["items"] = _structural(schema["items"], defs)
    return result


def _in_place(schema: Schema, defs: Schema) -> Schema:
    """Resolve references, and turn a null among the alternatives into `nullable`."""
    if "$ref" in schema:
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return {**_in_place(defs[schema["$ref"].removeprefix("#/$defs/")], defs), **own}
    if "anyOf" in schema:
        own = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        (alternative,) = (part for part in schema["anyOf"] if part != {"type": "null"})
        return {**_in_place(alternative, defs), **own, "nullable": True}
    return schema


def _values(schema: Schema) -> Schema | None:
    """Return the schema of a map's values. OpenAPI v3 cannot express the rule for its keys; the models check it."""
    by_pattern = list(schema.get("patternProperties", {}).values())
    values = by_pattern[0] if by_pattern else schema.get("additionalProperties")
    return values if isinstance(values, dict) else None
