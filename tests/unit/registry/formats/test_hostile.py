"""Model files that are damaged or malicious: each is refused at once with a clear message, and none bypasses the consent."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fairway.errors import RefusedError
from fairway.registry.blob import BlobStore
from fairway.registry.formats.model_examination import ModelExamination, examine
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import archive

SAFETENSORS = (2).to_bytes(8, "little") + b"{}"
BERT = {"model_type": "bert", "architectures": ["BertModel"]}
NUMBERS = (2**63, 10**30, -(2**63), 1e308, float("inf"), float("nan"), "abc", "9" * 5000, [], {}, None, True)
ABOUT_ONE = {"flavors": {"onnx": {}}}


def look(folder: Path, files: dict[str, Any], *, allow_pickle: bool = False) -> ModelExamination:
    places = {}
    for name, written in files.items():
        places[name] = folder / name
        places[name].parent.mkdir(parents=True, exist_ok=True)
        places[name].write_bytes(written if isinstance(written, bytes) else json.dumps(written).encode())
    return examine(places, allow_pickle=allow_pickle)


def words(folder: Path, files: dict[str, Any], *, allow_pickle: bool = False) -> str:
    with pytest.raises(RefusedError) as refusal:
        look(folder, files, allow_pickle=allow_pickle)
    return str(refusal.value)


def keras(**config: Any) -> bytes:
    return archive({"config.json": json.dumps({"class_name": "Functional", "module": "keras", "config": config}).encode()})


def keras_input(name: Any, length: Any) -> bytes:
    layer = {"name": name, "batch_shape": [None, length], "dtype": "float32"}
    return keras(layers=[{"class_name": "InputLayer", "module": "keras.layers", "config": layer}])


def skops(content: Any) -> bytes:
    features = {"__class__": "str", "__module__": "builtins", "is_json": True, "content": content}
    held = {"__class__": "dict", "__module__": "builtins", "content": {"n_features_in_": features}}
    schema = {"__class__": "Ridge", "__module__": "sklearn.linear_model", "__loader__": "ObjectNode", "content": held}
    return archive({"schema.json": json.dumps(schema).encode()})


def mlmodel(length: Any) -> bytes:
    tensors = json.dumps([{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, length]}}])
    return json.dumps({"flavors": {"own": {}}, "signature": {"inputs": tensors}}).encode()


def folders_with(value: Any) -> dict[str, dict[str, Any]]:
    """Return models whose files have this value where a number, a name or a list is expected."""
    learner = {"learner_model_param": {"num_feature": value, "num_class": value}, "objective": {"name": value}}
    weights = {"model.safetensors": SAFETENSORS}
    return {
        "labels": {"config.json": {"architectures": ["AForImageClassification"], "num_labels": value}, **weights},
        "width": {"config.json": {**BERT, "hidden_size": value}, **weights},
        "architectures": {"config.json": {"model_type": value, "architectures": value, "auto_map": value}, **weights},
        "keras": {"m.keras": keras_input("a", value)},
        "keras-name": {"m.keras": keras_input(value, 1)},
        "keras-class": {"m.keras": archive({"config.json": json.dumps({"class_name": value, "module": value}).encode()})},
        "xgboost": {"m.json": {"learner": learner}},
        "lightgbm": {"m.txt": f"tree\nversion=v4\nmax_feature_idx={value}\nnum_tree_per_iteration={value}\n".encode()},
        "skops": {"m.skops": skops(value)},
        "skops-class": {"m.skops": archive({"schema.json": json.dumps({"__class__": value, "__module__": value}).encode()})},
        "mlflow": {"MLmodel": mlmodel(value)},
        "fairway": {
            "fairway.json": {"signature": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [value]}]}},
            **weights,
        },
    }


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize("kind", folders_with(1))
def test_any_value_is_refused_or_read_as_a_signature_that_can_be_kept(tmp_path: Path, kind: str, value: Any) -> None:
    folder = tmp_path / "model"
    try:
        look(folder, folders_with(value)[kind], allow_pickle=True)
    except RefusedError:
        return
    models = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    version = models.register("m", str(folder), ModelFacts(allow_pickle=True), 1.0)
    again = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    assert again.get("m").signature == version.signature
    assert all(-1 <= length < 2**63 for spec in version.signature.inputs for length in spec.shape)


def bomb(last: str) -> bytes:
    """Return nested lists: short as YAML, and larger than any memory when expanded."""
    lines = ["a0: &a0 [x]", *(f"a{depth}: &a{depth} [{', '.join([f'*a{depth - 1}'] * 10)}]" for depth in range(1, 30))]
    return "\n".join([*lines, last]).encode()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "content",
    [
        bomb("flavors: {python_function: {loader_module: *a29}}"),
        "\n".join(
            [
                "a0: &a0 {k: 1}",
                *(f"a{depth}: &a{depth} {{<<: [{', '.join([f'*a{depth - 1}'] * 10)}]}}" for depth in range(1, 30)),
                "flavors: {python_function: {loader_module: evil}}",
            ]
        ).encode(),
        b"flavors: {python_function: {loader_module: evil}, n: " + b"1:" * 100_000 + b"1}",
        b"flavors: &a {onnx: *a, python_function: {loader_module: *a}}",
    ],
    ids=["lists", "merged", "sixties", "loop"],
)
def test_an_mlmodel_that_grows_when_it_is_read_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    assert "MLmodel" in words(tmp_path, {"MLmodel": content})


def test_a_refusal_can_be_printed(tmp_path: Path) -> None:
    loader = '"\\ud800\\e[2J' + "x" * 100_000 + '"'
    said = words(tmp_path, {"MLmodel": f"flavors: {{python_function: {{loader_module: {loader}}}}}".encode()})
    assert said.encode()
    assert "\x1b" not in said
    assert len(said) < 1000


def test_an_archive_that_has_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", '{"class_name": "Lambda"}')
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("config.json", '{"class_name": "Functional", "module": "keras"}')
    assert "m.keras holds 'config.json' twice" in words(tmp_path, {"m.keras": path.read_bytes()}, allow_pickle=True)


@pytest.mark.parametrize("content", [b"cposix\nsystem\n(S'x'\ntR.", b"L119547037146038801333356L\n.", b"", b"\x78\x9c"])
def test_weights_that_transformers_would_unpickle_need_consent(tmp_path: Path, content: bytes) -> None:
    for name in ("pytorch_model.bin", "pytorch_model-00001-of-00002.bin"):
        assert f"{name} is a pickle" in words(tmp_path / name, {"config.json": BERT, name: content})
        files = {"config.json": BERT, "model.safetensors": SAFETENSORS, name: content}
        assert f"{name} is a pickle" in words(tmp_path / f"beside-{name}", files)


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_pickled_parts_under_any_name_need_consent(tmp_path: Path, index: str) -> None:
    parts = {"weight_map": {"a": "part.safetensors", "b": "part.dat"}}
    files = {"config.json": BERT, "part.safetensors": SAFETENSORS, "part.dat": b"\x80\x02.", index: parts}
    assert f"{index} names weights that are not safetensors files (part.dat)" in words(tmp_path, files)
    assert look(tmp_path / "trusted", files, allow_pickle=True).format == "transformers"
    safe = {**files, index: {"weight_map": {"a": "part.safetensors"}}}
    assert look(tmp_path / "safe", safe).format == "transformers"


@pytest.mark.parametrize("where", ["../outside.safetensors", "/etc/x.safetensors", 3])
def test_parts_outside_of_the_folder_are_refused(tmp_path: Path, where: Any) -> None:
    index = {"weight_map": {"a": where}}
    files = {"config.json": BERT, "model.safetensors": SAFETENSORS, "model.safetensors.index.json": index}
    assert "model.safetensors.index.json" in words(tmp_path, files, allow_pickle=True)


def gguf(tensors: int, values: int, rest: bytes = b"") -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, tensors, values) + rest


@pytest.mark.parametrize(("tensors", "values"), [(2**63, 0), (0, 2**63), (2**64 - 1, 2**64 - 1), (1, 0), (0, 1)])
def test_a_language_model_that_is_cut_short_is_refused(tmp_path: Path, tensors: int, values: int) -> None:
    assert "m.gguf is cut short" in words(tmp_path, {"m.gguf": gguf(tensors, values, b"\0" * 7)})


@pytest.mark.parametrize(
    "content",
    [
        (4).to_bytes(8, "little") + b"{abc",
        (2**63).to_bytes(8, "little") + b"{}",
        b"\x02",
        b"",
        (57).to_bytes(8, "little") + b'{"a": {"dtype": "F32", "shape": [4], "data_offsets":[0,16]}}'[:57],
    ],
)
def test_damaged_weights_are_refused(tmp_path: Path, content: bytes) -> None:
    assert "is not a safetensors file" in words(tmp_path, {"m.safetensors": content})
    assert "is not a safetensors file" in words(tmp_path / "folder", {"config.json": BERT, "model.safetensors": content})


def test_weights_that_end_early_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + b"\0" * 16
    assert look(tmp_path / "whole", {"m.safetensors": whole}).format == "safetensors"
    assert "m.safetensors is cut short: it has 15 of 16 bytes of weights" in words(tmp_path, {"m.safetensors": whole[:-1]})
