"""Keras: an architecture as JSON, and weights. Lambda layers, third-party classes and HDF5 files can run code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from fairway.registry.formats import zip_archive
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage
from fairway.state.model import ModelSignature, TensorSpec

_CONFIG = "config.json"
_HDF5 = frozenset({".h5", ".hdf5"})
_MARK = b"model_config"
"""The attribute of an HDF5 file that holds the layers of a Keras model; a file of weights alone does not have it."""
_PIECE = 1 << 20
_DATA = frozenset(
    {
        "keras.layers", "keras.initializers", "keras.regularizers", "keras.constraints", "keras.optimizers",
        "keras.optimizers.schedules", "keras.losses", "keras.metrics", "keras.activations", "keras.dtype_policies",
        "keras.src.models.functional", "keras.src.models.sequential",
    }
)  # fmt: skip
"""Modules whose classes Keras builds from their configuration alone."""
_TOP = frozenset({"Functional", "Sequential", "DTypePolicy", "FloatDTypePolicy", "Variable"})
"""Such classes of the module `keras`, which also has functions that read and write files."""
_CODE = frozenset({"Lambda", "__lambda__", "TorchModuleWrapper", "TFSMLayer", "JaxLayer", "FlaxLayer", "function"})
_WORDS = {
    "float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "bool": "BOOL", "string": "BYTES",
}  # fmt: skip


def _risk(name: str, path: Path) -> LoadRisk | None:
    suffix = PurePosixPath(name.lower()).suffix
    if suffix in _HDF5:
        return LoadRisk("is a Keras model in HDF5") if _holds(path, _MARK) else None
    if suffix != ".keras":
        return None
    if not zip_archive.is_archive(path):
        return LoadRisk("is a Keras model in HDF5")
    config = zip_archive.read_json(name, path, _CONFIG)
    if not isinstance(config, dict) or "class_name" not in config:
        return LoadRisk("is a Keras model whose configuration names no class")
    code = sorted(set(_code(config)))
    return LoadRisk(f"is a Keras model with custom code ({', '.join(code[:5])})") if code else None


def _code(config: Any) -> Iterator[str]:
    """Yield the parts of a configuration that run code, or import what its author names."""
    pending = [config]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            pending.extend(value.values())
            if "class_name" in value:
                name, module = str(value["class_name"]), value.get("module")
                harmless = module in _DATA or (module == "keras" and name in _TOP)
                registered = module is None and value.get("registered_name") not in (None, name)
                if name in _CODE or registered or (isinstance(module, str) and not harmless and _is_object(module, value)):
                    yield f"{module}.{name}" if isinstance(module, str) and not harmless else name
            if isinstance(value.get("vocabulary"), str):
                yield f"the vocabulary {value['vocabulary']!r}"


def _is_object(module: str, value: dict[str, Any]) -> bool:
    """Return whether a node names a class. Plain Python values and arrays are nodes too."""
    return not (module == "builtins" and value.get("class_name") in ("slice", "tuple", "set", "bytes"))


def _holds(path: Path, mark: bytes) -> bool:
    """Return whether the bytes occur anywhere in a file."""
    rest = b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            if mark in rest + piece:
                return True
            rest = piece[-len(mark) :]
    return False


def _models(files: Files) -> list[str]:
    suffixes = {name: PurePosixPath(name.lower()).suffix for name in files}
    whole = [name for name, suffix in suffixes.items() if suffix == ".keras"]
    return whole or [name for name, suffix in suffixes.items() if suffix in _HDF5 and _holds(files[name], _MARK)]


def _signature(files: Files, entry: str) -> ModelSignature:
    """Return the inputs, if the configuration gives them. The outputs are found when the model is loaded."""
    if not zip_archive.is_archive(files[entry]):
        return ModelSignature()
    config = zip_archive.read_json(entry, files[entry], _CONFIG)
    try:
        inputs = {
            layer["config"]["name"]: layer["config"]
            for layer in config["config"]["layers"]
            if layer["class_name"] == "InputLayer"
        }
        specs = [_spec(inputs[name]) for name in _names(config["config"].get("input_layers"))] or list(
            map(_spec, inputs.values())
        )
    except (KeyError, TypeError, AttributeError):
        return ModelSignature()
    return ModelSignature(tuple(spec for spec in specs if spec is not None))


def _names(layers: Any) -> list[str]:
    """Return the names of the input layers in order, from one `[name, 0, 0]`, a list of these, or a mapping of them."""
    if isinstance(layers, dict):
        layers = list(layers.values())
    if not isinstance(layers, list) or not layers:
        return []
    return [layers[0]] if isinstance(layers[0], str) else [layer[0] for layer in layers]


def _spec(layer: dict[str, Any]) -> TensorSpec | None:
    shape = layer.get("batch_shape") or layer.get("batch_input_shape")
    datatype = _WORDS.get(str(layer.get("dtype")))
    if not isinstance(shape, list) or datatype is None:
        return None
    return TensorSpec(str(layer["name"]), datatype, tuple(-1 if length is None else int(length) for length in shape))


RECORD = ModelFormat(
    "keras",
    "a file NAME.keras",
    _models,
    _signature,
    _risk,
    loader="keras_model",
    packages=(
        (RequiredPackage("keras", "keras"),),
        (RequiredPackage("tensorflow", "tensorflow"), RequiredPackage("torch", "torch"), RequiredPackage("jax", "jax")),
    ),
)
