"""Parquet, requests and images as rows, and predictions in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet, table

from fairway.errors import NotFoundError, UsageError
from fairway.serving.predict.__main__ import arranged, form_of, main
from fairway.serving.predict.dataset_row import open_rows
from fairway.serving.predict.image_row import ImageRules, layout_of
from fairway.serving.predict.prediction_part import PredictionFolder
from fairway.state.model import ModelSignature, TensorSpec


def taking(*shape: int, datatype: str = "FP32") -> ModelSignature:
    return ModelSignature((TensorSpec("x", datatype, (-1, *shape)),), (TensorSpec("y", "FP32", (-1,)),))


def requests(path: Path, *inputs: Any) -> Path:
    path.write_text("".join(json.dumps({"id": "7", "inputs": each}) + "\n" for each in inputs))
    return path


def tensor(name: str, shape: list[int], data: Any, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


# Parquet


def test_row_groups_are_read_in_any_range(tmp_path: Path) -> None:
    columns = {"x": [[float(row), row + 0.5] for row in range(10)], "t": [f"row {row}" for row in range(10)]}
    parquet.write_table(table(columns), tmp_path / "a.parquet", row_group_size=3)
    rows = open_rows(tmp_path)
    assert len(rows) == 10
    for start in range(10):
        for stop in range(start + 1, 11):
            found = rows.read(start, stop)
            assert found["x"].tolist() == columns["x"][start:stop]
            assert found["t"].tolist() == columns["t"][start:stop]


def test_a_damaged_row_group_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(table({"x": [f"row {row}" for row in range(1000)]}), path, compression="snappy", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.parquet"):
        open_rows(tmp_path).read(0, 1000)


def test_columns_of_other_names_are_together_a_row(tmp_path: Path) -> None:
    parquet.write_table(table({"a": [1, 2], "b": [0.5, 1.5]}), tmp_path / "a.parquet")
    assert arranged(taking(2), open_rows(tmp_path).read(0, 2))[0].tolist() == [[1, 0.5], [2, 1.5]]
    parquet.write_table(table({"a": [1, 2], "b": ["one", "two"]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="columns b do not hold numbers"):
        arranged(taking(2), open_rows(tmp_path).read(0, 2))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([1.0, None], "column 'x' has 1 empty cells"),
        ([[1.0], [1.0, 2.0]], "column 'x' has lists of different lengths"),
        ([[1.0, None], [1.0, 2.0]], "column 'x' has lists with empty elements"),
        ([{"a": 1}, {"a": 2}], "column 'x' is of the type struct"),
    ],
)
def test_what_has_no_array_is_refused(tmp_path: Path, column: list[Any], words: str) -> None:
    parquet.write_table(table({"x": column}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=words):
        open_rows(tmp_path).read(0, 2)


def test_a_file_that_only_has_the_ending(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match=r"a\.parquet"):
        open_rows(tmp_path)


# Requests of the Open Inference Protocol


def test_requests_have_a_row_or_several(tmp_path: Path) -> None:
    path = requests(
        tmp_path / "a.jsonl",
        [tensor("x", [1, 2], [1, 2])],
        [tensor("x", [2, 2], [[3, 4], [5, 6]])],
        [tensor("x", [1, 2], [7, 8])],
    )
    rows = open_rows(path)
    assert len(rows) == 4
    assert rows.read(0, 4)["x"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert rows.read(2, 3)["x"].tolist() == [[5, 6]]


def test_texts_of_requests_may_be_nested(tmp_path: Path) -> None:
    path = requests(tmp_path / "a.jsonl", [tensor("x", [2, 1], [["a"], ["b"]], "BYTES")])
    assert open_rows(path).read(0, 2)["x"].tolist() == [[b"a"], [b"b"]]


def test_a_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    good = [tensor("x", [1, 2], [1, 2])]
    path = requests(tmp_path / "a.jsonl", good, [tensor("x", [1, 2], [1, 2, 3])])
    with pytest.raises(UsageError, match=r"a\.jsonl:2: input 'x' is not FP32 \[1, 2\]"):
        open_rows(path).read(0, 2)
    with pytest.raises(UsageError, match=r"a\.jsonl:2: its inputs do not have the same number of rows"):
        open_rows(requests(path, good, [tensor("x", [1, 2], [1, 2]), tensor("z", [2], [1, 2])]))
    with pytest.raises(UsageError, match=r"a\.jsonl:2: its inputs"):
        open_rows(requests(path, good, []))


def test_an_object_with_an_input_called_inputs_is_no_request(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"inputs": [1, 2]}\n')
    assert open_rows(tmp_path).read(0, 1)["inputs"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("datatype", "value"), [("INT64", 1.5), ("UINT8", 256), ("UINT8", -1), ("BOOL", 2), ("INT32", 2**31), ("INT64", 2**70)]
)
def test_a_value_of_a_request_that_its_type_cannot_hold_is_refused(tmp_path: Path, datatype: str, value: float) -> None:
    path = requests(tmp_path / "a.jsonl", [tensor("x", [1], [1], datatype)], [tensor("x", [1], [value], datatype)])
    with pytest.raises(UsageError, match=rf"a\.jsonl:2: .*'x'.*{datatype}"):
        open_rows(path).read(0, 2)


@pytest.mark.parametrize("lines", ["[1]\n\n[2]\n", "[1]\n\n\n[2]\n", "[1]\n \n\n\n\t\n[2]\n[3]\n"])
def test_lines_behind_empty_ones_are_not_left_out(tmp_path: Path, lines: str) -> None:
    (tmp_path / "a.jsonl").write_text(lines)
    with pytest.raises(UsageError, match="an empty line between others"):
        open_rows(tmp_path)


def test_empty_lines_at_the_end_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[1]\n[2]\n\n \n")
    assert len(open_rows(tmp_path)) == 2
    path = requests(tmp_path / "a.jsonl", [tensor("x", [2], [1, 2])])
    path.write_text(path.read_text() + "\n\n")
    assert open_rows(path).read(0, 2)["x"].tolist() == [1, 2]


# Images


def paint(path: Path, *size: int, colour: Any = (255, 0, 51), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def fitted(folder: Path, spec: TensorSpec, rules: ImageRules = ImageRules()) -> Any:
    rows = open_rows(folder)
    for images in rows.images:
        images.fit([spec], rules)
    return rows.read(0, len(rows))["x"]


def test_the_input_says_order_size_and_range(tmp_path: Path) -> None:
    paint(tmp_path / "b.png", 8, 4)
    paint(tmp_path / "a/c.jpeg", 5, 5, colour=9, mode="L")
    assert open_rows(tmp_path).names(0, 2) == ["a/c.jpeg", "b.png"]
    first = fitted(tmp_path, TensorSpec("x", "FP32", (-1, 3, 6, 2)))
    assert first.shape == (2, 3, 6, 2)
    assert first[1, :, 0, 0] == pytest.approx([1.0, 0.0, 0.2])
    last = fitted(tmp_path, TensorSpec("x", "UINT8", (-1, 6, 2, 3)))
    assert last[1, 0, 0].tolist() == [255, 0, 51]
    assert fitted(tmp_path, TensorSpec("x", "UINT8", (-1, 6, 2))).shape == (2, 6, 2)


def test_the_card_says_the_rest(tmp_path: Path) -> None:
    paint(tmp_path / "a.png", 4, 2)
    free = TensorSpec("x", "FP32", (-1, 3, -1, -1))
    rules = ImageRules((4, 4), "pad", "BGR", 1.0, (51.0, 0.0, 155.0), (1.0, 1.0, 100.0))
    found = fitted(tmp_path, free, rules)
    assert found.shape == (1, 3, 4, 4)
    assert found[0, :, 2, 0].tolist() == [0.0, 0.0, 1.0]
    assert found[0, :, 0, 0] == pytest.approx([-51.0, 0.0, -1.55]), "black above"
    stretched = fitted(tmp_path, free, ImageRules((4, 4), "stretch"))
    assert stretched[0, 0].tolist() == [[1.0] * 4] * 4


@pytest.mark.parametrize(
    ("shape", "rules", "words"),
    [
        ((-1, 784), ImageRules(), "is not an image"),
        ((-1, 7, 4, 4), ImageRules(), "is not an image"),
        ((-1, 3, -1, -1), ImageRules(), "does not define the size"),
        ((-1, 3, 4, 4), ImageRules(mean=(1.0, 2.0)), "an image has 3 channels"),
    ],
)
def test_an_input_that_takes_no_image(shape: tuple[int, ...], rules: ImageRules, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        layout_of(TensorSpec("x", "FP32", shape), rules)


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"bad\.png"):
        fitted(tmp_path, TensorSpec("x", "FP32", (-1, 3, 2, 2)))


def test_images_beside_files_of_rows_are_refused(tmp_path: Path) -> None:
    paint(tmp_path / "a.png", 2, 2)
    (tmp_path / "a.csv").write_text("1,2\n")
    with pytest.raises(UsageError, match="holds images and files of rows"):
        open_rows(tmp_path)
    with pytest.raises(NotFoundError, match="holds no rows"):
        open_rows(tmp_path / "none")


# Predictions

OUTPUTS = {"p": np.array([[0.5, 1.5], [2.5, 3.5]], np.float32), "label": np.array([b"cat", b"dog"], object)}


def test_predictions_as_csv_and_parquet(tmp_path: Path) -> None:
    PredictionFolder(tmp_path, "csv").write(10, OUTPUTS, ["a.png", "b.png"])
    with (tmp_path / "part-000000000010.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["row", "file", "p.0", "p.1", "label"],
            ["10", "a.png", "0.5", "1.5", "cat"],
            ["11", "b.png", "2.5", "3.5", "dog"],
        ]
    PredictionFolder(tmp_path, "parquet").write(10, OUTPUTS)
    assert parquet.read_table(tmp_path / "part-000000000010.parquet").to_pylist() == [
        {"row": 10, "p": [0.5, 1.5], "label": "cat"},
        {"row": 11, "p": [2.5, 3.5], "label": "dog"},
    ]


def test_outputs_called_like_the_columns_that_say_which_row_it_is_keep_both(tmp_path: Path) -> None:
    outputs = {"row": np.array([7.0, 8.0]), "file": np.array([b"x", b"y"], object)}
    PredictionFolder(tmp_path, "jsonl").write(10, outputs, ["a.png", "b.png"])
    first = json.loads((tmp_path / "part-000000000010.jsonl").read_text().splitlines()[0])
    assert first == {"row": 10, "file": "a.png", "output.row": 7.0, "output.file": "x"}
    PredictionFolder(tmp_path, "csv").write(10, outputs)
    assert (tmp_path / "part-000000000010.csv").read_text().splitlines()[0] == "row,output.row,file"
    PredictionFolder(tmp_path, "parquet").write(10, outputs)
    assert parquet.read_table(tmp_path / "part-000000000010.parquet").column("row").to_pylist() == [10, 11]


def test_how_predictions_are_written_follows_the_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    assert form_of("auto", open_rows(tmp_path / "a.npy")) == "npz"
    assert form_of("csv", open_rows(tmp_path / "a.npy")) == "csv"
    parquet.write_table(table({"x": [1]}), tmp_path / "a.parquet")
    assert form_of("auto", open_rows(tmp_path / "a.parquet")) == "parquet"
    assert form_of("auto", open_rows(requests(tmp_path / "a.jsonl", [tensor("x", [1, 1], [1])]))) == "jsonl"


def test_what_was_done_before_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from small_prediction import doubler

    doubler(tmp_path / "model")
    np.save(tmp_path / "rows.npy", np.arange(30, dtype=np.float32).reshape(10, 3))
    out = tmp_path / "out"
    PredictionFolder(out, "npz").write(0, {"y": np.zeros((4, 3), np.float32)})
    assert PredictionFolder(out, "npz").rows(10, 4) == 4
    words = ["--folder", str(tmp_path / "model"), "--data", str(tmp_path / "rows.npy"), "--out", str(out), "--shard", "4"]
    assert main(words) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0: 10 rows, 4 of them already predicted"
    assert lines[-1] == "0: rows 8 to 10 of 10; 100% done"
    assert PredictionFolder(out, "npz").rows(10, 4) == 10
