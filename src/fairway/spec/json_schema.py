"""JSON Schema (draft 2020-12) of documents, generated from the models: for editors, for `fairway schema`, for the reference.

The schema of the Kubernetes spelling is pydantic's. The flat one adds the short forms. Fields of type text may be unquoted
numbers there, because the reader keeps such text as written.
"""

from __future__ import annotations

from typing import Any

from fairway.spec import field
from fairway.spec.kind import KINDS
from fairway.spec.text import flat_spelling

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_DEFS = "#/$defs/"
_AMOUNTS = frozenset(
    {"cpu", "memory", "gpu", "gpu_share", "gpu_memory", "shm", "timeout", "grace", "backoff", "backoff_max", "every"}
    | {"logs", "record", "weight", "time_slice", "p95", "hold", "idle", "deadline", "ready", "for", "slower"}
    | {
        "utilisation",
        "rate",
        "to",
        "errors",
        "client_errors",
        "non_finite",
        "leak",
        "differ",
        "tolerance",
        "classes",
        "confidence",
    }
    | {"max_age"}
)
_MAPS_OF_AMOUNTS = frozenset({"gpu_types"})
_CORS_LISTS = ("origins", "methods", "headers")
_MAPS_OF_TEXT = frozenset({"env", "labels", "annotations"})


def json_schema() -> Schema:
    """Return one schema for documents of any kind in either spelling.

    A document with `metadata` or `spec` is validated as the Kubernetes one.
    """
    result: Schema = {
        "$schema": DIALECT,
        "title": "Fairway document",
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"description": "What the document describes.", "enum": list(KINDS)}},
        "allOf": [_when_kind(kind) for kind in KINDS],
        "$defs": {},
    }
    for kind in KINDS:
        for prefix, schema in ((f"{kind}.flat", flat_schema(kind)), (f"{kind}.kubernetes", kubernetes_schema(kind))):
            defs = schema.pop("$defs")
            schema.pop("$schema")
            renamed = {prefix: schema, **{f"{prefix}.{name}": part for name, part in defs.items()}}
            result["$defs"].update(_with_references(renamed, prefix))
    return result


def _when_kind(kind: str) -> Schema:
    return {
        "if": {"properties": {"kind": {"const": kind}}},
        "then": {
            "if": {"anyOf": [{"required": ["metadata"]}, {"required": ["spec"]}]},
            "then": {"$ref": f"{_DEFS}{kind}.kubernetes"},
            "else": {"$ref": f"{_DEFS}{kind}.flat"},
        },
    }


def kubernetes_schema(kind: str = "TrainingJob") -> Schema:
    """Return the schema of the Kubernetes spelling: one type per field."""
    schema = _tidied(KINDS[kind].model_json_schema(by_alias=True))
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return {"$schema": DIALECT, "title": f"{kind}, Kubernetes spelling", **schema}


def flat_schema(kind: str = "TrainingJob") -> Schema:
    """Return the schema of the flat spelling, with all its short forms."""
    schema = _tidied(KINDS[kind].model_json_schema(by_alias=False))
    defs: Schema = {name: _with_numbers(_with_flat_names(part)) for name, part in schema["$defs"].items()}
    head = {"kind": schema["properties"]["kind"], "apiVersion": schema["properties"]["api_version"]}
    return {
        "$schema": DIALECT,
        "title": f"{kind}, flat spelling",
        "description": str(schema["description"]).replace("Kubernetes", "flat"),
        "type": "object",
        **_FLAT[kind](defs, head),
        "additionalProperties": False,
        "$defs": defs,
    }


def _flat_job(defs: Schema, head: Schema) -> Schema:
    _add_short_forms(defs)
    spec, metadata, role = (defs.pop(name) for name in ("JobSpec", "DocumentMetadata", "TaskRole"))
    defs["TaskRole"] = role
    shorthand = {name: role["properties"][name] for name in flat_spelling.SHORTHAND}
    return {
        "properties": {**head, **metadata["properties"], **spec["properties"], **shorthand},
        "required": ["kind", "name"],
        "anyOf": [{"required": [name]} for name in ("roles", "command", "script")],
    }


