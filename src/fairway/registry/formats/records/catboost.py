"""CatBoost: trees in its own binary form. It is data. Its signature is found when it is loaded."""

from __future__ import annotations

from pathlib import PurePosixPath

from fairway.registry.formats.record import Files, Format, Package, head

_SUFFIXES = frozenset({".cbm", ".cb", ".catboost", ".bin", ".model"})
_MAGIC = b"CBM1"


def _models(files: Files) -> list[str]:
    suffixes = {name: PurePosixPath(name.lower()).suffix for name in files}
    return [name for name, suffix in suffixes.items() if suffix in _SUFFIXES and head(files[name], 4) == _MAGIC]


RECORD = Format(
    "catboost",
    "a file NAME.cbm of CatBoost's save_model",
    _models,
    loader="catboost_model",
    packages=((Package("catboost", "catboost"),),),
)
