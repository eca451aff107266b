"""Chooses the loader and the file for a version's folder, from the table of formats and the consent given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fairway.errors import RefusedError, UsageError
from fairway.registry.formats import format_choice
from fairway.registry.formats.format_table import NAMES, TABLE
from fairway.registry.formats.model_examination import refusal
from fairway.registry.formats.model_format import Files
from fairway.registry.formats.records import mlflow
from fairway.state.model import IN_REPLICA, ModelSignature


@dataclass(frozen=True, slots=True)
class LoaderChoice:
    """The chosen loader and file."""

    loader: str
    entry: Path
    trusted: bool
    packages: tuple[str, ...]
    signature: ModelSignature = ModelSignature()
    """Inputs declared by another tool, which the loader cannot determine."""


def choose(folder: Path, format_: str, named: str, *, allow_pickle: bool) -> LoaderChoice:
    """Choose the loader and its file; raise `RefusedError` when the folder cannot be served."""
    if format_ and format_ not in TABLE:
        message = f"the format {format_!r} is not supported"
        raise RefusedError(message, fix=f"use one of {', '.join(NAMES)}")
    files = listed(folder)
    if named and not _is_inside(folder, named):
        message = f"{folder / 'fairway.json'}: entry {named!r} is not a file in the folder"
        raise UsageError(message, fix="name a file of the version")
    risky = format_choice.risks(files)
    name, entry = format_choice.choose(files, format_, named, risky)
    record = TABLE[name]
    risky = format_choice.with_loader(risky, name, entry)
    if name == IN_REPLICA:
        return LoaderChoice(IN_REPLICA, files[entry], False, ())
    if not record.loader:
        message = f"{folder} holds only weights"
        raise RefusedError(
            message, fix="export the model as ONNX, or serve it with a program: fairway serve --name NAME -- COMMAND"
        )
    if risky and name != "python" and not allow_pickle:
        raise refusal([entry] if entry in risky else list(risky), risky)
    packages = tuple(" or ".join(str(package) for package in group) for group in record.packages)
    target = folder / entry
    target = target.parent if record.folder and target.is_file() else target
    return LoaderChoice(record.loader, target, allow_pickle and bool(risky), packages, mlflow.columns(files))


def listed(folder: Path) -> Files:
    """Return the files of a folder by relative path."""
    files: dict[str, Path] = {}
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            files[path.relative_to(folder).as_posix()] = path
    return files


def _is_inside(folder: Path, named: str) -> bool:
    target = (folder / named).resolve()
    return target.is_relative_to(folder.resolve()) and target.exists()