def _flat_queue(defs: Schema, head: Schema) -> Schema:
    for name in ("ResourceQuota", "UserLimits"):
        defs[name]["additionalProperties"] = _COUNTED
        properties = defs[name]["properties"]
        properties["gpu"]["pattern"] = _GPUS
        properties["gpu"].update(
            _either(_taken(properties["gpu"], "type", "pattern"), _without(properties["gpu_types"], "description"))
        )
    spec, metadata = (defs.pop(name) for name in ("QueueSpec", "QueueMetadata"))
    members = spec["properties"]["members"]
    members.update(_either(members["items"], _taken(members, "type", "items", "minItems")))
    return {"properties": {**head, **metadata["properties"], **spec["properties"]}, "required": ["kind", "name"]}


def _flat_service(defs: Schema, head: Schema) -> Schema:
    properties = defs["ServiceSpec"]["properties"]
    properties["command"].update(_either({"type": "string"}, _taken(properties["command"], "type", "items")))
    _add_common_short_forms(defs, properties)
    for part, name in (
        ("ServiceEndpoint", "hosts"),
        ("ServiceEndpoint", "open_paths"),
        *(("EndpointCors", cors_list) for cors_list in _CORS_LISTS),
    ):
        listed = defs[part]["properties"][name]
        listed.update(_either(listed["items"], _taken(listed, "type", "items", "minItems", "maxItems")))
    maximum = _without(defs["ServiceReplicas"]["properties"]["max"], "default")
    for name, short in (
        ("ServiceReplicas", {**maximum, "description": "Exact number of replicas."}),
        ("ServiceObjective", defs["ServiceObjective"]["properties"]["p95"]),
        ("SamplingPolicy", defs["SamplingPolicy"]["properties"]["rate"]),
        ("RolloutPolicy", defs["RolloutPolicy"]["properties"]["strategy"]),
        ("RolloutStep", defs["RolloutStep"]["properties"]["to"]),
        ("MetricGuard", defs["MetricGuard"]["properties"]["name"]),
        ("OutputsGuard", defs["OutputsGuard"]["properties"]["differ"]),
        ("ServiceEndpoint", defs["ServiceEndpoint"]["properties"]["bind"]),
        ("EndpointTls", _without(defs["EndpointTls"]["properties"]["mode"], "default")),
    ):
        defs[name] = {"description": defs[name]["description"], **_either(short, defs[name])}
    spec, metadata = (defs.pop(name) for name in ("ServiceSpec", "DocumentMetadata"))
    return {
        "properties": {**head, **metadata["properties"], **spec["properties"]},
        "required": ["kind", "name"],
        "anyOf": [{"required": [name]} for name in ("model", "command")],
    }


_FLAT = {"TrainingJob": _flat_job, "JobQueue": _flat_queue, "ModelService": _flat_service}


def _add_short_forms(defs: Schema) -> None:
    role = defs["TaskRole"]["properties"]
    for part, short in ((role["command"], {"type": "string"}), (role["processes"], {"const": "auto"})):
        part.update(_either(short, _taken(part, "type", "items", "minimum", "maximum")))
    _add_common_short_forms(defs, defs["JobSpec"]["properties"])
    counts = defs["RoleReplicas"]["properties"]["max"]
    for name, short in (
        ("TensorBoardSource", {"type": "string", "description": "A folder with event files."}),
        ("CheckpointPolicy", defs["CheckpointPolicy"]["properties"]["every"]),
        ("RestartPolicy", defs["RestartPolicy"]["properties"]["max"]),
        ("RoleReplicas", {**_without(counts, "default"), "description": "Exact number of replicas."}),
    ):
        defs[name] = {"description": defs[name]["description"], **_either(short, defs[name])}


