"""Folders of MLflow models: `MLmodel` names the flavours. If one of them is a format of Fairway, MLflow is not needed."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from fairway.errors import RefusedError
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage, by_name
from fairway.state.model import ModelSignature, TensorSpec

_LARGEST = 1 << 20
_CODE = "mlflow.pyfunc.model"
"""The loader of models that are Python code of their author."""
_PYTHON = "python_function"
NATIVE = {
    "onnx": ("onnx",),
    "sklearn": ("skops", "pickle"),
    "xgboost": ("xgboost", "skops", "pickle"),
    "lightgbm": ("lightgbm", "skops", "pickle"),
    "catboost": ("catboost",),
    "keras": ("keras", "savedmodel"),
    "tensorflow": ("keras", "savedmodel"),
    "pytorch": ("torch-export", "torchscript"),
    "transformers": ("transformers",),
}
"""Formats of Fairway that a flavour may be, in order of preference."""
_WORDS = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64", "string": "BYTES",
    "binary": "BYTES",
    "bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "int8": "INT8", "int16": "INT16", "int32": "INT32",
    "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "str": "BYTES",
    "object": "BYTES",
}  # fmt: skip


def read(path: Path, name: str = "MLmodel") -> dict[str, Any]:
    """Return the document; raise `RefusedError` if it is not valid."""
    if path.stat().st_size > _LARGEST:
        message = f"{name} is larger than {_LARGEST:,} bytes"
        raise RefusedError(message, fix="log the model again")
    try:
        # Only texts, lists and mappings: numbers, dates and merged mappings can take unreasonably long to construct.
        document = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)  # it constructs less than the safe one
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        message = f"{name} is not valid YAML: {' '.join(str(problem).split())[:200]}"
        raise RefusedError(message, fix="log the model again") from None
    if not isinstance(document, dict) or not isinstance(document.get("flavors"), dict):
        message = f"{name} names no flavors"
        raise RefusedError(message, fix="log the model again with mlflow.FLAVOUR.log_model")
    return document


def flavours(document: dict[str, Any]) -> list[str]:
    """Return the names of its flavours, without that of plain functions."""
    return [str(name) for name in document["flavors"] if name != _PYTHON]


def signature_of(document: dict[str, Any]) -> ModelSignature:
    """Return inputs and outputs as the document gives them; empty sides where it does not."""
    written = document.get("signature")
    if not isinstance(written, dict):
        return ModelSignature()
    return ModelSignature(_specs(written.get("inputs"), "input"), _specs(written.get("outputs"), "predict"))


def columns(files: Files) -> ModelSignature:
    """Return the columns of the data frame that a model takes, unless all are numbers: no other loader provides these."""
    if "MLmodel" not in files:
        return ModelSignature()
    inputs = signature_of(read(files["MLmodel"])).inputs
    if len(inputs) < 2 or all(spec.datatype != "BYTES" for spec in inputs):
        return ModelSignature()
    return ModelSignature(inputs)


def tensors(files: Files) -> ModelSignature:
    """Return the one tensor that a model takes, as logged; for formats that do not give it themselves."""
    inputs = signature_of(read(files["MLmodel"])).inputs if "MLmodel" in files else ()
    return ModelSignature(inputs) if len(inputs) == 1 and len(inputs[0].shape) > 1 else ModelSignature()


def _specs(written: Any, other: str) -> tuple[TensorSpec, ...]:
    try:
        specs = json.loads(written) if isinstance(written, str) else []
        return tuple(_spec(spec, f"{other}-{index}" if len(specs) > 1 else other) for index, spec in enumerate(specs))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return ()


def _spec(told: dict[str, Any], other: str) -> TensorSpec:
    name = str(told.get("name") or other)
    if told["type"] == "tensor":
        tensor = told["tensor-spec"]
        return TensorSpec(name, _WORDS[tensor["dtype"]], tuple(int(length) for length in tensor["shape"]))
    return TensorSpec(name, _WORDS[told["type"]], (-1,))


def _signature(files: Files, entry: str) -> ModelSignature:
    return signature_of(read(files[entry], entry))


def _risk(name: str, path: Path) -> LoadRisk | None:
    if PurePosixPath(name).name != "MLmodel":
        return None
    document = read(path, name)
    plain = document["flavors"].get(_PYTHON)
    loader = plain.get("loader_module") if isinstance(plain, dict) else None
    if loader and not isinstance(loader, str):
        return LoadRisk("is an MLflow model with an invalid loader name", always=True)
    if loader == _CODE or (not set(flavours(document)) & NATIVE.keys() and loader):
        return LoadRisk(f"is an MLflow model that {loader} loads", always=True)
    return None


RECORD = ModelFormat(
    "mlflow",
    "a file MLmodel that names flavours",
    by_name("MLmodel"),
    _signature,
    _risk,
    LoadRisk("is an MLflow model that only MLflow's own loader loads", always=True),
    loader="pyfunc",
    folder=True,
    packages=((RequiredPackage("mlflow", "mlflow"),),),
)
