"""`NaN` and infinities in JSON: read for floats, written as TensorFlow Serving writes them, never confused with text."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from small_models import served, signature

from fairway.serving.replica.protocols.json_piece import finish
from fairway.serving.replica.protocols.nonfinite_token import encoded, masked
from fairway.serving.replica.protocols.open_inference import OpenInferenceCodec
from fairway.serving.replica.protocols.tfserving import TfPredictCodec
from fairway.serving.replica.request_error import RequestError

FLOATS = served(signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, -1])))
MIXED = served(signature(x=("FP64", [-1]), t=("BYTES", [-1]), out_y=("FP64", [-1]), out_t=("BYTES", [-1])))
numbers = some.one_of(some.floats(width=32), some.sampled_from([math.nan, math.inf, -math.inf]))
texts = some.one_of(some.text(), some.sampled_from(['NaN"', "\\", '\\"Infinity', "-Infinity", "\x7f", "null"]))


def mask(body: bytes) -> bytes:
    found = bytearray(body)
    for _ in masked(body, found):
        pass
    return bytes(found)


@given(some.recursive(numbers | texts, lambda inner: some.lists(inner) | some.dictionaries(texts, inner)))
def test_masked_json_is_json_of_the_same_length(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    found = mask(text)
    assert len(found) == len(text)

    def constant(name: str) -> Any:
        raise AssertionError(name)

    json.loads(found, parse_constant=constant)


@given(some.lists(some.tuples(numbers, texts.filter(lambda text: text.isprintable())), min_size=1, max_size=5), some.booleans())
def test_rows_come_back(rows: list[tuple[float, str]], large: bool) -> None:
    rows = rows * (4000 if large else 1)
    body = json.dumps({"instances": [{"x": x, "t": t} for x, t in rows]}).encode()
    predict = TfPredictCodec(MIXED)
    question = finish(predict.steps(body, None)) if large else predict.read(body, None)
    assert np.array_equal(question.inputs[0], np.array([x for x, _ in rows]), equal_nan=True)
    assert [each.decode() for each in question.inputs[1]] == [t for _, t in rows]
    written = json.loads(predict.write(question, question.inputs).body)["predictions"]
    assert np.array_equal(np.array([each["y"] for each in written]), question.inputs[0], equal_nan=True)
    assert [each["t"] for each in written] == [t for _, t in rows]


def test_texts_with_commas_in_a_large_answer_leave_the_numbers_beside_them_as_they_are() -> None:
    rows = [(0.0, ""), (math.inf, "0,")] * 4000
    outputs = [np.array([x for x, _ in rows]), np.array([t.encode() for _, t in rows], object)]
    predict = TfPredictCodec(MIXED)
    question = predict.read(b'{"instances": [{"x": 1, "t": "a"}]}', None)
    written = json.loads(predict.write(question, outputs).body)["predictions"]
    assert [(row["y"], row["t"]) for row in written] == rows


@pytest.mark.parametrize("rows", [1, 5000])
@pytest.mark.parametrize("nested", [False, True])
def test_the_open_inference_protocol_reads_them(rows: int, nested: bool) -> None:
    data: list[Any] = [[math.nan, math.inf, -math.inf, 1.5]] * rows
    flat = data if nested else [each for row in data for each in row]
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": flat}]}).encode()
    protocol = OpenInferenceCodec(FLOATS)
    question = finish(protocol.steps(body, None)) if rows > 1 else protocol.read(body, None)
    assert np.array_equal(question.inputs[0], np.array(data, np.float32), equal_nan=True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": [{"x": 1, "t": NaN}]}',
        b'{"instances": [{"x": "NaN", "t": "a"}]}',
        b'{"instances": [{"x": nan, "t": "a"}]}',
        b'{"instances": [{"x": NaNNaN, "t": "a"}]}',
        b'{"instances": [{"x": +Infinity, "t": "a"}]}',
        b'{"instances": NaN}',
        b'{NaN: []}',
        b'NaN',
        b'{"instances": [{"x": NaN, "t": "a}]}',
    ],
)  # fmt: skip
def test_what_is_still_wrong(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        print(TfPredictCodec(MIXED).read(body, None))
    assert caught.value.status == 400


def test_steps_are_short() -> None:
    body = b'{"x": [' + b'"\\\\",' * 200_000 + b"-1.5," * 400_000 + b"NaN]}"
    found, longest, at = bytearray(body), 0.0, time.thread_time()
    for _ in masked(body, found):
        now = time.thread_time()
        longest, at = max(longest, now - at), now
    assert found.endswith(b'"\x7f"]}')
    assert longest < 0.05


def test_answers_without_such_numbers_are_plain_json() -> None:
    assert encoded({"a": [None, "null"]}, [np.array([1.0])]) == b'{"a":[null,"null"]}'
    assert encoded([[math.nan, 1.0], [-math.inf, math.inf]], [np.array([[math.nan, 1.0], [-math.inf, math.inf]])]) == (
        b"[[NaN,1.0],[-Infinity,Infinity]]"
    )