def _add_common_short_forms(defs: Schema, own: Schema) -> None:
    resources, code = defs["ResourceAmounts"], defs["CodeSource"]
    resources["additionalProperties"] = _COUNTED
    resources["properties"]["gpu"]["pattern"] = _GPUS
    lists = [defs["PlacementConstraints"]["properties"][name] for name in ("nodes", "devices", "tolerations")]
    for part in (resources["properties"]["gpu_type"], *lists):
        part.update(_either({"type": "string"}, _taken(part, "type", "items")))
    secrets = own["secrets"]
    secrets.update(_either(secrets["items"], _taken(secrets, "type", "items")))
    code["properties"]["git"].update(_either({"type": "string"}, {"$ref": code["properties"]["git"].pop("$ref")}))
    code["properties"]["ref"] = {"description": "Branch, tag or commit of `git`.", **_TEXT}
    for name, short in (
        ("CodeSource", {"type": "string", "description": "A folder."}),
        ("RuntimeEnvironment", {"type": "string", "description": "An interpreter or a virtual environment's folder."}),
    ):
        defs[name] = {"description": defs[name]["description"], **_either(short, defs[name])}


_TEXT: Schema = {"type": ["string", "number"]}
_COUNTED: Schema = {"type": "integer", "minimum": 0, "description": "Any countable resource by name."}
_GPUS = r"^([A-Za-z0-9._-]+:)?([0-9]+(\.[0-9]+)?|\.[0-9]+)[mk]?$"


def _either(*choices: Schema) -> Schema:
    return {"anyOf": list(choices)}


def _without(schema: Schema, *names: str) -> Schema:
    return {name: part for name, part in schema.items() if name not in names}


def _taken(schema: Schema, *names: str) -> Schema:
    return {name: schema.pop(name) for name in names if name in schema}


def _with_flat_names(schema: Schema) -> Schema:
    own = schema.get("properties")
    return {**schema, "properties": {field.flat_name(name): part for name, part in own.items()}} if own else schema


def _with_numbers(schema: Schema) -> Schema:
    """Allow unquoted numbers for amounts and variables, as the flat spelling does."""
    for name, part in schema.get("properties", {}).items():
        if name in _AMOUNTS and part.get("type") == "string":
            part["type"] = ["string", "number"]
        if name in _MAPS_OF_AMOUNTS:
            for inner in (*part.get("patternProperties", {}).values(), part.get("additionalProperties")):
                if isinstance(inner, dict):
                    inner["type"] = ["string", "number"]
        if name in _MAPS_OF_TEXT:
            for inner in (*part.get("patternProperties", {}).values(), part.get("additionalProperties")):
                if isinstance(inner, dict):
                    inner["type"] = ["string", "number", "boolean", "null"]
    return schema


def _tidied(schema: Schema) -> Schema:
    """Remove redundant parts: titles, nulls, and defaults that only repeat the defaults of nested fields."""
    result: Schema = {}
    for key, value in schema.items():
        if key == "anyOf" and {"type": "null"} in value:
            result.update(_tidied(next(part for part in value if part != {"type": "null"})))
        elif key in ("properties", "$defs", "patternProperties"):
            result[key] = {name: _tidied(part) for name, part in value.items()}
        elif not _says_nothing(key, value):
            result[key] = _tidied(value) if isinstance(value, dict) else value
    if "patternProperties" in result:
        result["additionalProperties"] = False
    return result


def _says_nothing(key: str, value: object) -> bool:
    return key == "title" or (key == "default" and (value is None or value == "" or isinstance(value, dict | list)))


def _with_references(schema: Any, prefix: str) -> Any:
    if isinstance(schema, dict):
        return {
            key: value.replace(_DEFS, f"{_DEFS}{prefix}.") if key == "$ref" else _with_references(value, prefix)
            for key, value in schema.items()
        }
    return [_with_references(item, prefix) for item in schema] if isinstance(schema, list) else schema
