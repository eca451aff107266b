"""What `fairway.export` does before it uses a framework."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import fairway
from fairway.runtime.model_export import exported_model
from fairway.runtime.model_export import exporter as export_exporter
from fairway.runtime.model_export.exported_model import ExportedModel, ExportError, tensor


def exporter(tmp: str, answer: float = 0.0, format: str = "onnx", batch: int = -1) -> Any:
    """Return an export method that writes a file; its answers are off by `answer`."""

    def write(folder: Path) -> ExportedModel:
        (folder / tmp).write_text("x")
        (folder / "sub").mkdir()
        (folder / "sub" / "w").write_text("w")
        spec = {"name": "x", "datatype": "FP32", "shape": [batch]}
        return ExportedModel(format, tmp, [spec], [spec], lambda arrays: [arrays[0] * 2 + answer])

    return (format, write)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The export methods of a model; the test fills them in."""
    found: list[Any] = []
    monkeypatch.chdir(tmp_path)
    arrays = [numpy.arange(4, dtype=numpy.float32)]
    monkeypatch.setattr(export_exporter, "_ways", lambda _model, _inputs: (arrays, lambda asked: [asked[0] * 2], found))
    return found


def test_the_first_way_that_answers_the_same_is_taken(
    ways: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_folder: Path) -> ExportedModel:
        message = "no such operator\nand more"
        raise ValueError(message)

    ways.extend([("first", broken), exporter("a", 0.5), exporter("b", 1e-5, "savedmodel"), exporter("c")])
    assert fairway.export(object(), None, metrics={"accuracy": 1}) == Path("outputs/model")
    about = json.loads((tmp_path / "outputs" / "model" / "fairway.json").read_text())
    assert (about["format"], about["entry"], about["metrics"]) == ("savedmodel", "b", {"accuracy": 1.0})
    assert about["checked"]["largest_difference"] < 1e-4
    assert sorted(path.name for path in (tmp_path / "outputs" / "model").iterdir()) == ["b", "fairway.json", "sub"]
    stderr = capsys.readouterr().err
    assert "not exported as first: ValueError: no such operator\n" in stderr
    assert "differ from the live model's by 0.5" in stderr


def test_nothing_is_left_when_no_way_works(ways: list[Any], tmp_path: Path) -> None:
    ways.append(exporter("a", 0.5))
    with pytest.raises(ExportError, match="differ from the live model's"):
        fairway.runtime.export(object(), None)
    assert list((tmp_path / "outputs" / "model").iterdir()) == []
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["model"]


def test_another_export_takes_the_place_of_the_first_and_of_nothing_else(ways: list[Any], tmp_path: Path) -> None:
    ways.append(exporter("a"))
    folder = fairway.export(object(), None)
    assert folder is not None
    (folder / "labels.txt").write_text("mine")
    ways[:] = [exporter("b")]
    fairway.export(object(), None)
    assert sorted(path.name for path in folder.iterdir()) == ["b", "fairway.json", "labels.txt", "sub"]


def test_what_has_another_shape_or_number_of_answers_is_refused(ways: list[Any]) -> None:
    def write(answers: list[Any]) -> Any:
        return lambda _folder: ExportedModel("onnx", "a", [{"shape": [4]}], [], lambda _arrays: answers)

    ways.extend([("two", write([1, 2])), ("shape", write([numpy.zeros(3)]))])
    with pytest.raises(ExportError) as problem:
        fairway.export(object(), None)
    assert "it returns 2 outputs, but the live model returns 1" in str(problem.value)
    assert "its output has shape (3,), but the live model's has shape (4,)" in str(problem.value)


def test_answers_that_are_no_numbers_must_be_none_in_both(ways: list[Any]) -> None:
    def write(_folder: Path) -> ExportedModel:
        return ExportedModel("onnx", "a", [{"shape": [4]}], [], lambda arrays: [arrays[0] * numpy.nan])

    ways.append(("nan", write))
    with pytest.raises(ExportError):
        fairway.export(object(), None)


@pytest.mark.parametrize(("rank", "index", "writes"), [("0", "0", True), ("1", "1", False), ("", "0", True), ("", "1", False)])
def test_only_the_first_writes(
    ways: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: str, index: str, writes: bool
) -> None:
    ways.append(exporter("a"))
    monkeypatch.setenv("FAIRWAY_JOB", "a-1")
    monkeypatch.setenv("FAIRWAY_INDEX", index)
    monkeypatch.setenv("FAIRWAY_OUTPUT_MODEL", str(tmp_path / "out"))
    if rank:
        monkeypatch.setenv("FAIRWAY_RANK", rank)
    assert (fairway.export(object(), None) is not None) == writes
    assert (tmp_path / "out").exists() == writes


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(TypeError, match="int is not a model that can be exported"):
        fairway.export(3, None)


def test_a_metric_must_be_a_number(ways: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a finite number is needed"):
        fairway.export(object(), None, metrics={"loss": float("nan")})
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("dtype", "word"),
    [("torch.float32", "FP32"), ("float16", "FP16"), ("torch.bfloat16", "BF16"), ("int64", "INT64"), ("uint8", "UINT8"),
     ("bool", "BOOL"), ("<U3", "BYTES"), ("object", "BYTES")],
)  # fmt: skip
def test_types_in_the_words_of_the_protocol(dtype: str, word: str) -> None:
    array = SimpleNamespace(dtype=dtype, shape=(2, 3))
    assert tensor("x", array, True) == {"name": "x", "datatype": word, "shape": [-1, 3]}
    assert tensor("x", array, False)["shape"] == [2, 3]


def test_without_onnxruntime_nothing_can_be_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exported_model, "installed", lambda *_modules: False)
    assert exported_model.ask_onnx(tmp_path / "m.onnx", ["x"]) is None
