"""The folder of a version by the table of formats: which loader, of which file, with which consent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fairway.errors import RefusedError, UsageError
from fairway.registry.formats import choice
from fairway.registry.formats.examine import refusal
from fairway.registry.formats.record import Files
from fairway.registry.formats.records import mlflow
from fairway.registry.formats.table import NAMES, TABLE
from fairway.state.model import IN_REPLICA, Signature


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is loaded."""

    loader: str
    entry: Path
    trusted: bool
    packages: tuple[str, ...]
    signature: Signature = Signature()
    """What another tool wrote of inputs that the loader cannot know."""


def choose(folder: Path, format_: str, named: str, *, allow_pickle: bool) -> Chosen:
    """The loader and its file; `RefusedError` says why a folder is not served."""
    if format_ and format_ not in TABLE:
        message = f"nothing here runs the format {format_!r}"
        raise RefusedError(message, fix=f"one of {', '.join(NAMES)}")
    files = listed(folder)
    if named and not _is_inside(folder, named):
        message = f"{folder / 'fairway.json'}: entry {named!r} is no file in the folder"
        raise UsageError(message, fix="name a file of the version")
    risky = choice.risks(files)
    found, entry = choice.choose(files, format_, named, risky)
    record = TABLE[found]
    risky = choice.with_loader(risky, found, entry)
    if found == IN_REPLICA:
        return Chosen(IN_REPLICA, files[entry], False, ())
    if not record.loader:
        message = f"{folder} holds weights alone"
        raise RefusedError(
            message, fix="export the model as ONNX, or serve it with a program: fairway serve --name NAME -- COMMAND"
        )
    if risky and found != "python" and not allow_pickle:
        raise refusal([entry] if entry in risky else list(risky), risky)
    packages = tuple(" or ".join(str(each) for each in group) for group in record.packages)
    place = folder / entry
    place = place.parent if record.folder and place.is_file() else place
    return Chosen(record.loader, place, allow_pickle and bool(risky), packages, mlflow.columns(files))


def listed(folder: Path) -> Files:
    """The files of a folder by their path from its top."""
    found: dict[str, Path] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            found[path.relative_to(folder).as_posix()] = path
    return found


def _is_inside(folder: Path, named: str) -> bool:
    place = (folder / named).resolve()
    return place.is_relative_to(folder.resolve()) and place.exists()
