"""Building blocks for the structural schemas of our definitions. Pure."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def whole(description: str, spec: Schema, status_: Schema, *, required: bool = True) -> Schema:
    """Return the schema of an object with a spec and a status."""
    schema: Schema = {
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status_,
        },
    }
    return {**schema, "required": ["spec"]} if required else schema


def status(own: Schema) -> Schema:
    """Return the schema of a status: these fields, those that every status has, and unknown fields allowed."""
    condition = {
        "type": text("Type of the condition."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether the condition holds."},
        "reason": text("Reason, in one word."),
        "message": text("Reason, in a sentence."),
        "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When the status last changed."},
        "observedGeneration": {"type": "integer", "format": "int64", "description": "Generation of the spec that it describes."},
    }
    return {
        "type": "object",
        "description": "Observed state; written by Fairway only.",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            **own,
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "Generation of the spec that the status describes.",
            },
            "conditions": {
                "type": "array",
                "description": "Conditions of the object.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "required": ["type", "status"], "properties": condition},
            },
        },
    }


def text(description: str) -> Schema:
    """Return the schema of a text."""
    return {"type": "string", "description": description}


def integer(description: str) -> Schema:
    """Return the schema of a whole number."""
    return {"type": "integer", "format": "int32", "description": description}


def amounts(description: str) -> Schema:
    """Return the schema of amounts by name, as text."""
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def rule(expression: str, message: str) -> Schema:
    """Return a rule over several fields. A rule that uses `oldSelf` is evaluated on updates only."""
    return {"rule": expression, "message": message}


def bound_list(holder: Schema, field: str, items: int, characters: int) -> None:
    """Bound a list of texts in `holder`: its number of items, and the characters of each item."""
    schema = holder["properties"][field]
    schema["maxItems"] = items
    schema["items"]["maxLength"] = characters


def inside(properties: Schema, path: str) -> Schema:
    """Return the sub-schema at a path such as `roles.*.env`; `*` stands for the values of a map."""
    schema: Schema = {"properties": properties}
    for name in path.split("."):
        schema = schema["additionalProperties"] if name == "*" else schema["properties"][name]
    return schema


def add_rules(holder: Schema, *rules: Schema) -> None:
    """Append rules to those that a sub-schema has."""
    holder.setdefault("x-kubernetes-validations", []).extend(rules)
