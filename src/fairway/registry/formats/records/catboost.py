"""CatBoost: trees in its own binary form. It is data. Its signature is found when it is loaded."""

from __future__ import annotations

from pathlib import PurePosixPath

from fairway.registry.formats.model_format import Files, ModelFormat, RequiredPackage, head

_SUFFIXES = frozenset({".cbm", ".cb", ".catboost", ".bin", ".model"})
_MAGIC = b"CBM1"


def _models(files: Files) -> list[str]:
    suffixes = {name: PurePosixPath(name.lower()).suffix for name in files}
    return [name for name, suffix in suffixes.items() if suffix in _SUFFIXES and head(files[name], 4) == _MAGIC]


RECORD = ModelFormat(
    "catboost",
    "a file NAME.cbm of CatBoost's save_model",
    _models,
    loader="catboost_model",
    packages=((RequiredPackage("catboost", "catboost"),),),
)
