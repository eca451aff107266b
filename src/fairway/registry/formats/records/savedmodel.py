"""TensorFlow's SavedModel: a graph whose operations may read and write files."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from fairway.registry.formats import savedmodel
from fairway.registry.formats.file_content import content
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage, by_name
from fairway.state.model import ModelSignature

_NAMES = frozenset({"saved_model.pb", "saved_model.pbtxt"})


def _signature(files: Files, entry: str) -> ModelSignature:
    with content(files[entry], entry, "not a SavedModel") as model:
        return savedmodel.signature(model)


def _risk(name: str, _: Path) -> LoadRisk | None:
    return LoadRisk("is a SavedModel") if PurePosixPath(name.lower()).name in _NAMES else None


RECORD = ModelFormat(
    "savedmodel",
    "a file saved_model.pb",
    by_name("saved_model.pb"),
    _signature,
    _risk,
    loader="savedmodel",
    folder=True,
    packages=((RequiredPackage("tensorflow", "tensorflow"),),),
    mapped=True,
)
