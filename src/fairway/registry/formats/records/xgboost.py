"""XGBoost: trees as JSON or UBJSON. It is data."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from fairway.registry.formats import ubjson
from fairway.registry.formats.file_content import content
from fairway.registry.formats.model_format import Files, ModelFormat, RequiredPackage, head
from fairway.registry.formats.records.tabular_name import INPUT, PREDICT, PROBABILITIES
from fairway.state.model import ModelSignature, TensorSpec

_SUFFIXES = frozenset({".json", ".ubj", ".xgb", ".model", ".bst"})
_TEXT = re.compile(rb'\s*\{\s*"(learner|version)"\s*:\s*[\[{]')
_BINARY = re.compile(rb"\{L\0{7}\x07(learner|version)[\[{]", re.DOTALL)
_BEGINNING = 64
_LARGEST_TEXT = 32 << 20
"""Limit on JSON: the numbers of a larger file would take many times its size in memory. UBJSON has no such limit."""
_MULTICLASS = "multi:softprob"


def _is_model(path: Path) -> bool:
    begins = head(path, _BEGINNING)
    return bool(_TEXT.match(begins) or _BINARY.match(begins))


def _models(files: Files) -> list[str]:
    return [name for name in files if PurePosixPath(name.lower()).suffix in _SUFFIXES and _is_model(files[name])]


def _signature(files: Files, entry: str) -> ModelSignature:
    with content(files[entry], entry, "not an XGBoost model") as data:
        binary = _BINARY.match(bytes(data[:_BEGINNING]))
        if not binary and len(data) > _LARGEST_TEXT:
            return ModelSignature()
        try:
            document = ubjson.decode(data) if binary else json.loads(bytes(data))
            return _of_learner(document["learner"])
        except (KeyError, TypeError, AttributeError, RecursionError) as problem:
            message = f"it lacks {problem}"
            raise ValueError(message) from None


def _of_learner(learner: dict[str, Any]) -> ModelSignature:
    params = learner["learner_model_param"]
    features, classes, targets = (int(params.get(name, 0)) for name in ("num_feature", "num_class", "num_target"))
    inputs = (TensorSpec(INPUT, "FP32", (-1, features if features > 0 else -1)),)
    if _estimator_type(learner) == "classifier":
        count = max(classes, 2) if targets < 2 else targets
        labels = TensorSpec(PREDICT, "INT64", (-1,) if targets < 2 else (-1, targets))
        return ModelSignature(inputs, (labels, TensorSpec(PROBABILITIES, "FP32", (-1, count))))
    objective = learner["objective"]["name"]
    width = classes if objective == _MULTICLASS else targets if targets > 1 else 0
    return ModelSignature(inputs, (TensorSpec(PREDICT, "FP32", (-1, width) if width else (-1,)),))


def _estimator_type(learner: dict[str, Any]) -> str:
    """Return the type of the `xgboost.sklearn` estimator that saved it; empty for a Booster."""
    try:
        kind = json.loads(learner.get("attributes", {}).get("scikit_learn", "{}")).get("_estimator_type")
    except (ValueError, AttributeError, TypeError):
        return ""
    return str(kind or "")


RECORD = ModelFormat(
    "xgboost",
    "a file NAME.ubj or NAME.json of XGBoost's save_model",
    _models,
    _signature,
    loader="xgboost_model",
    packages=((RequiredPackage("xgboost", "xgboost", "1.7"),),),
    mapped=True,
)
