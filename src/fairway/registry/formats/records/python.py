"""A Python class in `model.py`: code, which is used only if it is requested by name."""

from __future__ import annotations

import ast

from fairway.errors import RefusedError
from fairway.registry.formats.model_format import Files, ModelFormat
from fairway.state.model import ModelSignature

CLASS = "Model"
MODULE = "model.py"


def _check(files: Files, name: str) -> ModelSignature:
    try:
        tree = ast.parse(files[name].read_bytes())
    except (SyntaxError, ValueError) as problem:
        message = f"{name} is not valid Python: {problem}"
        raise RefusedError(message, fix="correct it") from None
    if not any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body):
        message = f"{name} has no class {CLASS}"
        raise RefusedError(message, fix=f"define `class {CLASS}` at its top level")
    return ModelSignature()


RECORD = ModelFormat(
    "python",
    f"a file {MODULE} with a class {CLASS}",
    lambda files: [MODULE] if MODULE in files else [],
    _check,
    loader="python",
    named_only=True,
)
