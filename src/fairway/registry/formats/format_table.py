"""The formats of models, in the order in which they are tried. A format is one record here and one loader for the worker."""

from __future__ import annotations

from pathlib import Path

from fairway.registry.formats.damaged_file import reading
from fairway.registry.formats.model_format import LoadRisk, ModelFormat
from fairway.registry.formats.records import (
    catboost,
    gguf,
    keras,
    lightgbm,
    mlflow,
    onnx,
    pickle,
    python,
    safetensors,
    savedmodel,
    skops,
    torch,
    transformers,
    xgboost,
)

TABLE: dict[str, ModelFormat] = {
    record.name: record
    for record in (
        mlflow.RECORD,
        onnx.RECORD,
        torch.EXPORTED,
        torch.SCRIPT,
        savedmodel.RECORD,
        keras.RECORD,
        gguf.RECORD,
        transformers.RECORD,
        xgboost.RECORD,
        lightgbm.RECORD,
        catboost.RECORD,
        skops.RECORD,
        safetensors.RECORD,
        pickle.RECORD,
        python.RECORD,
    )
}
NAMES = tuple(TABLE)


def risk(name: str, path: Path) -> LoadRisk | None:
    """Return why loading a file can run code of its author; None if it is data."""
    with reading(name):
        return next((reason for record in TABLE.values() if (reason := record.risk(name, path))), None)
