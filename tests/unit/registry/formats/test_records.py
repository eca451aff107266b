"""Formats that are served without conversion: how they are recognized, what they describe, and which need consent."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import RefusedError
from fairway.registry.formats import ubjson
from fairway.registry.formats.format_table import TABLE
from fairway.registry.formats.model_examination import ModelExamination, examine
from fairway.registry.formats.protobuf import BadMessageError
from fairway.registry.formats.records import skops
from fairway.state.model import ModelSignature, TensorSpec
from fairway.testing.builder.model_file import archive, pickled_file

SAFETENSORS = (2).to_bytes(8, "little") + b"{}"
LOADERS = Path(ubjson.__file__).parents[2] / "serving" / "replica" / "loaders"


def look(folder: Path, files: dict[str, bytes], *, allow_pickle: bool = False, made_here: bool = False) -> ModelExamination:
    places = {}
    for name, written in files.items():
        places[name] = folder / name
        places[name].parent.mkdir(parents=True, exist_ok=True)
        places[name].write_bytes(written)
    return examine(places, allow_pickle=allow_pickle, made_here=made_here)


def refused(folder: Path, files: dict[str, bytes], *, made_here: bool = False) -> str:
    with pytest.raises(RefusedError) as refusal:
        look(folder, files, made_here=made_here)
    return str(refusal.value)


@pytest.mark.parametrize("record", [record for record in TABLE.values() if record.loader], ids=lambda record: record.name)
def test_a_format_that_is_served_has_a_loader(record: Any) -> None:
    assert (LOADERS / f"{record.loader}.py").is_file()


def node(name: str, module: str, content: Any = None, loader: str = "ObjectNode", **more: Any) -> dict[str, Any]:
    return {"__class__": name, "__module__": module, "__loader__": loader, "content": content, **more}


def number(value: int) -> dict[str, Any]:
    return node("str", "builtins", str(value), "JsonNode", is_json=True)


def estimator(
    name: str = "LogisticRegression", module: str = "sklearn.linear_model._logistic", **attributes: Any
) -> dict[str, Any]:
    return node(name, module, node("dict", "builtins", attributes, "DictNode"))


def pipeline(*steps: dict[str, Any]) -> dict[str, Any]:
    listed = [
        node("tuple", "builtins", [node("str", "builtins", '"a"', "JsonNode", is_json=True), step], "TupleNode") for step in steps
    ]
    return estimator("Pipeline", "sklearn.pipeline", steps=node("list", "builtins", listed, "ListNode"))


def skops_file(schema: Any) -> bytes:
    return archive({"schema.json": json.dumps(schema).encode()})


FUNCTION = node("function", "builtins", {"module_path": "os", "function": "system"}, "FunctionNode")


@pytest.mark.parametrize(
    ("schema", "inputs"),
    [
        (estimator(n_features_in_=number(4)), (TensorSpec("input", "FP64", (-1, 4)),)),
        (
            pipeline(estimator(n_features_in_=number(3)), estimator(n_features_in_=number(9))),
            (TensorSpec("input", "FP64", (-1, 3)),),
        ),
        (pipeline(pipeline(estimator(n_features_in_=number(2)))), (TensorSpec("input", "FP64", (-1, 2)),)),
        (pipeline(estimator("TfidfVectorizer"), estimator(n_features_in_=number(9))), (TensorSpec("input", "BYTES", (-1,)),)),
        (pipeline(estimator(), estimator(n_features_in_=number(9))), ()),
        (pipeline(), ()),
        (estimator(n_features_in_=number(-4)), ()),
    ],
)
def test_skops_files_of_trusted_types_need_no_consent(tmp_path: Path, schema: Any, inputs: tuple[TensorSpec, ...]) -> None:
    examined = look(tmp_path, {"model.skops": skops_file(schema)})
    assert (examined.format, examined.signature) == ("skops", ModelSignature(inputs))


@pytest.mark.parametrize(
    ("inner", "named"),
    [
        (node("Model", "mine.models", {}), "mine.models.Model"),
        (FUNCTION, "os.system"),
        (node("eval", "builtins", {}), "builtins.eval"),
        (node("function", "builtins", {"module_path": "sklearn.utils", "function": "x"}, "FunctionNode"), "sklearn.utils.x"),
        (node("Tree", "sklearn.tree._tree", {}), "sklearn.tree._tree.Tree"),
        (node("partial", "functools", {}), "functools.partial"),
    ],
)
def test_skops_types_that_are_not_trusted_need_consent(tmp_path: Path, inner: Any, named: str) -> None:
    files = {"model.skops": skops_file(estimator(n_features_in_=number(4), other=inner))}
    words = refused(tmp_path, files)
    assert named in words
    assert "model.skops holds types that skops does not trust" in words
    assert "--allow-pickle" in words
    assert look(tmp_path, files, made_here=True).format == "skops"


@pytest.mark.parametrize(
    "content",
    [
        b"no zip",
        archive({"other": b""}),
        archive({"schema.json": b"{"}),
        archive({"schema.json": b"[1]"}),
        archive({"../x": b""}),
    ],
)
def test_what_is_no_skops_file_is_refused_even_with_consent(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(RefusedError, match=r"model\.skops"):
        look(tmp_path, {"model.skops": content}, allow_pickle=True)


@given(
    st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["__class__", "content", "a"]), inner),
    )
)
def test_any_schema_can_be_looked_through(schema: Any) -> None:
    skops.untrusted(schema)


def layer(name: str = "Dense", module: str | None = "keras.layers", **more: Any) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": {"name": "a"}, "registered_name": None, **more}


INPUT = {
    "module": "keras.layers",
    "class_name": "InputLayer",
    "config": {"batch_shape": [None, 4], "dtype": "float32", "name": "x"},
}


def keras_file(*layers: dict[str, Any], **more: Any) -> bytes:
    config = {
        "module": "keras",
        "class_name": "Functional",
        "config": {"layers": [INPUT, *layers]},
        "registered_name": "Functional",
        **more,
    }
    return archive({"config.json": json.dumps(config).encode(), "model.weights.h5": b""})


def test_keras_models_of_built_in_layers_need_no_consent(tmp_path: Path) -> None:
    examined = look(
        tmp_path,
        {"model.keras": keras_file(layer(), layer(dtype={"module": "keras", "class_name": "DTypePolicy", "config": {}}))},
    )
    assert (examined.format, examined.signature.inputs) == ("keras", (TensorSpec("x", "FP32", (-1, 4)),))


@pytest.mark.parametrize(
    "content",
    [
        keras_file(layer("Lambda")),
        keras_file(layer("Mine", "mine.layers")),
        keras_file(layer("Mine", None, registered_name="mine>Mine")),
        keras_file(layer("load_model", "keras.models")),
        keras_file(layer("enable_unsafe_deserialization", "keras.config")),
        keras_file(layer("get_file", "keras")),
        keras_file({**layer(), "config": {"activation": {"class_name": "function", "config": "x", "module": "builtins"}}}),
        keras_file({**layer("StringLookup"), "config": {"vocabulary": "/etc/passwd"}}),
        archive({"config.json": b"{}"}),
        b"\x89HDF\r\n\x1a\n",
    ],
)
def test_keras_models_that_can_run_code_need_consent(tmp_path: Path, content: bytes) -> None:
    words = refused(tmp_path, {"model.keras": content})
    assert "model.keras is a Keras model" in words
    assert "--allow-pickle" in words
    assert look(tmp_path, {"model.keras": content}, made_here=True).format == "keras"


def learner(**more: Any) -> dict[str, Any]:
    told = {"num_feature": "4", "num_class": "0", "num_target": "1"} | more.pop("told", {})
    return {
        "learner": {"attributes": {}, "learner_model_param": told, "objective": {"name": "reg:squarederror"}, **more},
        "version": [3, 2, 0],
    }


CLASSIFIER = {"scikit_learn": '{"_estimator_type": "classifier"}'}


def encoded(value: Any) -> bytes:
    """Return a value in UBJSON, as XGBoost writes it."""
    if isinstance(value, dict):
        return (
            b"{"
            + b"".join(b"L" + struct.pack(">q", len(key)) + key.encode() + encoded(each) for key, each in value.items())
            + b"}"
        )
    if isinstance(value, list):
        return b"[#L" + struct.pack(">q", len(value)) + b"".join(map(encoded, value))
    if isinstance(value, int):
        return b"l" + struct.pack(">i", value)
    if isinstance(value, bytes):
        return b"[$d#L" + struct.pack(">q", len(value) // 4) + value
    return b"SL" + struct.pack(">q", len(value)) + value.encode()


@pytest.mark.parametrize(
    ("document", "outputs"),
    [
        (learner(), (TensorSpec("predict", "FP32", (-1,)),)),
        (learner(told={"num_class": "3"}, objective={"name": "multi:softprob"}), (TensorSpec("predict", "FP32", (-1, 3)),)),
        (learner(told={"num_target": "2"}), (TensorSpec("predict", "FP32", (-1, 2)),)),
        (learner(attributes=CLASSIFIER), (TensorSpec("predict", "INT64", (-1,)), TensorSpec("predict_proba", "FP32", (-1, 2)))),
    ],
)
def test_xgboost_tells_its_signature(tmp_path: Path, document: dict[str, Any], outputs: tuple[TensorSpec, ...]) -> None:
    document["learner"]["weights"] = "" * 3
    binary = encoded({**document, "learner": {**document["learner"], "weights": b"12345678"}})
    for name, content in (("model.json", json.dumps(document).encode()), ("model.ubj", binary), ("model.xgb", binary)):
        place = tmp_path / name.replace(".", "-")
        examined = look(place, {name: content})
        assert (examined.format, examined.entry) == ("xgboost", name)
        assert examined.signature == ModelSignature((TensorSpec("input", "FP32", (-1, 4)),), outputs)


@pytest.mark.parametrize(
    "content", [b'{"learner":{', b'{"learner":{}}', b"{" + b"L" + b"\0" * 7 + b"\x07learner{", b'{"learner":[]}']
)
def test_a_damaged_model_of_xgboost_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "not an XGBoost model" in refused(tmp_path, {"model.json": content})


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_read_as_ubjson(data: bytes) -> None:
    for content in (data, b"{L" + struct.pack(">q", 1) + b"a" + data):
        try:
            ubjson.decode(memoryview(content))
        except BadMessageError:
            continue


def test_lightgbm_tells_its_signature(tmp_path: Path) -> None:
    header = b"tree\nversion=v4\nnum_class=3\nnum_tree_per_iteration=3\nmax_feature_idx=4\nfeature_names=a b c d e\n\nTree=0\n"
    examined = look(tmp_path, {"model.txt": header, "notes.txt": b"tree of life"})
    assert (examined.format, examined.entry) == ("lightgbm", "model.txt")
    assert examined.signature == ModelSignature(
        (TensorSpec("input", "FP64", (-1, 5)),), (TensorSpec("predict", "FP64", (-1, 3)),)
    )
    assert "its header lacks" in refused(tmp_path, {"model.txt": b"tree\nversion=v4\n"})


def test_catboost_and_gguf_are_found_by_their_first_bytes(tmp_path: Path) -> None:
    assert look(tmp_path, {"model.cbm": b"CBM1...."}).format == "catboost"
    assert look(tmp_path / "b", {"model.bin": b"CBM1...."}).format == "catboost"
    assert look(tmp_path / "c", {"m.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0)}).format == "gguf"
    assert "is not a GGUF file" in refused(tmp_path / "d", {"m.gguf": b"GGUG" + bytes(20)})
    assert "is not a GGUF file" in refused(tmp_path / "d", {"m.gguf": b"GGUF"})
    assert "version 50331648" in refused(tmp_path / "e", {"m.gguf": b"GGUF" + struct.pack(">IQQ", 3, 0, 0)})


SCRIPT = archive({"m/data.pkl": b"", "m/constants.pkl": b"", "m/code/__torch__.py": b"", "m/version": b"3"})


def test_torchscript_needs_consent(tmp_path: Path) -> None:
    assert "model.pt is a TorchScript program" in refused(tmp_path, {"model.pt": SCRIPT})
    assert look(tmp_path, {"model.pt": SCRIPT}, made_here=True).format == "torchscript"
    assert look(tmp_path / "other", {"model.ts": SCRIPT}, allow_pickle=True).format == "torchscript"


CONFIG = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}


def test_a_folder_of_transformers_with_safe_weights_needs_no_consent(tmp_path: Path) -> None:
    examined = look(
        tmp_path, {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": SAFETENSORS, "tokenizer.json": b"{}"}
    )
    assert (examined.format, examined.entry) == ("transformers", "config.json")
    assert [spec.name for spec in examined.signature.outputs] == ["label", "score", "scores"]
    assert examined.signature.outputs[2].shape == (-1, 3)
    assert look(tmp_path / "other", {"config.json": b'{"a": 1}', "model.safetensors": SAFETENSORS}).format == "safetensors"


@pytest.mark.parametrize(
    ("architecture", "inputs"),
    [("BertModel", ("text",)), ("GPT2LMHeadModel", ()), ("LlamaForCausalLM", ()), ("ViTForImageClassification", ("image",))],
)
def test_the_task_of_a_folder_is_that_of_its_architecture(tmp_path: Path, architecture: str, inputs: tuple[str, ...]) -> None:
    config = {"architectures": [architecture], "hidden_size": 16}
    examined = look(tmp_path, {"config.json": json.dumps(config).encode(), "model.safetensors": SAFETENSORS})
    assert tuple(spec.name for spec in examined.signature.inputs) == inputs


def test_pickled_weights_and_code_of_the_author_need_consent(tmp_path: Path) -> None:
    config = json.dumps(CONFIG).encode()
    assert "pytorch_model.bin is a pickle" in refused(tmp_path, {"config.json": config, "pytorch_model.bin": pickled_file()})
    assert (
        look(tmp_path, {"config.json": config, "pytorch_model.bin": pickled_file()}, allow_pickle=True).format == "transformers"
    )
    for name in ("config.json", "tokenizer_config.json"):
        coded = json.dumps({**CONFIG, "auto_map": {"AutoModel": "modeling_mine.Mine"}}).encode()
        files = {"config.json": config, "model.safetensors": SAFETENSORS, name: coded}
        words = refused(tmp_path / f"of-{name}", files)
        assert f"{name} names custom code for transformers (modeling_mine.Mine)" in words


def mlmodel(flavors: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"flavors": flavors, **more}).encode()


LIGHTGBM = b"tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\nTree=0\n"
FUNCTION_OF = {"python_function": {"loader_module": "mlflow.pyfunc.model"}}


def test_an_mlflow_folder_is_served_by_its_flavour(tmp_path: Path) -> None:
    flavors = {"lightgbm": {"data": "model.lgb"}, "python_function": {"loader_module": "mlflow.lightgbm"}}
    examined = look(tmp_path, {"MLmodel": mlmodel(flavors), "model.lgb": LIGHTGBM, "conda.yaml": b"a: 1"})
    assert (examined.format, examined.entry) == ("lightgbm", "model.lgb")
    files = {"art/MLmodel": mlmodel(flavors), "art/model.lgb": LIGHTGBM, "model.txt": LIGHTGBM}
    assert look(tmp_path / "deep", files).entry == "art/model.lgb"


def test_python_code_in_an_mlflow_folder_needs_consent_and_mlflow(tmp_path: Path) -> None:
    inputs = '[{"type": "double", "name": "a"}, {"type": "string", "name": "b"}]'
    files = {"MLmodel": mlmodel(FUNCTION_OF, signature={"inputs": inputs, "outputs": None}), "python_model.pkl": b"\x80\x04."}
    assert "MLmodel (and 1 more) is an MLflow model that mlflow.pyfunc.model loads" in refused(tmp_path, files, made_here=True)
    examined = look(tmp_path, files, allow_pickle=True)
    assert (examined.format, examined.entry) == ("mlflow", "MLmodel")
    assert examined.signature.inputs == (TensorSpec("a", "FP64", (-1,)), TensorSpec("b", "BYTES", (-1,)))


def test_the_signature_of_mlflow_counts_where_the_file_tells_none(tmp_path: Path) -> None:
    flavors = {"sklearn": {"pickled_model": "model.pkl"}, "python_function": {"loader_module": "mlflow.sklearn"}}
    tensor = '[{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 4]}}]'
    files = {"MLmodel": mlmodel(flavors, signature={"inputs": tensor}), "model.pkl": b"\x80\x04."}
    examined = look(tmp_path, files, allow_pickle=True)
    assert (examined.format, examined.signature.inputs) == ("pickle", (TensorSpec("input", "FP64", (-1, 4)),))
    mixed = '[{"type": "double", "name": "a"}, {"type": "string", "name": "b"}]'
    examined = look(tmp_path, files | {"MLmodel": mlmodel(flavors, signature={"inputs": mixed})}, allow_pickle=True)
    assert [spec.name for spec in examined.signature.inputs] == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"a: [", b"flavors: 3", b"- 1", b"\xff\xfe"])
def test_an_mlmodel_file_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "MLmodel" in refused(tmp_path, {"MLmodel": content, "model.lgb": LIGHTGBM})


def test_an_mlflow_model_that_only_mlflow_loads_needs_consent(tmp_path: Path) -> None:
    flavors = {"sklearn": {}, "python_function": {"loader_module": "evil"}}
    words = refused(tmp_path, {"MLmodel": mlmodel(flavors), "code/evil.py": b"import os"}, made_here=True)
    assert "MLmodel is an MLflow model that only MLflow's own loader loads" in words
    files = {"MLmodel": mlmodel({"lightgbm": {}, **flavors}), "model.lgb": LIGHTGBM}
    assert look(tmp_path / "other", files).format == "lightgbm"
