"""Which files run code when they are loaded. Only names and bytes are read; nothing is ever loaded.

The loaders of the frameworks decide this, not the formats' intentions: `torch.export.load` evaluates expressions and
unpickles constants, TensorFlow runs operations that read and write files, and Keras imports what a configuration names.
"""

from __future__ import annotations

import enum
import zipfile
from pathlib import Path, PurePosixPath

from fairway.errors import RefusedError

_BY_NAME = frozenset({".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle"})
_BY_CONTENT = frozenset({".bin", ".ckpt", ".model", ".weights"})
"""Names that torch.save and others use, and that plain data has too."""
_TORCH = frozenset({".pt", ".pth"})
_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_PROTOCOLS = range(2, 6)
_SAVED_MODELS = frozenset({"saved_model.pb", "saved_model.pbtxt"})
_HDF5 = frozenset({".h5", ".hdf5"})
_KERAS_MARK = b"model_config"
"""The attribute of an HDF5 file that holds the layers of a Keras model; a file of weights alone has none."""
_PIECE = 1 << 20


class Executable(enum.StrEnum):
    """Why loading a file can run code, in words for a refusal."""

    PICKLE = "a pickle"
    EXPORTED = "a program of torch.export"
    SAVED_MODEL = "a SavedModel"
    KERAS = "a Keras model"


def executable(name: str, path: Path) -> Executable | None:
    """Why loading the file can run code; None where it is data."""
    place = PurePosixPath(name.lower())
    suffix = place.suffix
    if suffix in _BY_NAME or (suffix in _BY_CONTENT and _looks_pickled(name, path)):
        return Executable.PICKLE
    if suffix in _TORCH:
        return Executable.EXPORTED if is_exported(name, path) else Executable.PICKLE
    if suffix == ".pt2":
        return Executable.EXPORTED
    if place.name in _SAVED_MODELS:
        return Executable.SAVED_MODEL
    if suffix == ".keras" or (suffix in _HDF5 and _holds(path, _KERAS_MARK)):
        return Executable.KERAS
    return None


def _holds(path: Path, mark: bytes) -> bool:
    """Whether the bytes occur anywhere in a file."""
    rest = b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            if mark in rest + piece:
                return True
            rest = piece[-len(mark) :]
    return False


def is_exported(name: str, path: Path) -> bool:
    """Whether the file is an archive of `torch.export`: a program and its weights."""
    if not zipfile.is_zipfile(path):
        return False
    inner = [PurePosixPath(member).parts[1:] for member in _members(name, path)]
    names = {"/".join(parts) for parts in inner} | {parts[-1] for parts in inner if len(parts) == 1}
    # What torch.save writes has `data.pkl` right below the top; an exported program never does.
    return "data.pkl" not in names and bool(names & {"archive_format", "serialized_exported_program.json"} or _is_old(name, path))


def _is_old(name: str, path: Path) -> bool:
    """Before the archive had a folder of its own, its members lay at the top."""
    return "serialized_exported_program.json" in _members(name, path)


def _looks_pickled(name: str, path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4)
    if head == _ZIP:
        return any(PurePosixPath(member).name == "data.pkl" for member in _members(name, path))
    return len(head) > 1 and head[:1] == _PICKLE and head[1] in _PROTOCOLS


def _members(name: str, path: Path) -> list[str]:
    """The names in an archive, checked: none may lead out of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except Exception as problem:  # noqa: BLE001  damage shows in many ways: struct.error, OverflowError, NotImplementedError
        message = f"{name} is a damaged archive: {problem}"
        raise RefusedError(message, fix="save the model again") from None
    for member in members:
        if member.startswith(("/", "\\")) or ".." in member.replace("\\", "/").split("/"):
            message = f"{name} holds {member!r}, which leads out of the archive"
            raise RefusedError(message, fix="do not use this file; save the model again")
    return members
