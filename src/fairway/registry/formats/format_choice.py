"""Chooses the format of a folder of files, and the model's file among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from fairway.errors import RefusedError
from fairway.registry.formats import export_metadata as beside
from fairway.registry.formats.damaged_file import reading
from fairway.registry.formats.format_table import TABLE, risk
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat
from fairway.registry.formats.records import mlflow, python


def risks(files: Files) -> dict[str, LoadRisk]:
    """Return the files that can run code when they are loaded, at any depth, with the reasons."""
    return {name: reason for name in sorted(files) if (reason := risk(name, files[name]))}


def with_loader(risky: Mapping[str, LoadRisk], format: str, entry: str) -> dict[str, LoadRisk]:
    """Return the risks together with that of the loader of the chosen format."""
    always = TABLE[format].always
    return {**risky, entry: always} if always is not None and entry not in risky else dict(risky)


def choose(files: Files, format: str, named: str, risky: Mapping[str, LoadRisk]) -> tuple[str, str]:
    """Return format and entry. `format`: the requested one, or empty; `named`: the entry named by `fairway.json`, or empty."""
    if named and named not in files and f"{named.rstrip('/')}/saved_model.pb" not in files:
        message = f"{beside.NAME} names {named!r} as the model's file, but there is no such file"
        raise RefusedError(message, fix="correct its `entry`")
    for record in _candidates(format):
        names = _found(record, files, risky)
        if record.name == "mlflow" and names:
            return _of_mlflow(files, _one(names, record), risky, asked=bool(format))
        if named in names:
            return record.name, named
        if named and names and f"{named.rstrip('/')}/saved_model.pb" not in names and record.name != "pickle":
            message = f"{beside.NAME} names {named!r} as the model's file, which is not {record.name}"
            raise RefusedError(message, fix="correct its `entry`, or leave it out")
        if names:
            return record.name, named if named and record.name == "pickle" else _one(names, record)
    raise _nothing(files, format)


def _candidates(format: str) -> list[ModelFormat]:
    return [TABLE[format]] if format else [record for record in TABLE.values() if not record.named_only]


def _found(record: ModelFormat, files: Files, risky: Mapping[str, LoadRisk]) -> list[str]:
    """Return the candidates of one format. A pickle is a candidate of no other format."""
    with reading("the folder"):
        names = record.finds(files)
    if record.name == "pickle":
        return names
    return [
        name for name in names if name not in risky or not risky[name].always or record.risk(name, files[name]) == risky[name]
    ]


def _of_mlflow(files: Files, entry: str, risky: Mapping[str, LoadRisk], *, asked: bool) -> tuple[str, str]:
    """Return the format of a flavour, if it is one of Fairway's; otherwise MLflow's own loader is needed."""
    document = mlflow.read(files[entry], entry)
    top = str(PurePosixPath(entry).parent)
    own = {name: path for name, path in files.items() if top == "." or name.startswith(f"{top}/")}
    if not asked and entry not in risky:
        for flavour in mlflow.flavours(document):
            for name in mlflow.NATIVE.get(flavour, ()):
                names = _found(TABLE[name], own, risky)
                if names:
                    return name, _one(names, TABLE[name])
    return "mlflow", entry


def _one(found: list[str], record: ModelFormat) -> str:
    """Return the candidate nearest to the top. Weights may be in many files, a program only in one."""
    depth = min(name.count("/") for name in found)
    nearest = sorted(name for name in found if name.count("/") == depth)
    preferred = [name for name in nearest if PurePosixPath(name).stem == "model"]
    if len(preferred) == 1 and not record.many:
        return preferred[0]
    if len(nearest) == 1 or record.many:
        return nearest[0]
    message = f"{' and '.join(nearest[:3])} are all {record.name}"
    fix = f'rename one to model.*, or select it in {beside.NAME} with {{"format": "{record.name}", "entry": "..."}}'
    raise RefusedError(message, fix=fix)


def _nothing(files: Files, format: str) -> RefusedError:
    if format:
        message = f"no {format} model is among {_named(files)}"
        return RefusedError(message, fix=f"{TABLE[format].wanted} is needed")
    if python.MODULE in files:
        message = f"{python.MODULE} is a Python class, which runs its own code when it is loaded"
        return RefusedError(message, fix="if you trust it, use --format python")
    message = f"no model of a known format is among {_named(files)}"
    fix = f"export it (fairway.runtime.export), or save it as one of {', '.join(TABLE)}: docs/models.md#formats"
    return RefusedError(message, fix=fix)


def _named(files: Files) -> str:
    names = sorted(files)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"
