"""LightGBM: trees as text. It is data."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from fairway.errors import RefusedError
from fairway.registry.formats.model_format import Files, ModelFormat, RequiredPackage, head
from fairway.registry.formats.records.tabular_name import INPUT, PREDICT
from fairway.state.model import ModelSignature, TensorSpec

_SUFFIXES = frozenset({".txt", ".lgb", ".lgbm", ".model", ".lightgbm"})
_BEGINS = b"tree\nversion="
_HEADER = 1 << 24
"""The header of a model is within this many first bytes: names of features take the most."""


def _is_model(path: Path) -> bool:
    return head(path, len(_BEGINS) + 2).replace(b"\r\n", b"\n").startswith(_BEGINS)


def _models(files: Files) -> list[str]:
    return [name for name in files if PurePosixPath(name.lower()).suffix in _SUFFIXES and _is_model(files[name])]


def _signature(files: Files, entry: str) -> ModelSignature:
    text = head(files[entry], _HEADER).partition(b"\nTree=")[0].decode("utf-8", "replace")
    params = dict(line.partition("=")[::2] for line in text.splitlines())
    try:
        features, trees = int(params["max_feature_idx"]) + 1, int(params["num_tree_per_iteration"])
    except (KeyError, ValueError):
        message = f"{entry} is not a LightGBM model: its header lacks max_feature_idx or num_tree_per_iteration"
        raise RefusedError(message, fix="save it with Booster.save_model(PATH)") from None
    return ModelSignature(
        (TensorSpec(INPUT, "FP64", (-1, features)),),
        (TensorSpec(PREDICT, "FP64", (-1, trees) if trees > 1 else (-1,)),),
    )


RECORD = ModelFormat(
    "lightgbm",
    "a text file of LightGBM's save_model",
    _models,
    _signature,
    loader="lightgbm_model",
    packages=((RequiredPackage("lightgbm", "lightgbm"),),),
)
