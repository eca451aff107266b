"""NaN and infinity in outputs are found, in arrays of every type, and counted per answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_models import Told, app_of, ask, signature

from fairway.serving.replica.finite import are_finite


@pytest.mark.parametrize("kind", ["<f2", "<f4", "<f8", ">f4"])
@pytest.mark.parametrize("size", [1, 10, 5000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_such_number_anywhere_is_found(kind: str, size: int, bad: float) -> None:
    values = np.linspace(-1, 1, size).astype(kind)
    assert are_finite([values, values.reshape(1, size)])
    values[size // 2] = bad
    assert not are_finite([np.zeros(3), values])
    assert not are_finite([values[::-1]])


def test_numbers_that_are_too_large_for_a_sum_are_finite() -> None:
    for kind in ("<f2", "<f4", "<f8"):
        assert are_finite([np.full((3, 4), np.finfo(kind).max, kind)])


def test_what_has_no_such_numbers() -> None:
    assert are_finite([])
    assert are_finite(
        [np.array([b"nan"], object), np.array([True]), np.array([2**63 - 1]), np.zeros((0, 3), "<f4"), np.array(1.0)]
    )


async def test_answers_are_counted_once_each() -> None:
    def work(inputs: list[Any]) -> list[Any]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return [1.0 / inputs[0], inputs[0] / inputs[0]]

    app = app_of(Told(signature(x=("FP32", [-1, 2]), out_y=("FP32", [-1, 2]), out_z=("FP32", [-1, 2])), work))
    for value in (1.0, 0.0, 0.0):
        asked = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value, 1.0]}]}
        status, _, _ = await ask(app, "POST", "/v2/models/m/infer", asked)
        assert status == 200
    await ask(app, "POST", "/v2/models/m/infer", b"{")
    load = (await ask(app, "GET", "/fairway/load"))[1]
    assert (load["served"], load["client_errors"], load["non_finite"]) == (4, 1, 2)
    text = (await ask(app, "GET", "/metrics"))[1].decode()
    assert 'fairway_non_finite_answers_total{model="m",version="7"} 2' in text
