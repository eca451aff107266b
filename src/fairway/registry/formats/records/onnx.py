"""ONNX: a graph and weights. It is data."""

from __future__ import annotations

from pathlib import PurePosixPath

from fairway.errors import RefusedError
from fairway.registry.formats import onnx
from fairway.registry.formats.file_content import content
from fairway.registry.formats.model_format import Files, ModelFormat, by_suffix
from fairway.registry.manifest import stays_inside
from fairway.state.model import ModelSignature


def _signature(files: Files, entry: str) -> ModelSignature:
    with content(files[entry], entry, "not an ONNX model") as model:
        signature = onnx.signature(model)
        if not signature.outputs:
            message = "its graph has no outputs"
            raise ValueError(message)
        _check_external(entry, onnx.external_files(model), files)
    return signature


def _check_external(entry: str, named: set[str], files: Files) -> None:
    parent = PurePosixPath(entry).parent
    for name in sorted(named):
        if not name or "\\" in name or not stays_inside(entry, name):
            message = f"{entry} keeps weights in {name!r}, outside of its folder, which --allow-pickle does not allow either"
            raise RefusedError(message, fix="do not use this file; save the model again with its weights beside it")
        if str(parent / name) not in files:
            message = f"{entry} keeps weights in {name!r}, which is missing"
            raise RefusedError(message, fix=f"put {name} beside {entry}")


RECORD = ModelFormat("onnx", "a file NAME.onnx", by_suffix(".onnx"), _signature, mapped=True)
