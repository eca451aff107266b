"""Special requests: those without rows, and those with a timeout set by the client."""

from __future__ import annotations

import math
import time

import numpy as np

from fairway.serving.replica.batching.batcher import Batcher, Finish, Outputs
from fairway.serving.replica.model.datatype import DTYPES, Array, of_texts
from fairway.serving.replica.model.served_model import InferenceRequest, ServedModel
from fairway.serving.replica.request_error import RequestError
from fairway.state.model import TensorSpec

_MOST_PROBED = 1 << 20
"""Maximum elements of a row that is run only to learn the shapes of the outputs."""


def submit_special(
    batcher: Batcher, model: ServedModel, question: InferenceRequest, finish: Finish, arrived: float = 0.0
) -> None:
    """Submit a request that has no rows or a timeout. `arrived`: by `time.perf_counter`; 0 is now."""
    if question.timeout:
        finish = _in_time(batcher, question, finish, arrived)
    if question.rows:
        batcher.submit(question.inputs, question.rows, finish, arrived)
    else:
        _without_rows(batcher, model, question, finish)


def _in_time(batcher: Batcher, question: InferenceRequest, finish: Finish, arrived: float) -> Finish:
    """Return a `finish` that gives 429 when the answer is late.

    Raises 429 at once, before any work is done, when the answer is expected to be late.
    """
    timeout = question.timeout
    if batcher.waiting and (wait := batcher.estimate(question.rows)) > timeout:
        message = f"the answer would take about {wait:.3g} s, longer than the timeout of {timeout:g} s that the request has"
        raise RequestError(429, message, fix="try again later, or allow more time", retry_after=wait)
    end = (arrived or time.perf_counter()) + timeout

    def finish_in_time(found: Outputs | RequestError) -> None:
        if not isinstance(found, RequestError) and time.perf_counter() > end:
            message = f"the answer took longer than the timeout of {timeout:g} s that the request has"
            found = RequestError(429, message, fix="try again later, or allow more time", retry_after=1.0)
        finish(found)

    return finish_in_time


def _without_rows(batcher: Batcher, model: ServedModel, question: InferenceRequest, finish: Finish) -> None:
    """Answer a request without rows with empty outputs.

    Shapes that the signature leaves open are learnt by running one row of zeros.
    """
    outputs = model.signature.outputs
    shapes = [array.shape[1:] for array in question.inputs]
    shapes_known = all(length >= 0 for spec in outputs for length in spec.shape[1:])
    if shapes_known or sum(math.prod(shape) for shape in shapes) > _MOST_PROBED:
        finish([_empty(spec, tuple(max(0, length) for length in spec.shape[1:])) for spec in outputs])
        return

    def finish_without_rows(found: Outputs | RequestError) -> None:
        if isinstance(found, RequestError):
            finish([_empty(spec, tuple(max(0, length) for length in spec.shape[1:])) for spec in outputs])
        else:
            finish([array[:0] for array in found])

    row = [_zeros(spec, shape) for spec, shape in zip(model.signature.inputs, shapes, strict=True)]
    batcher.submit(row, 1, finish_without_rows)


def _empty(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    return np.empty((0, *shape), DTYPES[spec.datatype])


def _zeros(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    if spec.datatype == "BYTES":
        return of_texts([b""] * math.prod(shape)).reshape((1, *shape))
    return np.zeros((1, *shape), DTYPES[spec.datatype])
