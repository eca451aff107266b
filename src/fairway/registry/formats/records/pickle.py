"""Pickles: estimators of scikit-learn and of libraries with its interface, and any other pickled object."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from fairway.registry.formats import zip_archive
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage, head
from fairway.registry.formats.records import torch

_BY_NAME = frozenset({".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle"})
_BY_CONTENT = frozenset({".bin", ".ckpt", ".model", ".weights", ".lgb", ".lgbm", ".bst", ".cb", ".xgb"})
"""Suffixes that torch.save and others use, and that plain data has too."""
_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_PROTOCOLS = range(2, 6)


def _risk(name: str, path: Path) -> LoadRisk | None:
    suffix = PurePosixPath(name.lower()).suffix
    if suffix in torch.SUFFIXES:
        pickled = not torch.is_exported(name, path) and not torch.is_script(name, path)
    else:
        # transformers unpickles files with these names, whatever their first bytes are.
        weights = suffix == ".bin" and PurePosixPath(name).name.startswith("pytorch_model")
        pickled = weights or suffix in _BY_NAME or (suffix in _BY_CONTENT and _looks_pickled(name, path))
    return LoadRisk("is a pickle", always=True) if pickled else None


def _looks_pickled(name: str, path: Path) -> bool:
    begins = head(path, 4)
    if begins == _ZIP:
        return any(PurePosixPath(member).name == "data.pkl" for member in zip_archive.members(name, path))
    return len(begins) > 1 and begins[:1] == _PICKLE and begins[1] in _PROTOCOLS


def _pickles(files: Files) -> list[str]:
    return [name for name in sorted(files) if _risk(name, files[name])]


RECORD = ModelFormat(
    "pickle",
    "a pickled file",
    _pickles,
    risk=_risk,
    loader="pickled",
    packages=(
        (
            RequiredPackage("sklearn", "scikit-learn"),
            RequiredPackage("joblib", "joblib"),
            RequiredPackage("cloudpickle", "cloudpickle"),
        ),
    ),
    many=True,
)
