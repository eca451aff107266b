"""TensorFlow Serving's REST interface."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from small_models import served, signature

from fairway.serving.replica.protocols.json_piece import finish
from fairway.serving.replica.protocols.tfserving import TfClassifyCodec, TfPredictCodec, TfRegressCodec, metadata, status
from fairway.serving.replica.request_error import RequestError

ONE = served(signature(x=("FP32", [-1, 2]), out_y=("FP32", [-1, 3])))
TWO = served(signature(a=("INT32", [-1]), t=("BYTES", [-1]), out_y=("FP32", [-1]), out_name=("BYTES", [-1, 1])))


def sent(**parts: Any) -> bytes:
    return json.dumps(parts).encode()


def test_rows_of_one_input() -> None:
    form = TfPredictCodec(ONE)
    for instances in ([[1, 2], [3, 4.5]], [{"x": [1, 2]}, {"x": [3, 4.5]}]):
        question = form.read(sent(signature_name="serving_default", instances=instances), None)
        assert question.inputs[0].tolist() == [[1.0, 2.0], [3.0, 4.5]]
        assert question.rows == 2
        answer = form.write(question, [np.array([[1, 2, 3], [4, 5, 6]], np.float32)])
        assert json.loads(answer.body) == {"predictions": [[1, 2, 3], [4, 5, 6]]}


def test_columns_of_one_input() -> None:
    form = TfPredictCodec(ONE)
    for inputs in ([[1, 2]], {"x": [[1, 2]]}):
        question = form.read(sent(inputs=inputs), None)
        assert json.loads(form.write(question, [np.array([[1, 2, 3]], np.float32)]).body) == {"outputs": [[1, 2, 3]]}


def test_rows_and_columns_of_several_inputs_with_bytes() -> None:
    form = TfPredictCodec(TWO)
    outputs = [np.array([0.5, 1], np.float32), np.array([[b"one"], [b"\xff"]], object)]
    question = form.read(sent(instances=[{"a": 1, "t": "text"}, {"a": 2, "t": {"b64": "/w=="}}]), None)
    assert [each.tolist() for each in question.inputs] == [[1, 2], [b"text", b"\xff"]]
    rows = [{"y": 0.5, "name": ["one"]}, {"y": 1.0, "name": [{"b64": "/w=="}]}]
    assert json.loads(form.write(question, outputs).body) == {"predictions": rows}
    question = form.read(sent(inputs={"a": [1, 2], "t": ["text", "more"]}), None)
    columns = {"y": [0.5, 1.0], "name": [["one"], [{"b64": "/w=="}]]}
    assert json.loads(form.write(question, outputs).body) == {"outputs": columns}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "Expected `object`"),
        (sent(), "neither instances nor inputs"),
        (sent(instances=[[1, 2]], inputs=[[1, 2]]), "both"),
        (sent(instances=[]), "empty"),
        (sent(instances=3), "Expected `array"),
        (sent(instances=[[1, 2], [3]]), "a list of 1"),
        (sent(instances=[[1, 2], 3]), "same depth"),
        (sent(instances=[[1, [2]]]), "is not a number"),
        (sent(instances=[[[1, 2]]]), "shape"),
        (sent(instances=[1, 2]), r"shape \[2\]"),
        (sent(instances=[["1", "2"]]), "'1' is not a number"),
        (sent(instances=[[True, 2]]), "'True' is not a number"),
        (sent(instances=[[None, 2]]), "is not a number"),
        (sent(instances=[{"z": [1, 2]}]), "exactly: x"),
        (sent(instances=[{"x": [1, 2]}, [1, 2]]), "exactly: x"),
        (sent(inputs={"z": [[1, 2]]}), "no input 'z'"),
        (sent(inputs={}), "lacks x"),
        (sent(inputs=[[1, 2, 3]]), r"shape \[1, 3\]"),
        (sent(inputs=1), "shape"),
    ],
)
def test_what_is_wrong_is_said(asked: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        TfPredictCodec(ONE).read(asked, None)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (sent(instances=[1]), "must be objects"),
        (sent(inputs=[1]), "must be an object"),
        (sent(inputs={"a": [1, 2], "t": ["x"]}), "1 rows and 'a' has 2"),
        (sent(inputs={"a": [2**40], "t": ["x"]}), "fit INT32"),
        (sent(inputs={"a": [1.5], "t": ["x"]}), "whole number"),
        (sent(inputs={"a": [1], "t": [{"b64": "%"}]}), "not valid base64"),
        (sent(inputs={"a": [1], "t": [{"b64": 3}]}), "not valid base64"),
        (sent(inputs={"a": [1], "t": [{"c": ""}]}), "an object with"),
    ],
)
def test_what_is_wrong_with_several_inputs_is_said(asked: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        TfPredictCodec(TWO).read(asked, None)


def test_a_signature_that_is_not_there() -> None:
    with pytest.raises(RequestError, match="no signature 'other'") as caught:
        TfPredictCodec(ONE).read(sent(signature_name="other", instances=[[1, 2]]), None)
    assert caught.value.status == 404


def test_classify_and_regress() -> None:
    classify = TfClassifyCodec(ONE)
    question = classify.read(sent(examples=[{"x": [1, 2]}]), None)
    answer = json.loads(classify.write(question, [np.array([[0.25, 0.5, 0.25]], np.float32)]).body)
    assert answer == {"result": [[["0", 0.25], ["1", 0.5], ["2", 0.25]]]}
    regress = TfRegressCodec(served(signature(x=("FP32", [-1]), k=("FP32", [-1]), out_y=("FP32", [-1, 1]))))
    question = regress.read(sent(context={"k": 2}, examples=[{"x": 1}, {"x": 3}]), None)
    assert [each.tolist() for each in question.inputs] == [[1, 3], [2, 2]]
    assert json.loads(regress.write(question, [np.array([[0.5], [1.5]], np.float32)]).body) == {"result": [0.5, 1.5]}
    with pytest.raises(RequestError, match="not a regression"):
        TfRegressCodec(ONE).read(sent(examples=[]), None)
    with pytest.raises(RequestError, match="not a classifier"):
        TfClassifyCodec(TWO).read(sent(examples=[]), None)


def test_labels_of_a_classifier_that_names_them() -> None:
    form = TfClassifyCodec(served(signature(x=("FP32", [-1, 2]), out_scores=("FP32", [-1, 2]), out_classes=("BYTES", [-1, 2]))))
    question = form.read(sent(examples=[{"x": [1, 2]}]), None)
    outputs = [np.array([[0.25, 0.75]], np.float32), np.array([[b"cat", b"dog"]], object)]
    assert json.loads(form.write(question, outputs).body) == {"result": [[["cat", 0.25], ["dog", 0.75]]]}


def test_status_and_metadata() -> None:
    assert status(ONE)["model_version_status"] == [
        {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    ]
    told: Any = metadata(TWO)
    inputs = told["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]
    assert inputs["t"] == {
        "dtype": "DT_STRING",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
        "name": "t",
    }


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(["x", "a", "t", "b64"]), inner, max_size=3),
    max_leaves=15,
)


@given(some.sampled_from(["instances", "inputs", "examples", "context"]), JSON)
def test_whatever_comes_is_read_or_refused(key: str, value: Any) -> None:
    for model in (ONE, TWO):
        for form in (TfPredictCodec(model), TfClassifyCodec(model), TfRegressCodec(model)):
            with suppress(RequestError):
                question = form.read(sent(**{key: value}), None)
                assert len(question.inputs) == len(model.signature.inputs)


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        (TfPredictCodec(ONE), sent(instances=[[1, 2]], output_filter=["y"])),
        (TfClassifyCodec(ONE), sent(examples=[{"x": [1, 2]}], top=3)),
    ],
)
def test_what_is_not_known_is_refused_and_named(form: Any, asked: bytes) -> None:
    for read in (form.read, lambda body, length: finish(form.steps(body, length))):
        with pytest.raises(RequestError, match=r"output_filter|top"):
            read(asked, None)
