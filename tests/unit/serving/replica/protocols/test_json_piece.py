"""Large JSON decoded in steps: the same results as at once, for any content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from small_models import served, signature

from fairway.serving.replica.model.served_model import InferenceRequest
from fairway.serving.replica.protocols import json_piece, json_tensor, tfserving_row
from fairway.serving.replica.protocols.json_piece import cut, finish
from fairway.serving.replica.protocols.open_inference import OpenInferenceCodec
from fairway.serving.replica.protocols.tfserving import TfClassifyCodec, TfPredictCodec
from fairway.serving.replica.request_error import RequestError

ONE = served(signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, 3])))
WHOLE = served(signature(x=("INT64", [-1]), out_y=("FP32", [-1, 3])))
TEXT = served(signature(t=("BYTES", [-1]), out_y=("FP32", [-1, 3])))
TEXTS = served(signature(t=("BYTES", [-1, -1]), out_y=("FP32", [-1, 3])))
TWO = served(signature(a=("INT32", [-1]), t=("BYTES", [-1]), out_y=("FP32", [-1, 3])))
TINY = 48
"""Bytes per piece: small, but larger than any number with the space around it, since longer numbers are refused."""
MODELS = {"one": ONE, "whole": WHOLE, "text": TEXT, "texts": TEXTS, "two": TWO}


@pytest.fixture(scope="module")
def tiny() -> Iterator[None]:
    """Use pieces of a few bytes, so that small examples have many."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (json_piece, tfserving_row, json_tensor):
            patch.setattr(module, "PIECE", TINY)
        yield


nested = some.recursive(
    some.one_of(
        some.integers(-300, 300), some.floats(allow_nan=False, allow_infinity=False), some.booleans(), some.none(),
        some.text(alphabet='a",\\[]{}:\u00e9\U0001f600 \n', max_size=20),
    ),
    lambda inner: some.one_of(some.lists(inner, max_size=5), some.dictionaries(some.sampled_from('ax,"\\'), inner)),
    max_leaves=20,
)  # fmt: skip


@given(some.lists(nested, max_size=8), some.sampled_from([None, 1]), some.booleans())
def test_pieces_are_the_elements(tiny: None, elements: list[Any], indent: int | None, ascii_: bool) -> None:
    text = json.dumps(elements, indent=indent, ensure_ascii=ascii_).encode()
    found = []
    for piece, alone in cut(memoryview(text)):
        part = json.loads(b"[%b]" % bytes(piece))
        assert len(part) == 1 if alone else len(piece) <= TINY
        found += part
    assert found == elements


@given(some.binary(max_size=60))
def test_what_is_no_json_is_cut_too(tiny: None, text: bytes) -> None:
    parts = [bytes(piece) for piece, _ in cut(memoryview(b"[" + text + b"]"))]
    assert sum(map(len, parts)) + len(parts) - 1 <= max(len(text), 0)


def outcome(read: Any, *arguments: Any) -> Any:
    """Return what a reader returns, for comparison; the status if it refuses."""
    try:
        question: InferenceRequest = read(*arguments)
    except RequestError as error:
        return error.status
    return (
        [(each.dtype, each.shape, each.tolist()) for each in question.inputs],
        question.rows,
        question.wanted,
        question.columnar,
    )


leaves = some.one_of(
    some.integers(-300, 300),
    some.floats(-1e6, 1e6),
    some.text(alphabet='ab",[\\', max_size=20),
    some.just({"b64": "AAAAAAAAAAAA"}),
)


@some.composite
def tensors(draw: some.DrawFn, leaf: some.SearchStrategy[Any]) -> Any:
    """Draw nested lists, mostly with equal lengths."""
    shape = draw(some.lists(some.integers(0, 5), min_size=1, max_size=3))
    value = draw(some.lists(leaf, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    if draw(some.booleans()):
        for length in reversed(shape[1:]):
            value = [value[at : at + length] for at in range(0, len(value), length or 1)]
    if value and draw(some.integers(0, 5)) == 0:
        value[draw(some.integers(0, len(value) - 1))] = draw(nested)
    return value, shape


some_tensor = some.sampled_from([some.integers(-9, 300), some.floats(-9, 9), some.text('a",\\', max_size=20), leaves]).flatmap(
    tensors
)


@given(some.sampled_from(sorted(MODELS)), some_tensor, some.sampled_from([None, 1]))
def test_tensors_of_openinference(tiny: None, name: str, tensor: Any, indent: int | None) -> None:
    data, shape = tensor
    model = MODELS[name]
    inputs = [{"name": each.name, "datatype": each.datatype, "shape": shape, "data": data} for each in model.signature.inputs]
    body = json.dumps({"inputs": inputs}, indent=indent).encode()
    form = OpenInferenceCodec(model)
    assert outcome(lambda: finish(form.steps(body, None))) == outcome(form.read, body, None)


@given(some.sampled_from(sorted(MODELS)), some_tensor, some.booleans(), some.sampled_from(["instances", "inputs"]))
def test_rows_and_columns(tiny: None, name: str, tensor: Any, named: bool, key: str) -> None:
    model, (data, _) = MODELS[name], tensor
    asked: Any = data
    if named and key == "inputs":
        asked = {spec.name: data for spec in model.signature.inputs}
    elif named:
        asked = [{spec.name: row for spec in model.signature.inputs} for row in data]
    body = json.dumps({key: asked}).encode()
    form = TfPredictCodec(model)
    assert outcome(lambda: finish(form.steps(body, None))) == outcome(form.read, body, None)


@given(some.lists(some.dictionaries(some.sampled_from(["a", "t", "z"]), some.integers(0, 9)), max_size=6), nested)
def test_examples(tiny: None, examples: list[Any], context: Any) -> None:
    form = TfClassifyCodec(served(signature(a=("INT32", [-1]), t=("INT32", [-1]), out_y=("FP32", [-1, 3]))))
    for more in ({}, {"context": {"t": 3}}, {"context": context}):
        body = json.dumps({"examples": examples, **more}).encode()
        assert outcome(lambda body=body: finish(form.steps(body, None))) == outcome(form.read, body, None)
