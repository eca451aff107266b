"""The schemas of CustomResourceDefinitions: structural OpenAPI v3, from the same models as everything else.

Structural means for Kubernetes: everything in place (no `$ref`), exactly one type a field, no alternatives. What JSON Schema
says otherwise is said its way here, or left to the models, which check again.
"""

from __future__ import annotations

from typing import Any

from fairway.spec.model import SpecModel

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
    """The structural schema of a model, in the Kubernetes spelling."""
    given = model.model_json_schema(by_alias=True)
    return _structural(given, given.get("$defs", {}))


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
