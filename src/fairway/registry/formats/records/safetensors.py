"""Safetensors: weights alone, which is data. The registry keeps them; serving them takes a command."""

from __future__ import annotations

import json
from pathlib import Path

from fairway.errors import RefusedError
from fairway.registry.formats.model_format import Files, ModelFormat, by_suffix
from fairway.state.model import ModelSignature

_NOTES = "__metadata__"
_LARGEST_HEADER = 100_000_000
"""Limit on the bytes of a header, as in other readers of safetensors."""


def check(path: Path, name: str) -> None:
    """Refuse a file that is not safetensors, or lacks some of its weights."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if size > 8 and length <= min(size - 8, _LARGEST_HEADER) else b""
    end = _end(header)
    if end is None:
        message = f"{name} is not a safetensors file"
        raise RefusedError(message, fix="save the weights again")
    if end > size - 8 - length:
        message = f"{name} is cut short: it has {size - 8 - length} of {end} bytes of weights"
        raise RefusedError(message, fix="copy or download it again")


def _end(header: bytes) -> int | None:
    """Return the offset at which the last tensor ends; None if this is no header."""
    try:
        tensors = json.loads(header)
        return max((int(tensor["data_offsets"][1]) for name, tensor in tensors.items() if name != _NOTES), default=0)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None


def _check(files: Files, name: str) -> ModelSignature:
    check(files[name], name)
    return ModelSignature()


RECORD = ModelFormat("safetensors", "a file NAME.safetensors", by_suffix(".safetensors"), _check, many=True)
