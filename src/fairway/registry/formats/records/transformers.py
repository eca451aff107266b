"""Folders of `transformers`: a configuration, weights and a tokenizer. Code of the author and pickled weights need consent."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from fairway.errors import RefusedError
from fairway.registry.formats.file_content import json_object
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage
from fairway.registry.formats.records import safetensors
from fairway.registry.manifest import stays_inside
from fairway.state.model import ModelSignature, TensorSpec

_CONFIG = "config.json"
_CONFIGS = frozenset({_CONFIG, "tokenizer_config.json", "processor_config.json", "preprocessor_config.json"})
_INDEXES = frozenset({"model.safetensors.index.json", "pytorch_model.bin.index.json"})
_PIPELINES = "custom_pipelines"
TEXT, IMAGE = "text", "image"


def _models(files: Files) -> list[str]:
    return [name for name in files if PurePosixPath(name).name == _CONFIG and _is_model(files, name)]


def _is_model(files: Files, name: str) -> bool:
    folder = PurePosixPath(name).parent
    weights = any(PurePosixPath(other).parent == folder and _is_weights(PurePosixPath(other)) for other in files)
    return weights and bool({"model_type", "architectures"} & json_object(files[name]).keys())


def _is_weights(path: PurePosixPath) -> bool:
    return path.suffix == ".safetensors" or (path.suffix == ".bin" and path.name.startswith("pytorch_model"))


def _risk(name: str, path: Path) -> LoadRisk | None:
    """Return the risk of a file: weights in the list of parts that are not safetensors, or code of the author.

    Pickled weights with the usual names are found by the record of pickles.
    """
    if PurePosixPath(name).name in _INDEXES:
        others = [
            part for part in _parts(path, name) if not part.endswith(".safetensors") and not _is_weights(PurePosixPath(part))
        ]
        return (
            LoadRisk(f"names weights that are not safetensors files ({', '.join(sorted(others)[:3])})", always=True)
            if others
            else None
        )
    if PurePosixPath(name).name not in _CONFIGS:
        return None
    config = json_object(path)
    code = config.get("auto_map") or config.get(_PIPELINES)
    return LoadRisk(f"names custom code for transformers ({_names(code)}), which trust_remote_code runs") if code else None


def _parts(path: Path, name: str) -> set[str]:
    """Return the files of weights that come in parts; raise `RefusedError` for one outside of the folder."""
    parts = json_object(path).get("weight_map")
    names = set(parts.values()) if isinstance(parts, dict) else set()
    for part in names:
        if not isinstance(part, str) or not stays_inside(name, part) or "\\" in part:
            message = f"{name} names {str(part)[:100]!r} as a part of the weights, which is not a file of its folder"
            raise RefusedError(message, fix="do not use this folder; save the model again")
    return names


def _names(code: Any) -> str:
    values = list(code.values()) if isinstance(code, dict) else [code]
    return ", ".join(str(value)[:60] for value in values[:3])


def task(config: dict[str, Any]) -> str:
    """Return the task of the model, by its first architecture; empty if it returns features."""
    architectures = config.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    for ending, name in _TASKS.items():
        if architecture.endswith(ending):
            return name
    return ""


_TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text-generation",
}


def _signature(files: Files, entry: str) -> ModelSignature:
    config = json_object(files[entry])
    for name in files:
        if PurePosixPath(name).parent == PurePosixPath(entry).parent and name.endswith(".safetensors"):
            safetensors.check(files[name], name)
    kind = task(config)
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, dict) else int(config.get("num_labels", 2))
    outputs = (TensorSpec("label", "BYTES", (-1,)), TensorSpec("score", "FP32", (-1,)), TensorSpec("scores", "FP32", (-1, count)))
    if kind == "text-classification":
        return ModelSignature((TensorSpec(TEXT, "BYTES", (-1,)),), outputs)
    if kind == "image-classification":
        return ModelSignature((TensorSpec(IMAGE, "UINT8", (-1, -1, -1, 3)),), outputs)
    if kind == "text-generation":
        return ModelSignature()
    width = config.get("hidden_size", config.get("dim", config.get("d_model", -1)))
    features = TensorSpec("embedding", "FP32", (-1, width if isinstance(width, int) else -1))
    return ModelSignature((TensorSpec(TEXT, "BYTES", (-1,)),), (features,))


RECORD = ModelFormat(
    "transformers",
    "a folder of save_pretrained: config.json, weights and a tokenizer",
    _models,
    _signature,
    _risk,
    loader="transformers_folder",
    folder=True,
    packages=((RequiredPackage("transformers", "transformers", "4.40"),), (RequiredPackage("torch", "torch"),)),
)
