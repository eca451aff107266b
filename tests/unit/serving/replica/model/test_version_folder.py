"""The content of a version's folder, and files in it that are not loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.errors import FairwayError, NotFoundError, RefusedError, UsageError
from fairway.serving.replica.model.version_folder import find
from fairway.state.model import TensorSpec
from fairway.testing.builder.model_file import field, onnx_file

CARD = (
    '{"format": "onnx", "entry": "sub/net.onnx", "signature": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}}'
)


def filled(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "runtime", "entry"),
    [("model_dot_onnx", "onnx", "model.onnx"), ("net_dot_pt2", "torch", "net.pt2"), ("saved_model_dot_pb", "savedmodel", ".")],
)
def test_the_format_is_found_from_the_files(tmp_path: Path, name: str, runtime: str, entry: str) -> None:
    found = find(filled(tmp_path, **{name: ""}), allow_pickle=True)
    assert (found.runtime, found.entry) == (runtime, tmp_path / entry)


def test_the_card_says_more(tmp_path: Path) -> None:
    found = find(filled(tmp_path, sub__net_dot_onnx="", other_dot_onnx="", fairway_dot_json=CARD))
    assert (found.runtime, found.entry) == ("onnx", tmp_path / "sub" / "net.onnx")
    assert found.signature.inputs == (TensorSpec("x", "FP32", (-1, 3)),)


def test_the_author_of_a_model_declares_whether_its_rows_may_run_together(tmp_path: Path) -> None:
    filled(tmp_path, net_dot_onnx="")
    assert find(tmp_path).batching == "auto"
    filled(tmp_path, fairway_dot_json='{"batching": "never"}')
    assert find(tmp_path).batching == "never"


def test_a_python_class_only_when_asked_for(tmp_path: Path) -> None:
    filled(tmp_path, model_dot_py="", fairway_dot_json='{"format": "python"}')
    with pytest.raises(RefusedError, match="executes code"):
        find(tmp_path)
    assert find(tmp_path, "python").runtime == "python"
    assert find(tmp_path, runtime="python").entry == tmp_path / "model.py"


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ({}, RefusedError, "no model of a known format is among nothing"),
        ({"model_dot_py": ""}, RefusedError, "is a Python class"),
        ({"weights_dot_safetensors": ""}, RefusedError, "only weights"),
        ({"model_dot_pt": ""}, RefusedError, "is a pickle"),
        ({"model_dot_joblib": ""}, RefusedError, "is a pickle"),
        ({"a_dot_onnx": "", "b_dot_onnx": ""}, RefusedError, "are all onnx"),
        ({"a_dot_onnx": "", "fairway_dot_json": "{"}, UsageError, "fairway.json"),
        ({"a_dot_onnx": "", "fairway_dot_json": '{"entry": "../../etc/passwd"}'}, UsageError, "not a file in the folder"),
        ({"a_dot_onnx": "", "fairway_dot_json": '{"batching": "maybe"}'}, UsageError, "Invalid enum value 'maybe'"),
        ({"a_dot_onnx": "", "fairway_dot_json": '{"entry": "gone.onnx"}'}, UsageError, "not a file in the folder"),
        ({"a_dot_onnx": "", "fairway_dot_json": CARD.replace("FP32", "FLOAT").replace("sub/net", "a")}, UsageError, "'FLOAT'"),
        ({"a_dot_onnx": "", "fairway_dot_json": '{"format": "tflite"}'}, RefusedError, "'tflite'"),
    ],
)
def test_what_cannot_be_served_says_why(tmp_path: Path, files: dict[str, str], error: type[FairwayError], words: str) -> None:
    with pytest.raises(error, match=words):
        find(filled(tmp_path, **files))


@pytest.mark.parametrize("name", ["net_dot_pt2", "saved_model_dot_pb"])
@pytest.mark.parametrize("asked", [{}, {"format_": ""}, {"by": "format"}, {"by": "runtime"}])
def test_programs_need_consent(tmp_path: Path, name: str, asked: dict[str, str]) -> None:
    torch = name.startswith("net")
    how = {
        "format": {"format_": "torch-export" if torch else "savedmodel"},
        "runtime": {"runtime": "torch" if torch else "savedmodel"},
    }.get(asked.get("by", ""), {})
    with pytest.raises(RefusedError, match="execute arbitrary code") as refusal:
        find(filled(tmp_path, **{name: ""}), **how)
    assert "--allow-pickle" in refusal.value.fix


def test_a_program_beside_an_onnx_model_needs_consent_too(tmp_path: Path) -> None:
    filled(tmp_path, net_dot_onnx="", x_dot_pt2="", fairway_dot_json='{"format": "onnx", "entry": "net.onnx"}')
    assert find(tmp_path, "onnx").runtime == "onnx"
    filled(tmp_path, fairway_dot_json='{"entry": "x.pt2"}')
    with pytest.raises(RefusedError, match="--allow-pickle"):
        find(tmp_path, "onnx", "torch")


@pytest.mark.parametrize("place", ["../secret", "/etc/hostname", "gone", "", "*/_ORT_MEM_ADDR_/*", "link"])
def test_an_onnx_model_reads_no_file_outside_of_its_folder(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"secret" * 10)
    (folder / "link").symlink_to(tmp_path / "secret")
    tensor = field(8, "w") + field(13, field(1, "location") + field(2, place))
    for hidden in (field(7, field(5, tensor)), field(25, field(7, field(5, field(5, tensor))))):
        (folder / "model.onnx").write_bytes(onnx_file() + hidden)
        with pytest.raises(RefusedError, match="which is not a file in its folder"):
            find(folder, allow_pickle=True)
    (folder / "weights").write_bytes(b"12345678")
    (folder / "model.onnx").write_bytes(onnx_file(external=["weights"]))
    assert find(folder).runtime == "onnx"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is not a folder"):
        find(tmp_path / "gone")
