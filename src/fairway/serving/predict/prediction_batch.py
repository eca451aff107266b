"""Sizes of pieces, and conversion to the types of the model's inputs. Input that would give wrong predictions is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.serving.replica.independence_proof import prove
from fairway.serving.replica.model.datatype import DTYPES
from fairway.serving.replica.runtimes.runtime import ModelRuntime
from fairway.state.model import ModelSignature, TensorSpec
from fairway.state.serving.batching_verdict import BatchingBasis

Array = NDArray[Any]


def at_once(runtime: ModelRuntime, declared: str, batch: int) -> int:
    """Return the number of rows for one run of the model.

    That is the model's fixed batch size, 1 when rows change each other's outputs, or `batch`. `declared` is the author's setting
    for batching: `always`, `never` or `auto`.
    """
    if fixed := _fixed(runtime.signature):
        return fixed
    if declared == "always" or batch == 1 or getattr(runtime, "independent", False):
        return batch
    if declared == "never":
        sys.stderr.write("the model runs each row alone: its fairway.json disables batching\n")
        return 1
    if not runtime.batches:
        return batch
    verdict = prove(runtime, batch)
    if verdict.basis is BatchingBasis.MIXED:
        sys.stderr.write(
            f"the model runs each row alone, because rows in a batch change each other's outputs: {verdict.detail}\n"
        )
        return 1
    if not verdict.batched:
        sys.stderr.write(f"rows in a batch may change each other's outputs ({verdict.detail}); --batch 1 runs each row alone\n")
    return batch


def check_piece(signature: ModelSignature, rows: int) -> None:
    """Refuse a piece that does not fill the model's fixed batch size."""
    fixed = _fixed(signature)
    if fixed and rows != fixed:
        message = f"the model takes {fixed} rows at once, but only {rows} remain"
        raise UsageError(
            message, fix=f"make rows and --shard multiples of {fixed}, or export the model with a free first dimension"
        )


def check_outputs(signature: ModelSignature, outputs: list[Array], rows: int) -> None:
    """Refuse outputs without exactly one row for each row of input, since they could not be assigned."""
    for spec, output in zip(signature.outputs, outputs, strict=True):
        count = len(output) if output.ndim else 1
        if output.ndim == 0 or count != rows:
            message = f"the output {spec.name!r} has {count} row{'s' * (count != 1)} for {rows} rows of the data"
            raise UsageError(message, fix="use --batch 1 to run one row at a time, or export the model with one output per row")


def typed(spec: TensorSpec, array: Array) -> Array:
    """Convert values to the type of an input; raise `UsageError` if the conversion would change a value."""
    dtype = np.dtype(DTYPES[spec.datatype])
    if array.dtype == dtype:
        return array
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            converted: Array = array.astype(dtype)
    except (ValueError, TypeError, OverflowError) as problem:
        raise _lost(spec, str(problem)) from None
    if dtype.kind in "biu" and array.dtype.kind in "biufO":
        same = _same(array, converted)
        if not same.all():
            raise _lost(spec, f"the data has {array[~same].ravel()[0]!s:.40}")
    return converted


def _same(array: Array, found: Array) -> NDArray[np.bool_]:
    """Return where values are unchanged. Signs are compared too, because numpy's common type of 64-bit integers loses them."""
    if array.dtype.kind == "O":
        pairs = zip(array.ravel().tolist(), found.ravel().tolist(), strict=True)
        return np.asarray([isinstance(before, str | bytes) or before == after for before, after in pairs], bool).reshape(
            array.shape
        )
    back: Array = found.astype(array.dtype)
    return np.asarray((back == array) & ((found < 0) == (array < 0)), bool)


def _lost(spec: TensorSpec, what: str) -> UsageError:
    message = f"the input {spec.name!r} takes {spec.datatype}, but {what}"
    return UsageError(message, fix="give values of the input's type")


def _fixed(signature: ModelSignature) -> int:
    """Return the batch size for which the model is made; 0 means any."""
    lengths = {spec.shape[0] for spec in signature.inputs if spec.shape}
    return lengths.pop() if len(lengths) == 1 and min(lengths) > 0 else 0
