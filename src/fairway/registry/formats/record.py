"""One format of model files as a record: how it is found, what it takes and gives, what its loader can do, and what loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fairway.state.model import Signature

Files = Mapping[str, Path]
"""The files of a model by path from the top of its folder."""


@dataclass(frozen=True, slots=True)
class Risk:
    """Why loading a file can run code of its author."""

    what: str
    """Completes the sentence that begins with the file's name: `is a pickle`."""
    always: bool = False
    """Whether consent is needed even for what a run of one's own left behind."""


@dataclass(frozen=True, slots=True)
class Package:
    """What the user's interpreter must have for a format."""

    module: str
    """What is imported: `sklearn`."""
    name: str
    """What is installed: `scikit-learn`."""
    least: str = ""
    """The oldest version that works; empty: any."""

    def __str__(self) -> str:
        return f"{self.name}>={self.least}" if self.least else self.name


@dataclass(frozen=True, slots=True)
class Format:
    """One format. Nothing here loads or runs a model: names and bytes are read."""

    name: str
    wanted: str
    """What a folder must hold: `a file NAME.onnx`."""
    finds: Callable[[Files], list[str]]
    """The files that may be the model's, by name and first bytes."""
    signature: Callable[[Files, str], Signature] = lambda _files, _entry: Signature()
    """Inputs and outputs as far as the file tells; empty sides are found when the model is loaded. Raises `RefusedError` for a
    file that is not what its name says."""
    risk: Callable[[str, Path], Risk | None] = lambda _name, _path: None
    """Why loading one file (name, place) can run code: asked for every file of a folder, whatever the format of the folder is."""
    always: Risk | None = None
    """Why the loader itself can run code of the author, whatever the files are."""
    loader: str = ""
    """The module of `serving/replica/loaders` that loads it in the worker; empty: the replica runs it, or it is not served."""
    folder: bool = False
    """Whether the loader gets the folder of the entry and not the file."""
    packages: tuple[tuple[Package, ...], ...] = ()
    """What the interpreter needs: of each group one."""
    named_only: bool = False
    """Whether the format is used only where it is asked for by name."""
    many: bool = False
    """Whether several files may be the model's together."""
    mapped: bool = False
    """Whether the reader of the signature looks at the whole file, mapped into memory where it is large."""


def by_suffix(*suffixes: str) -> Callable[[Files], list[str]]:
    """Finds files by the ends of their names."""
    return lambda files: [name for name in files if PurePosixPath(name.lower()).suffix in suffixes]


def by_name(wanted: str) -> Callable[[Files], list[str]]:
    """Finds files by their names."""
    return lambda files: [name for name in files if PurePosixPath(name).name == wanted]


def head(path: Path, size: int) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(size)
