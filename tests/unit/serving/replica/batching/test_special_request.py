"""Requests without rows, with a timeout, and with classes in place of values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from small_models import Told, app_of, ask, signature

from fairway.serving.replica.protocols.class_ranking import MOST_ELEMENTS, best_classes
from fairway.serving.replica.request_error import ModelError, RequestError
from fairway.state.model import TensorSpec

Y = TensorSpec("y", "FP32", (-1, 3))


def infer(shape: list[int], data: list[Any], **more: Any) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": data}], **more}).encode()


async def test_no_rows_of_known_shapes_do_not_run_the_model() -> None:
    runtime = Told(signature(x=("FP32", [-1, 3]), out_y=("INT64", [-1, 2, 4])), lambda inputs: pytest.fail("it ran"))
    status, answer, _ = await ask(app_of(runtime), "POST", "/v2/models/m/infer", infer([0, 3], []))
    assert (status, answer["outputs"]) == (200, [{"name": "y", "datatype": "INT64", "shape": [0, 2, 4], "data": []}])


async def test_shapes_that_are_open_are_learnt_from_a_row() -> None:
    runtime = Told(signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, -1])), lambda inputs: [inputs[0].repeat(2, axis=1)])
    status, answer, _ = await ask(app_of(runtime), "POST", "/v2/models/m/infer", infer([0, 5], []))
    assert (status, answer["outputs"][0]["shape"], runtime.sizes) == (200, [0, 10], [1])


async def test_a_row_that_would_be_huge_is_not_run() -> None:
    runtime = Told(signature(x=("FP32", [-1, -1]), out_y=("FP32", [-1, -1])), lambda inputs: pytest.fail("it ran"))
    status, answer, _ = await ask(app_of(runtime), "POST", "/v2/models/m/infer", infer([0, 2**31 - 1], []))
    assert (status, answer["outputs"][0]["shape"]) == (200, [0, 0])


async def test_a_model_that_takes_no_zeros_answers_no_rows_too() -> None:
    def fail(inputs: list[Any]) -> list[Any]:
        raise ModelError(400, "no zeros")

    runtime = Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, -1])), fail)
    assert (await ask(app_of(runtime), "POST", "/v2/models/m/infer", infer([0, 3], [])))[0] == 200


async def test_a_timeout_that_is_long_enough_changes_nothing() -> None:
    app = app_of(Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])), lambda inputs: inputs))
    for timeout in (10**7, 10**30, 0):
        status, answer, _ = await ask(
            app, "POST", "/v2/models/m/infer", infer([1, 3], [1, 2, 3], parameters={"timeout": timeout})
        )
        assert (status, answer["outputs"][0]["data"]) == (200, [1, 2, 3])
    for timeout in (-1, "5", 1.5, True):
        status, answer, _ = await ask(
            app, "POST", "/v2/models/m/infer", infer([1, 3], [1, 2, 3], parameters={"timeout": timeout})
        )
        assert (status, "timeout" in answer["error"]) == (400, True)


def test_classes_of_several_dimensions_and_odd_values() -> None:
    values = np.array([[[1, np.nan], [3, np.inf]]], np.float32)
    assert best_classes(TensorSpec("y", "FP32", (-1, 2, 2)), values, 9, rows=True).tolist() == [
        [b"inf:3", b"3.000000:2", b"1.000000:0", b"nan:1"]
    ]
    assert best_classes(Y, np.zeros((2, 0), np.float32), 5, rows=True).shape == (2, 0)
    assert best_classes(Y, np.zeros((0, 3), np.float32), 5, rows=True).shape == (0, 3)
    assert best_classes(Y, np.array([2, 5, 5]), 2, rows=False, labels=("a", "b")).tolist() == [b"5:1:b", b"5:2"]


@pytest.mark.parametrize(
    ("spec", "values", "words"),
    [
        (TensorSpec("y", "BYTES", (-1,)), np.array([b"a"], object), "BYTES, which has no order"),
        (TensorSpec("y", "BOOL", (-1,)), np.array([True]), "BOOL, which has no order"),
        (Y, np.zeros((1, MOST_ELEMENTS + 1), np.float32), "the best of"),
    ],
)
def test_classes_that_are_refused(spec: TensorSpec, values: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        best_classes(spec, values, 1, rows=True)
