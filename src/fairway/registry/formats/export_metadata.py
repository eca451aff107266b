"""`fairway.json`: what `fairway.runtime.export` records about the model beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from fairway.errors import RefusedError
from fairway.state.model import ModelSignature, TensorSpec

NAME = "fairway.json"
_LARGEST = 1 << 20
DATATYPES = frozenset(
    {
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "FP32", "FP64", "BF16", "BYTES",
    }
)  # fmt: skip
"""The datatypes of the Open Inference Protocol."""


class _ExportedTensor(msgspec.Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...] = ()


class _ExportedSignature(msgspec.Struct, frozen=True):
    inputs: tuple[_ExportedTensor, ...] = ()
    outputs: tuple[_ExportedTensor, ...] = ()


class ExportMetadata(msgspec.Struct, frozen=True):
    """The file's content. Unknown keys are ignored here: other programs may read them."""

    format: str = ""
    entry: str = ""
    """The model's file, relative to the top of the folder."""
    signature: _ExportedSignature = _ExportedSignature()
    metrics: dict[str, float] = {}
    generates: bool = False
    batching: Literal["auto", "always", "never"] = "auto"
    """Whether rows of several requests may run together; read by the server."""

    def as_signature(self) -> ModelSignature:
        """Return the signature in the form that the registry stores."""
        return ModelSignature(_specs(self.signature.inputs), _specs(self.signature.outputs))


def read(path: Path) -> ExportMetadata:
    """Read and check the file; `RefusedError` names what is wrong with it."""
    if path.stat().st_size > _LARGEST:
        raise wrong(f"it is larger than {_LARGEST:,} bytes")
    try:
        about = msgspec.json.decode(path.read_bytes(), type=ExportMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise wrong(str(problem)) from None
    for tensor in (*about.signature.inputs, *about.signature.outputs):
        if tensor.datatype not in DATATYPES:
            raise wrong(f"the datatype of {tensor.name!r} is {tensor.datatype!r}, not one of {', '.join(sorted(DATATYPES))}")
        if any(length < -1 for length in tensor.shape):
            raise wrong(f"the shape of {tensor.name!r} is {list(tensor.shape)}; a length is -1 (any), 0 or more")
    non_finite = [name for name, value in about.metrics.items() if not math.isfinite(value)]
    if non_finite:
        raise wrong(f"the metric {non_finite[0]!r} is not a finite number")
    return about


def _specs(tensors: tuple[_ExportedTensor, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(tensor.name, tensor.datatype, tensor.shape) for tensor in tensors)


def wrong(what: str) -> RefusedError:
    """Return the refusal that names what is wrong with the file."""
    return RefusedError(f"{NAME} is wrong: {what}", fix="correct it, or leave it out: the format is then detected from the files")
