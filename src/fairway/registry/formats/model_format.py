"""One format of model files as a record: how it is found, its inputs and outputs, its risks, and its loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fairway.state.model import ModelSignature

Files = Mapping[str, Path]
"""The files of a model by path from the top of its folder."""


@dataclass(frozen=True, slots=True)
class LoadRisk:
    """Why loading a file can run code of its author."""

    what: str
    """Completes a sentence that begins with the file's name: `is a pickle`."""
    always: bool = False
    """Whether consent is needed even for files that a run of the user produced."""


@dataclass(frozen=True, slots=True)
class RequiredPackage:
    """A package that the user's interpreter must have for a format."""

    module: str
    """The name to import: `sklearn`."""
    name: str
    """The name to install: `scikit-learn`."""
    least: str = ""
    """The oldest version that works; empty: any."""

    def __str__(self) -> str:
        return f"{self.name}>={self.least}" if self.least else self.name


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """One format. Nothing here loads or runs a model: only names and bytes are read."""

    name: str
    wanted: str
    """What a folder must hold: `a file NAME.onnx`."""
    finds: Callable[[Files], list[str]]
    """Returns the files that may be the model's, by name and first bytes."""
    signature: Callable[[Files, str], ModelSignature] = lambda _files, _entry: ModelSignature()
    """Returns inputs and outputs as far as the file shows them; empty sides are found when the model is loaded.

    Raises `RefusedError` for a file whose content does not match its name.
    """
    risk: Callable[[str, Path], LoadRisk | None] = lambda _name, _path: None
    """Returns why loading one file (name, path) can run code. Called for every file of a folder, whatever the folder's format."""
    always: LoadRisk | None = None
    """Why the loader itself can run code of the author, whatever the files are."""
    loader: str = ""
    """The module of `serving/replica/loaders` that loads it in the worker; empty: the replica runs it, or it is not served."""
    folder: bool = False
    """Whether the loader gets the folder of the entry instead of the file."""
    packages: tuple[tuple[RequiredPackage, ...], ...] = ()
    """What the interpreter needs: one package of each group."""
    named_only: bool = False
    """Whether the format is used only if it is requested by name."""
    many: bool = False
    """Whether several files together may be the model."""
    mapped: bool = False
    """Whether the reader of the signature uses the whole file, which is mapped into memory if it is large."""


def by_suffix(*suffixes: str) -> Callable[[Files], list[str]]:
    """Return a function that finds files by their suffixes."""
    return lambda files: [name for name in files if PurePosixPath(name.lower()).suffix in suffixes]


def by_name(wanted: str) -> Callable[[Files], list[str]]:
    """Return a function that finds files by their names."""
    return lambda files: [name for name in files if PurePosixPath(name).name == wanted]


def head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(size)
