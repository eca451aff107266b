"""PyTorch files: programs of `torch.export` and of TorchScript. Both are archives with pickled parts."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from fairway.errors import RefusedError
from fairway.registry.formats import zip_archive
from fairway.registry.formats.model_format import Files, LoadRisk, ModelFormat, RequiredPackage
from fairway.state.model import ModelSignature

SUFFIXES = frozenset({".pt", ".pth"})
"""Suffixes that all of these have, and pickles too."""
_SCRIPTS = frozenset({*SUFFIXES, ".ts", ".torchscript"})
_TORCH = ((RequiredPackage("torch", "torch"),),)


def is_exported(name: str, path: Path) -> bool:
    """Return whether the file is an archive of `torch.export`: a program and its weights."""
    if not zip_archive.is_archive(path):
        return False
    members = zip_archive.members(name, path)
    names = _inner(members)
    # Files of torch.save have `data.pkl` right below the top; an exported program never does.
    # Before the archive had a folder of its own, its members lay at the top.
    old = "serialized_exported_program.json" in members
    return "data.pkl" not in names and bool(names & {"archive_format", "serialized_exported_program.json"} or old)


def is_script(name: str, path: Path) -> bool:
    """Return whether the file is an archive of `torch.jit.save`: code in a language of its own, and constants."""
    if not zip_archive.is_archive(path):
        return False
    names = _inner(zip_archive.members(name, path))
    return {"data.pkl", "constants.pkl"} <= names and any(member.startswith("code/") for member in names)


def _inner(found: list[str]) -> set[str]:
    """Return the paths of the members relative to the one folder at the top."""
    inner = [PurePosixPath(member).parts[1:] for member in found]
    return {"/".join(parts) for parts in inner}


def _exported(files: Files) -> list[str]:
    suffixes = {name: PurePosixPath(name.lower()).suffix for name in files}
    return [
        name
        for name, suffix in suffixes.items()
        if PurePosixPath(name).suffix == ".pt2" or (suffix in SUFFIXES and is_exported(name, files[name]))
    ]


def _check_exported(files: Files, entry: str) -> ModelSignature:
    if not is_exported(entry, files[entry]):
        message = f"{entry} was not written by torch.export.save"
        raise RefusedError(message, fix="save it with torch.export.save(torch.export.export(model, inputs), PATH)")
    return ModelSignature()


def _exported_risk(name: str, path: Path) -> LoadRisk | None:
    suffix = PurePosixPath(name.lower()).suffix
    if suffix == ".pt2" or (suffix in SUFFIXES and is_exported(name, path)):
        return LoadRisk("is a program of torch.export")
    return None


def _scripts(files: Files) -> list[str]:
    return [name for name in files if PurePosixPath(name.lower()).suffix in _SCRIPTS and is_script(name, files[name])]


def _script_risk(name: str, path: Path) -> LoadRisk | None:
    if PurePosixPath(name.lower()).suffix in _SCRIPTS and is_script(name, path):
        return LoadRisk("is a TorchScript program")
    return None


EXPORTED = ModelFormat(
    "torch-export",
    "a file NAME.pt2 of torch.export.save",
    _exported,
    _check_exported,
    _exported_risk,
    loader="torch",
    packages=_TORCH,
)
SCRIPT = ModelFormat(
    "torchscript", "a file NAME.pt of torch.jit.save", _scripts, risk=_script_risk, loader="torchscript", packages=_TORCH
)
