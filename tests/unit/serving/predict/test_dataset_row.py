"""Rows from files of several kinds, and output parts that are complete."""

import json
from pathlib import Path

import numpy as np
import pytest

from fairway.errors import NotFoundError, UsageError
from fairway.serving.predict.dataset_row import ONLY, open_rows
from fairway.serving.predict.prediction_part import PredictionFolder


def test_a_range_reaches_over_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.arange(10, 16).reshape(3, 2))
    np.save(tmp_path / "a.npy", np.arange(8).reshape(4, 2))
    (tmp_path / "notes.txt").write_text("no rows")
    rows = open_rows(tmp_path)
    assert len(rows) == 7
    assert not rows.is_text
    assert rows.read(3, 6)[ONLY].tolist() == [[6, 7], [10, 11], [12, 13]]
    assert rows.read(0, 7)[ONLY].shape == (7, 2)


def test_named_arrays_stay_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros((5, 2, 2)), weight=np.arange(5))
    found = open_rows(tmp_path / "x.npz").read(1, 3)
    assert found["image"].shape == (2, 2, 2)
    assert found["weight"].tolist() == [1, 2]
    np.savez(tmp_path / "y.npz", image=np.zeros((5, 2)), weight=np.arange(4))
    with pytest.raises(UsageError, match=r"\[4, 5\] rows"):
        open_rows(tmp_path / "y.npz")


def test_lines_of_json_and_tables(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"x": [1, 2], "name": "a"}\n{"x": [3, 4], "name": "b"}\n\n')
    rows = open_rows(tmp_path / "x.jsonl")
    assert (len(rows), rows.is_text) == (2, True)
    assert rows.read(1, 2)["x"].tolist() == [[3, 4]]
    assert rows.read(0, 2)["name"].tolist() == ["a", "b"]
    (tmp_path / "t.csv").write_text("width,height\n1,2\n3,4.5\n")
    assert open_rows(tmp_path / "t.csv").read(0, 2)[ONLY].tolist() == [[1, 2], [3, 4.5]]
    (tmp_path / "u.csv").write_text("1,2\n")
    assert len(open_rows(tmp_path / "u.csv")) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.jsonl", '{"x": 1}\n{"y": 2}\n', "do not all have"),
        ("x.jsonl", '{"x": [1]}\n{"x": [1, 2]}\n', "no common shape"),
        ("x.jsonl", "[1\n", r"x.jsonl:1: "),
        ("x.csv", "a,b\n1,c\n", "could not convert"),
        ("x.npy", "no array", "x.npy"),
        ("x.bin", "x", "not a file of rows"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        open_rows(tmp_path / name).read(0, 2)


def test_a_folder_without_rows_and_objects_in_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no rows"):
        open_rows(tmp_path)
    np.save(tmp_path / "o.npy", np.asarray([{}], object), allow_pickle=True)
    with pytest.raises(UsageError, match=r"o\.npy"):
        open_rows(tmp_path)


def test_a_part_written_again_is_the_same_file(tmp_path: Path) -> None:
    parts = PredictionFolder(tmp_path, "jsonl")
    for _ in range(2):
        parts.write(1000, {"label": np.asarray([3, 4]), "text": np.asarray([b"a", b"b"], object)})
    parts.write(0, {"label": np.asarray([7])})
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["part-000000000000.jsonl", "part-000000001000.jsonl"]
    lines = [json.loads(line) for path in sorted(tmp_path.iterdir()) for line in path.read_text().splitlines()]
    assert lines == [{"row": 0, "label": 7}, {"row": 1000, "label": 3, "text": "a"}, {"row": 1001, "label": 4, "text": "b"}]


def test_arrays_are_written_as_arrays(tmp_path: Path) -> None:
    PredictionFolder(tmp_path, "npz").write(5, {"y": np.asarray([[0.5, 1.5]])})
    with np.load(tmp_path / "part-000000000005.npz") as found:
        assert found["y"].tolist() == [[0.5, 1.5]]


def test_sampled_requests_are_rows_whatever_the_requests_held(tmp_path: Path) -> None:
    def line(rows: list[list[float]], words: list[object]) -> str:
        x = {"name": "x", "datatype": "FP32", "shape": [len(rows), 2], "data": [value for row in rows for value in row]}
        t = {"name": "t", "datatype": "BYTES", "shape": [len(words)], "data": words}
        answer = {"name": "y", "datatype": "FP32", "shape": [1], "data": [0]}
        return json.dumps({"time": 1.0, "model": "m", "version": "7", "inputs": [x, t], "outputs": [answer]}) + "\n"

    path = tmp_path / "requests-1.jsonl"
    path.write_text(line([[1, 2]], ["a"]) + line([[3, 4], [5, 6]], ["b", {"b64": "/w=="}]) + line([[7, 8]], ["c"]))
    rows = open_rows(tmp_path)
    assert (len(rows), rows.is_text) == (4, True)
    for start in range(4):
        for stop in range(start + 1, 5):
            found = rows.read(start, stop)
            assert found["x"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]][start:stop]
            assert found["t"].tolist() == [b"a", b"b", b"\xff", b"c"][start:stop]
    path.write_text(line([[1, 2]], ["a"]) + "{}\n")
    with pytest.raises(UsageError, match=r"requests-1\.jsonl:2"):
        open_rows(tmp_path)
