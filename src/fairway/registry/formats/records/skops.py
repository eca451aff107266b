"""skops: scikit-learn estimators as a tree of types and arrays. Types that skops does not trust by default need consent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from fairway.errors import RefusedError
from fairway.registry.formats import zip_archive
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage, by_suffix
from fairway.registry.formats.records import skops_types, tabular_name
from fairway.state.model import ModelSignature, TensorSpec

_SCHEMA = "schema.json"
_BUILTINS = frozenset(
    {"int", "float", "str", "bool", "list", "set", "map", "tuple", "dict", "NoneType", "slice", "bytes", "type"}
)
_COLLECTIONS = frozenset({"OrderedDict", "defaultdict"})
_SHOWN = 5
_VECTORIZERS = frozenset({"CountVectorizer", "TfidfVectorizer", "HashingVectorizer"})
"""First steps of a pipeline that take texts."""


def untrusted(schema: Any) -> list[str]:
    """Return the types and functions that skops does not load by default, as far as this is known without scikit-learn."""
    names = {full for node in _nodes(schema) if (full := _named(node)) and not _is_trusted(full, str(node.get("__loader__", "")))}
    return sorted(names)


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    pending = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "__class__" in value:
                yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _named(node: dict[str, Any]) -> str:
    content = node.get("content")
    if node.get("__loader__") == "FunctionNode" and isinstance(content, dict):
        return f"{content.get('module_path')}.{content.get('function')}"
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _is_trusted(full: str, loader: str) -> bool:
    root, _, rest = full.partition(".")
    name = rest.rpartition(".")[2]
    if loader == "FunctionNode":
        return root == "numpy" and rest in skops_types.FUNCTIONS
    if root == "sklearn":
        return name in skops_types.ESTIMATORS or (name in skops_types.INTERNAL and loader != "TypeNode")
    trusted = {"builtins": _BUILTINS, "numpy": skops_types.NUMPY, "collections": _COLLECTIONS}
    return rest in trusted.get(root, ())


def _schema(name: str, path: Path) -> dict[str, Any]:
    if not zip_archive.is_archive(path):
        message = f"{name} was not written by skops.io.dump"
        raise RefusedError(message, fix="save it with skops.io.dump(model, PATH)")
    schema = zip_archive.read_json(name, path, _SCHEMA)
    if not isinstance(schema, dict):
        message = f"{name}: its {_SCHEMA} is not a JSON object"
        raise RefusedError(message, fix="save it with skops.io.dump(model, PATH)")
    return schema


def _risk(name: str, path: Path) -> LoadRisk | None:
    if PurePosixPath(name.lower()).suffix != ".skops":
        return None
    types = untrusted(_schema(name, path))
    if not types:
        return None
    more = f" and {len(types) - _SHOWN} more" if len(types) > _SHOWN else ""
    return LoadRisk(f"holds types that skops does not trust ({', '.join(types[:_SHOWN])}{more})")


def _signature(files: Files, entry: str) -> ModelSignature:
    """Return the number of features, if the model or the first step of its pipeline gives it; outputs are found on loading."""
    model = _schema(entry, files[entry])
    while _named(model) == "sklearn.pipeline.Pipeline":
        first = _steps(model)
        if not first:
            return ModelSignature()
        model = first
    if model.get("__class__") in _VECTORIZERS:
        return ModelSignature((TensorSpec(tabular_name.INPUT, "BYTES", (-1,)),))
    value = _attributes(model).get("n_features_in_")
    features = json.loads(str(value.get("content"))) if isinstance(value, dict) and value.get("is_json") else 0
    if not isinstance(features, int) or features < 1:
        return ModelSignature()
    return ModelSignature((TensorSpec(tabular_name.INPUT, "FP64", (-1, features)),))


def _attributes(model: dict[str, Any]) -> dict[str, Any]:
    content = model.get("content")
    attributes = content.get("content") if isinstance(content, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def _steps(pipeline: dict[str, Any]) -> dict[str, Any]:
    """Return the first step of a pipeline; empty if the file has another structure."""
    try:
        first = _attributes(pipeline)["steps"]["content"][0]["content"][1]
    except (KeyError, IndexError, TypeError):
        return {}
    return first if isinstance(first, dict) else {}


RECORD = ModelFormat(
    "skops",
    "a file NAME.skops",
    by_suffix(".skops"),
    _signature,
    _risk,
    loader="skops",
    packages=((RequiredPackage("sklearn", "scikit-learn"),), (RequiredPackage("skops", "skops", "0.10"),)),
)
