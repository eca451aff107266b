"""Which files run code when they are loaded. Only names and bytes are looked at; nothing is ever loaded."""

from __future__ import annotations

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


def is_pickle(name: str, path: Path) -> bool:
    """Whether loading the file would unpickle it."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _BY_NAME:
        return True
    if suffix in _TORCH:
        return not is_exported(name, path)
    return suffix in _BY_CONTENT and _looks_pickled(name, path)


def is_exported(name: str, path: Path) -> bool:
    """Whether the file is an archive of `torch.export`: a program and its weights as data."""
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
