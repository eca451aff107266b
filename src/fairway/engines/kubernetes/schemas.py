"""Pieces of structural schemas that our definitions are made of. Pure."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def whole(description: str, spec: Schema, status_: Schema, *, required: bool = True) -> Schema:
    """The schema of an object with a spec and a status."""
    made: Schema = {
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
    return {**made, "required": ["spec"]} if required else made


def status(own: Schema) -> Schema:
    """A status: these fields, what every status has, and room for more."""
    condition = {
        "type": text("What is told."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it is so."},
        "reason": text("Why, in one word."),
        "message": text("Why, in a sentence."),
        "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Since when."},
        "observedGeneration": {"type": "integer", "format": "int64", "description": "Of which spec."},
    }
    return {
        "type": "object",
        "description": "What is; written by Fairway only.",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            **own,
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The spec that this is the status of."},
            "conditions": {
                "type": "array",
                "description": "What is so, what is not, and since when.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "required": ["type", "status"], "properties": condition},
            },
        },
    }


def text(description: str) -> Schema:
    """A text."""
    return {"type": "string", "description": description}


def integer(description: str) -> Schema:
    """A whole number."""
    return {"type": "integer", "format": "int32", "description": description}


def amounts(description: str) -> Schema:
    """Amounts by name, as text."""
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def rule(expression: str, message: str) -> Schema:
    """A rule over several fields. One that speaks of `oldSelf` is asked when something changes."""
    return {"rule": expression, "message": message}


def bound_list(holder: Schema, field: str, items: int, characters: int) -> None:
    """So many texts at most in a list of `holder`, each so long at most."""
    found = holder["properties"][field]
    found["maxItems"] = items
    found["items"]["maxLength"] = characters


def inside(properties: Schema, path: str) -> Schema:
    """The part at `roles.*.env` of these properties; `*` is what a map holds."""
    found: Schema = {"properties": properties}
    for name in path.split("."):
        found = found["additionalProperties"] if name == "*" else found["properties"][name]
    return found


def add_rules(holder: Schema, *rules: Schema) -> None:
    """More rules for a part, behind those that it has."""
    holder.setdefault("x-kubernetes-validations", []).extend(rules)
