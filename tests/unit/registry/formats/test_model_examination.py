"""Recognizing model files, and which are refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import RefusedError
from fairway.registry.formats import file_content, onnx, savedmodel
from fairway.registry.formats.model_examination import ModelExamination, examine
from fairway.registry.formats.protobuf import BadMessageError
from fairway.state.model import ModelSignature, TensorSpec
from fairway.testing.builder.model_file import (
    archive,
    exported_file,
    field,
    onnx_file,
    onnx_graph,
    pickled_file,
    savedmodel_file,
    varint,
)

ONNX = onnx_file()
SAFETENSORS = (2).to_bytes(8, "little") + b"{}"
CLASS = b"class Model:\n    def predict(self, inputs):\n        return inputs\n"
DATATYPES_ONNX = [
    "FP32",
    "UINT8",
    "INT8",
    "UINT16",
    "INT16",
    "INT32",
    "INT64",
    "BYTES",
    "BOOL",
    "FP16",
    "FP64",
    "UINT32",
    "UINT64",
]


def look(
    folder: Path, files: dict[str, bytes], asked: str = "", *, allow_pickle: bool = False, made_here: bool = False
) -> ModelExamination:
    places = {}
    for name, written in files.items():
        places[name] = folder / name.replace("/", "+")
        places[name].write_bytes(written)
    return examine(places, asked=asked, allow_pickle=allow_pickle, made_here=made_here)


@pytest.mark.parametrize(
    ("files", "asked", "format", "entry"),
    [
        ({"m.onnx": ONNX}, "", "onnx", "m.onnx"),
        ({"a.onnx": ONNX, "model.onnx": ONNX, "deep/x.onnx": ONNX}, "", "onnx", "model.onnx"),
        ({"deep/m.onnx": ONNX, "vocab.txt": b"x", "weights.bin": b"plain"}, "", "onnx", "deep/m.onnx"),
        ({"m.pt2": exported_file()}, "", "torch-export", "m.pt2"),
        ({"m.pt": exported_file()}, "", "torch-export", "m.pt"),
        ({"saved_model.pb": savedmodel_file([], [("y", 1, (1,))])}, "", "savedmodel", "saved_model.pb"),
        ({"a.safetensors": SAFETENSORS, "b.safetensors": SAFETENSORS}, "", "safetensors", "a.safetensors"),
        ({"m.onnx": ONNX, "w.safetensors": SAFETENSORS}, "safetensors", "safetensors", "w.safetensors"),
        ({"model.py": CLASS}, "python", "python", "model.py"),
        ({"model.py": CLASS, "m.onnx": ONNX}, "", "onnx", "m.onnx"),
    ],
)
def test_the_format_is_found_from_the_files(tmp_path: Path, files: dict[str, bytes], asked: str, format: str, entry: str) -> None:
    examined = look(tmp_path, files, asked, made_here=True)
    assert (examined.format, examined.entry) == (format, entry)


@pytest.mark.parametrize(
    ("files", "asked", "words"),
    [
        ({"notes.txt": b"x"}, "", "no model of a known format is among notes.txt"),
        ({}, "", "among nothing"),
        ({"model.py": CLASS}, "", "--format python"),
        ({"model.py": b"class Other: pass"}, "python", "has no class Model"),
        ({"model.py": b"def (:"}, "python", "is not valid Python"),
        ({"m.onnx": ONNX}, "savedmodel", "no savedmodel model is among"),
        ({"m.onnx": ONNX}, "cobol", "there is no format 'cobol'"),
        ({"a.onnx": ONNX, "b.onnx": ONNX}, "", "a.onnx and b.onnx are all onnx"),
        ({"m.onnx": b""}, "", "m.onnx is not an ONNX model"),
        ({"m.onnx": b"\x80\x04pickle"}, "", "m.onnx is not an ONNX model"),
        ({"m.onnx": b"\xff" * 40}, "", "m.onnx is not an ONNX model"),
        ({"m.onnx": onnx_file(outputs=())}, "", "its graph has no outputs"),
        ({"saved_model.pb": b"\x07"}, "", "is not a SavedModel"),
        ({"m.safetensors": b"{}"}, "", "is not a safetensors file"),
        ({"m.safetensors": (99).to_bytes(8, "little") + b"{}"}, "", "is not a safetensors file"),
        ({"m.pt2": b"no zip"}, "", "was not written by torch.export.save"),
        ({"m.pt2": pickled_file()}, "", "was not written by torch.export.save"),
        ({"m.pt2": archive({"m/archive_format": b"pt2", "m/../../x": b"1"})}, "", "leads out of the archive"),
        ({"m.pt2": archive({"m/archive_format": b"pt2", "/etc/x": b"1"})}, "", "leads out of the archive"),
        ({"m.pt2": b"PK\x03\x04" + b"x" * 30 + b"PK\x05\x06" + b"\0" * 18}, "", "m.pt2"),
        ({"m.onnx": onnx_file(external=["../../etc/passwd"])}, "", "outside of its folder"),
        ({"m.onnx": onnx_file(external=["/etc/passwd"])}, "", "outside of its folder"),
        ({"m.onnx": onnx_file(external=["..\\x"])}, "", "outside of its folder"),
        ({"m.onnx": onnx_file(external=["w.data"])}, "", "'w.data', which is missing"),
        ({"m.onnx": onnx_file(within=onnx_graph(onnx_file(external=["../w"])))}, "", "outside of its folder"),
    ],
)
def test_what_is_something_else_is_refused(tmp_path: Path, files: dict[str, bytes], asked: str, words: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        look(tmp_path, files, asked)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.pkl", b""),
        ("deep/m.PICKLE", b"x"),
        ("m.joblib", b"x"),
        ("m.pt", pickled_file()),
        ("m.pth", b"\x80\x02}q"),
        ("m.pt", b"an older format"),
        ("pytorch_model.bin", pickled_file()),
        ("m.bin", b"\x80\x04\x95"),
        ("m.ckpt", pickled_file()),
    ],
)
def test_a_pickle_is_refused_wherever_it_lies(tmp_path: Path, name: str, content: bytes) -> None:
    for files in ({name: content}, {"m.onnx": ONNX, name: content}):
        with pytest.raises(RefusedError, match="is a pickle") as refusal:
            look(tmp_path, files)
        assert "--allow-pickle" in refusal.value.fix
    assert look(tmp_path, {name: content}, allow_pickle=True).format == "pickle"
    assert look(tmp_path, {"m.onnx": ONNX, name: content}, allow_pickle=True).format == "onnx"


KERAS_H5 = b"\x89HDF\r\n\x1a\n" + b"\0" * (1 << 20) + b"model_config\0{}"


@pytest.mark.parametrize(
    ("name", "content", "alone"),
    [
        ("m.pt2", exported_file(), "torch-export"),
        ("M.PT2", exported_file(), ""),
        ("m.pt", exported_file(), "torch-export"),
        ("saved_model.pb", savedmodel_file([], [("y", 1, (1,))]), "savedmodel"),
        ("deep/saved_model.pb", savedmodel_file([], [("y", 1, (1,))]), "savedmodel"),
        ("saved_model.pbtxt", b"x", ""),
        ("m.keras", archive({"config.json": b"{}"}), "keras"),
        ("m.h5", KERAS_H5, "keras"),
        ("m.hdf5", KERAS_H5, "keras"),
    ],
)
def test_programs_need_consent_wherever_they_lie(tmp_path: Path, name: str, content: bytes, alone: str) -> None:
    both = {"m.onnx": ONNX, name: content}
    for files in ({name: content}, both) if alone else (both,):
        with pytest.raises(RefusedError, match="execute arbitrary code") as refusal:
            look(tmp_path, files)
        assert "--allow-pickle" in refusal.value.fix
    assert look(tmp_path, both, allow_pickle=True).format == "onnx"
    assert look(tmp_path, both, made_here=True).format == "onnx"
    if alone:
        assert look(tmp_path, {name: content}, allow_pickle=True).format == alone


def test_a_run_of_ones_own_gives_no_consent_for_pickles(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="is a pickle") as refusal:
        look(tmp_path, {"m.pt2": exported_file(), "m.pt": pickled_file()}, made_here=True)
    assert "--allow-pickle" in refusal.value.fix


def test_weights_of_keras_alone_are_data(tmp_path: Path) -> None:
    assert look(tmp_path, {"m.onnx": ONNX, "m.weights.h5": b"\x89HDF\r\n\x1a\n" + b"\0" * 90}).format == "onnx"


def test_the_entry_that_is_named_must_be_of_the_format(tmp_path: Path) -> None:
    evil = onnx_file(external=["../../etc/passwd"])
    with pytest.raises(RefusedError, match=r"names 'x\.bin' as the model's file, which is not onnx"):
        look(tmp_path, {"m.onnx": ONNX, "x.bin": evil, "fairway.json": b'{"entry": "x.bin"}'})


OUTSIDE = field(8, "w") + field(13, field(1, "location") + field(2, "../../secret")) + field(14, 1)
"""A tensor with its content outside of the folder."""
CONSTANT = field(5, field(1, "value") + field(5, OUTSIDE))


@pytest.mark.parametrize(
    "more",
    [
        field(7, field(5, OUTSIDE)) + field(7, b""),
        field(7, b"") + field(7, field(5, OUTSIDE)),
        field(7, field(15, field(1, OUTSIDE))),
        field(7, field(15, field(2, OUTSIDE))),
        field(7, field(1, CONSTANT)),
        field(7, field(1, field(5, field(10, OUTSIDE)))),
        field(7, field(1, field(5, field(22, field(1, OUTSIDE))))),
        field(7, field(1, field(5, field(23, field(2, OUTSIDE))))),
        field(7, field(1, field(5, field(6, field(1, CONSTANT))))),
        field(7, field(1, field(5, field(11, field(5, OUTSIDE))))),
        field(25, field(7, CONSTANT)),
        field(25, field(11, field(5, OUTSIDE))),
        field(25, field(7, field(5, field(6, field(5, OUTSIDE))))),
        field(20, field(1, field(5, OUTSIDE))),
        field(20, field(2, field(1, CONSTANT))),
        field(7, field(5, field(13, field(1, "other") + field(2, "../../secret") + field(1, "location")))),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_weights_outside_are_found_in_every_part_of_the_merged_model(tmp_path: Path, more: bytes, first: bool) -> None:
    content = more + ONNX if first else ONNX + more
    with pytest.raises(RefusedError, match="outside of its folder") as refusal:
        look(tmp_path, {"m.onnx": content}, allow_pickle=True)
    assert "--allow-pickle" in refusal.value.message


def test_the_signature_is_that_of_the_merged_model(tmp_path: Path) -> None:
    whole = onnx_graph(onnx_file())
    found = look(tmp_path, {"m.onnx": field(7, whole) + field(7, b"")}).signature
    assert (len(found.inputs), len(found.outputs)) == (1, 1)


def test_a_tag_of_more_than_32_bits_hides_nothing(tmp_path: Path) -> None:
    graph = field(5, OUTSIDE)
    tag = varint(1 << 34 | 7 << 3 | 2)
    with pytest.raises(RefusedError, match="is not an ONNX model"):
        look(tmp_path, {"m.onnx": ONNX + tag + varint(len(graph)) + graph})


def test_data_beside_a_model_is_no_pickle(tmp_path: Path) -> None:
    files = {"m.onnx": onnx_file(external=["w.bin"]), "w.bin": b"\x80\x00\x00\x00", "x.bin": b"", "y.bin": archive({"a": b"1"})}
    assert look(tmp_path, files).format == "onnx"


def test_onnx_tells_names_types_and_shapes(tmp_path: Path) -> None:
    codes = [*range(1, 14), 16]
    inputs = [(f"i{code}", code, ("n", code)) for code in codes] + [("scalar", 1, ()), ("w", 1, (2,))]
    found = look(tmp_path, {"m.onnx": onnx_file(inputs, weights=["w"])}).signature
    assert [spec.datatype for spec in found.inputs] == [*DATATYPES_ONNX, "BF16", "FP32"]
    assert found.inputs[0] == TensorSpec("i1", "FP32", (-1, 1))
    assert found.inputs[-1] == TensorSpec("scalar", "FP32", ())
    assert found.outputs == (TensorSpec("y", "FP32", (-1, 2)),)


def test_a_saved_model_tells_its_served_signature(tmp_path: Path) -> None:
    content = savedmodel_file([("b", 9, ("n",)), ("a", 7, ("n", 3))], [("y", 19, ("n",))])
    found = look(tmp_path, {"saved_model.pb": content}, made_here=True).signature
    assert found.inputs == (TensorSpec("a", "BYTES", (-1, 3)), TensorSpec("b", "INT64", (-1,)))
    assert found.outputs == (TensorSpec("y", "FP16", (-1,)),)
    other = savedmodel_file([], [("z", 1, ())], name="mine")
    assert look(tmp_path, {"saved_model.pb": other}, made_here=True).signature.outputs == (TensorSpec("z", "FP32", ()),)


SAID = {
    "format": "torch-export",
    "entry": "net.pt2",
    "signature": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}], "outputs": []},
    "metrics": {"loss": 0.5},
    "generates": False,
    "other": [1],
}


def test_what_the_exporter_says_is_believed_where_the_file_does_not_tell(tmp_path: Path) -> None:
    files = {"fairway.json": json.dumps(SAID).encode(), "net.pt2": exported_file(), "other.pt2": exported_file()}
    examined = look(tmp_path, files, made_here=True)
    assert examined == ModelExamination(
        "torch-export", "net.pt2", ModelSignature((TensorSpec("x", "FP32", (-1, 3)),)), {"loss": 0.5}
    )
    wrong = {**SAID, "format": "onnx", "entry": "m.onnx"}
    told = look(tmp_path, {"fairway.json": json.dumps(wrong).encode(), "m.onnx": ONNX})
    assert told.signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "cobol"}, "format is 'cobol'"),
        ({"format": "python"}, "--format python"),
        ({"entry": "../../etc/passwd"}, "names '../../etc/passwd'"),
        ({"signature": {"inputs": [{"name": "x", "datatype": "float"}]}}, "datatype of 'x' is 'float'"),
        ({"signature": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2]}]}}, "shape of 'x' is [-2]"),
        ({"signature": 3}, "fairway.json is wrong"),
        ({"batching": "maybe"}, "fairway.json is wrong: Invalid enum value 'maybe'"),
        ({"metrics": {"a": "b"}}, "fairway.json is wrong"),
    ],
)
def test_an_about_file_that_is_wrong_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    content = json.dumps({**SAID, **change}).encode()
    with pytest.raises(RefusedError) as refusal:
        look(tmp_path, {"fairway.json": content, "net.pt2": exported_file()})
    assert words in str(refusal.value)


@given(st.binary(max_size=300))
def test_readers_survive_any_bytes(data: bytes) -> None:
    for read in (onnx.signature, onnx.external_files, savedmodel.signature):
        try:
            read(memoryview(data))  # type: ignore[operator]
        except BadMessageError:
            continue


@given(st.binary(max_size=60), st.integers(0, 400))
def test_readers_survive_damage_within_a_model(noise: bytes, place: int) -> None:
    model = onnx_file(external=["w"], within=onnx_graph(onnx_file()))
    broken = memoryview(model[:place] + noise + model[place + len(noise) :])
    for read in (onnx.signature, onnx.external_files):
        try:
            read(broken)  # type: ignore[operator]
        except BadMessageError:
            continue


@given(st.binary(max_size=40), st.integers(0, 500))
def test_damaged_archives_are_refused_or_read(noise: bytes, place: int) -> None:
    whole = exported_file()
    with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
        file.write(whole[:place] + noise + whole[place + len(noise) :])
        file.flush()
        try:
            said = examine({"m.pt2": Path(file.name)}, made_here=True).entry
        except RefusedError as refusal:
            said = refusal.message
        assert "m.pt2" in said


def test_a_large_model_is_looked_into_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "WHOLE", 10)
    (tmp_path / "m.onnx").write_bytes(ONNX)
    assert examine({"m.onnx": tmp_path / "m.onnx"}, kept=False).signature == ModelSignature()
    assert examine({"m.onnx": tmp_path / "m.onnx"}).signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)


def test_graphs_without_end_are_refused(tmp_path: Path) -> None:
    graph = onnx_graph(onnx_file())
    for _ in range(40):
        graph = onnx_graph(onnx_file(within=graph))
    with pytest.raises(RefusedError, match="too deep"):
        look(tmp_path, {"m.onnx": field(7, graph)})


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, -1, 2**63 - 1])
def test_numbers_are_written_as_they_are_read(value: int) -> None:
    from fairway.registry.formats.protobuf import integer

    assert integer(memoryview(varint(3 << 3) + varint(value)), 3) == value
