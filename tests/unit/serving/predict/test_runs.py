"""How many rows the model gets at once, and what is refused rather than predicted wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_prediction import made

from fairway.errors import UsageError
from fairway.serving.predict.__main__ import arranged, main
from fairway.state.model import ModelSignature, TensorSpec

ROWS = np.arange(1, 31, dtype=np.float32).reshape(10, 3)


def predicted(folder: Path, *more: str) -> tuple[int, np.ndarray[Any, Any]]:
    """Return the exit code, and the predictions."""
    np.save(folder / "rows.npy", ROWS)
    out = folder / "out"
    words = ["--folder", str(folder / "model"), "--data", str(folder / "rows.npy"), "--out", str(out), *more]
    code = main(words)
    parts = [np.load(path)["y"] for path in sorted(out.glob("part-*.npz"))]
    return code, np.concatenate(parts) if parts else np.empty((0, 3))


@pytest.mark.parametrize("how", [("--batch", "4"), ("--batch", "7", "--shard", "5"), ()])
def test_a_model_that_mixes_rows_gets_each_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: tuple[str, ...]
) -> None:
    made(tmp_path / "model", "CumSum")
    code, found = predicted(tmp_path, *how)
    assert code == 0
    assert found.tolist() == ROWS.tolist()
    assert "the model runs each row alone" in capsys.readouterr().err


def test_what_is_declared_counts(tmp_path: Path) -> None:
    made(tmp_path / "model", "CumSum")
    (tmp_path / "model" / "fairway.json").write_text(json.dumps({"batching": "always"}))
    assert predicted(tmp_path)[1].tolist() == np.cumsum(ROWS, 0).tolist()


def test_a_model_for_one_row_gets_one_row(tmp_path: Path) -> None:
    made(tmp_path / "model", "Neg", rows=1, gives=(1, 3))
    code, found = predicted(tmp_path)
    assert (code, found.tolist()) == (0, (-ROWS).tolist())


def test_a_model_for_five_rows_gets_five(tmp_path: Path) -> None:
    made(tmp_path / "model", "Neg", rows=5, gives=(5, 3))
    assert predicted(tmp_path, "--batch", "3")[1].tolist() == (-ROWS).tolist()


def test_rows_that_do_not_fill_a_fixed_batch_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "model", "Neg", rows=4, gives=(4, 3))
    code, found = predicted(tmp_path)
    assert code == 2
    assert len(found) == 0
    assert "the model takes 4 rows at once, but only 2 remain" in capsys.readouterr().err


def test_outputs_that_are_not_of_rows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "model", "ReduceSum", gives=(1, 1))
    code, found = predicted(tmp_path)
    assert code == 2
    assert len(found) == 0
    assert "the output 'y' has 1 row for 10 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("INT64", [1.5]),
        ("INT64", [float("nan")]),
        ("INT64", [float("inf")]),
        ("INT32", [2**31]),
        ("UINT8", [-1]),
        ("UINT8", [256.0]),
        ("UINT64", [-1]),
        ("INT64", ["1.5"]),
        ("FP32", ["one"]),
        ("FP32", [b"one"]),
        ("BOOL", [2]),
        ("INT64", [2**70, 1]),
    ],
)
def test_a_value_that_the_input_cannot_hold_is_refused(datatype: str, values: list[Any]) -> None:
    signature = ModelSignature((TensorSpec("x", datatype, (-1,)),), (TensorSpec("y", "FP32", (-1,)),))
    with pytest.raises(UsageError, match=f"input 'x' takes {datatype}"):
        arranged(signature, {"x": np.asarray(values)})


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [("INT64", [1.0, -2.0], [1, -2]), ("UINT8", [255], [255]), ("FP32", [1, 2], [1.0, 2.0]), ("BOOL", [0, 1], [False, True])],
)
def test_a_value_of_another_type_that_fits_is_taken(datatype: str, values: list[Any], expected: list[Any]) -> None:
    signature = ModelSignature((TensorSpec("x", datatype, (-1,)),), (TensorSpec("y", "FP32", (-1,)),))
    assert arranged(signature, {"x": np.asarray(values)})[0].tolist() == expected
