"""JSON Schema (draft 2020-12) of documents, from the models: for editors, for `fairway schema`, for the reference.

The Kubernetes spelling is what pydantic says of the models. The flat one adds its short forms; what it calls text may be
an unquoted number there, because the reader keeps such text as written.
"""

from __future__ import annotations

from typing import Any

from fairway.spec import flat
from fairway.spec.job import TrainingJob

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_DEFS = "#/$defs/"
_AMOUNTS = frozenset(
    {"cpu", "memory", "gpu", "gpu_memory", "shm", "timeout", "grace", "backoff", "backoff_max", "every", "logs", "record"}
)
_MAPS_OF_TEXT = frozenset({"env", "labels", "annotations"})


def json_schema() -> Schema:
    """One schema for a document in either spelling; a `metadata` or `spec` makes it the Kubernetes one."""
    flat_one, kubernetes = flat_schema(), kubernetes_schema()
    found: Schema = {
        "$schema": DIALECT,
        "title": "Fairway document",
        "type": "object",
        "required": ["kind"],
        "if": {"anyOf": [{"required": ["metadata"]}, {"required": ["spec"]}]},
        "then": {"$ref": f"{_DEFS}kubernetes"},
        "else": {"$ref": f"{_DEFS}flat"},
        "$defs": {},
    }
    for prefix, schema in (("flat", flat_one), ("kubernetes", kubernetes)):
        defs = schema.pop("$defs")
        schema.pop("$schema")
        renamed = {prefix: schema, **{f"{prefix}.{name}": part for name, part in defs.items()}}
        found["$defs"].update(_with_references(renamed, prefix))
    return found


def kubernetes_schema() -> Schema:
    """The Kubernetes spelling: one type a field."""
    schema = _tidied(TrainingJob.model_json_schema(by_alias=True))
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return {"$schema": DIALECT, "title": "TrainingJob, Kubernetes spelling", **schema}


def flat_schema() -> Schema:
    """The flat spelling, with all its short forms."""
    schema = _tidied(TrainingJob.model_json_schema(by_alias=False))
    defs: Schema = {name: _with_numbers(part) for name, part in schema["$defs"].items()}
    _add_short_forms(defs)
    spec, metadata, role = (defs.pop(name) for name in ("JobSpec", "Metadata", "Role"))
    defs["Role"] = role
    shorthand = {name: role["properties"][name] for name in flat.SHORTHAND}
    head = {"kind": schema["properties"]["kind"], "apiVersion": schema["properties"]["api_version"]}
    return {
        "$schema": DIALECT,
        "title": "TrainingJob, flat spelling",
        "description": "A training job document in the flat spelling.",
        "type": "object",
        "properties": {**head, **metadata["properties"], **spec["properties"], **shorthand},
        "required": ["kind", "name"],
        "anyOf": [{"required": [name]} for name in ("roles", "command", "script")],
        "additionalProperties": False,
        "$defs": defs,
    }


def _add_short_forms(defs: Schema) -> None:
    role, resources, code = defs["Role"]["properties"], defs["Resources"], defs["Code"]
    for part, short in ((role["command"], {"type": "string"}), (role["processes"], {"const": "auto"})):
        part.update(_either(short, _taken(part, "type", "items", "minimum", "maximum")))
    resources["additionalProperties"] = {"type": "integer", "minimum": 0, "description": "Any countable resource by name."}
    resources["properties"]["gpu"]["pattern"] = r"^([A-Za-z0-9._-]+:)?([0-9]+(\.[0-9]+)?|\.[0-9]+)[mk]?$"
    for part in (resources["properties"]["gpu_type"], *(defs["Placement"]["properties"][name] for name in ("nodes", "devices"))):
        part.update(_either({"type": "string"}, _taken(part, "type", "items")))
    secrets = defs["JobSpec"]["properties"]["secrets"]
    secrets.update(_either(secrets["items"], _taken(secrets, "type", "items")))
    code["properties"]["git"].update(_either({"type": "string"}, {"$ref": code["properties"]["git"].pop("$ref")}))
    code["properties"]["ref"] = {"description": "Branch, tag or commit of `git`.", **_TEXT}
    counts = defs["Replicas"]["properties"]["max"]
    for name, short in (
        ("Code", {"type": "string", "description": "A folder."}),
        ("Environment", {"type": "string", "description": "An interpreter or a virtual environment's folder."}),
        ("TensorBoard", {"type": "string", "description": "A folder with event files."}),
        ("Checkpoint", defs["Checkpoint"]["properties"]["every"]),
        ("Restart", defs["Restart"]["properties"]["max"]),
        ("Replicas", {**{key: value for key, value in counts.items() if key != "default"}, "description": "Exactly so many."}),
    ):
        defs[name] = {"description": defs[name]["description"], **_either(short, defs[name])}


_TEXT: Schema = {"type": ["string", "number"]}


def _either(*choices: Schema) -> Schema:
    return {"anyOf": list(choices)}


def _taken(schema: Schema, *names: str) -> Schema:
    return {name: schema.pop(name) for name in names if name in schema}


def _with_numbers(schema: Schema) -> Schema:
    """Amounts and variables may be written without quotes in the flat spelling."""
    for name, part in schema.get("properties", {}).items():
        if name in _AMOUNTS and part.get("type") == "string":
            part["type"] = ["string", "number"]
        if name in _MAPS_OF_TEXT:
            for inner in (*part.get("patternProperties", {}).values(), part.get("additionalProperties")):
                if isinstance(inner, dict):
                    inner["type"] = ["string", "number", "boolean", "null"]
    return schema


def _tidied(schema: Schema) -> Schema:
    """Without what says nothing: titles, nulls, defaults that only repeat the defaults below them."""
    found: Schema = {}
    for key, value in schema.items():
        if key == "anyOf" and {"type": "null"} in value:
            found.update(_tidied(next(part for part in value if part != {"type": "null"})))
        elif key in ("properties", "$defs", "patternProperties"):
            found[key] = {name: _tidied(part) for name, part in value.items()}
        elif not _says_nothing(key, value):
            found[key] = _tidied(value) if isinstance(value, dict) else value
    if "patternProperties" in found:
        found["additionalProperties"] = False
    return found


def _says_nothing(key: str, value: object) -> bool:
    return key == "title" or (key == "default" and (value is None or value == "" or isinstance(value, dict | list)))


def _with_references(schema: Any, prefix: str) -> Any:
    if isinstance(schema, dict):
        return {
            key: value.replace(_DEFS, f"{_DEFS}{prefix}.") if key == "$ref" else _with_references(value, prefix)
            for key, value in schema.items()
        }
    return [_with_references(item, prefix) for item in schema] if isinstance(schema, list) else schema
