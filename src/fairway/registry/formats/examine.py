"""What a folder of model files is: its format, its signature, and whether it may be kept."""

from __future__ import annotations

import ast
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fairway.errors import RefusedError
from fairway.registry.formats import about as beside
from fairway.registry.formats import onnx, savedmodel
from fairway.registry.formats.about import About
from fairway.registry.formats.executable import Executable, executable, is_exported
from fairway.registry.manifest import stays_inside
from fairway.state.model import FORMATS, Signature

_WHOLE = 1 << 26
"""Bytes; larger files are not read into memory."""
_CLASS = "Model"
_MODULE = "model.py"


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found."""

    format: str
    entry: str
    """The model's file, from the top of the folder."""
    signature: Signature = Signature()
    metrics: dict[str, float] = field(default_factory=dict)


def examine(
    files: Mapping[str, Path], *, asked: str = "", allow_pickle: bool = False, made_here: bool = False, kept: bool = True
) -> Examined:
    """Look at the files of a model, by path from the top of its folder; a refusal says what is wrong and what helps.

    `asked` is the requested format; `python` is never guessed. Nothing is loaded or run. Files that run code when they are
    loaded are refused wherever they lie, unless `allow_pickle` gives consent; `made_here` gives it for everything but pickles.
    Without `kept` the files belong to others and may change meanwhile: large ones are then not read.
    """
    if asked and asked not in FORMATS:
        message = f"no format is called {asked!r}"
        raise RefusedError(message, fix=f"use one of {', '.join(FORMATS)}")
    code = {name: kind for name in sorted(files) if (kind := executable(name, files[name]))}
    pickles = [name for name, kind in code.items() if kind is Executable.PICKLE or (kind is Executable.KERAS and not made_here)]
    if pickles and not allow_pickle:
        raise _runs_code(pickles, code)
    said = beside.read(files[beside.NAME]) if beside.NAME in files else About()
    format = asked or said.format
    if said.format == "python" and asked != "python":
        message = f"{beside.NAME} says that this is a Python class, which runs its own code when it is loaded"
        raise RefusedError(message, fix="if you trust it, say so: --format python")
    entry, format = _entry(files, format, said.entry, pickles)
    large = not kept and files[entry].stat().st_size > _WHOLE
    signature = said.as_signature() if large else _signature(format, entry, files, said)
    # After the checks of the content: consent does not help a file that is damaged.
    if code and not allow_pickle and not made_here:
        raise _runs_code(list(code), code)
    return Examined(format, entry, signature, said.metrics)


def _entry(files: Mapping[str, Path], format: str, said: str, pickles: list[str]) -> tuple[str, str]:
    """The model's file and its format."""
    if said and said not in files and f"{said.rstrip('/')}/saved_model.pb" not in files:
        message = f"{beside.NAME} names {said!r} as the model's file, and there is none"
        raise RefusedError(message, fix="mend its `entry`")
    for kind in (format,) if format else ("onnx", "torch-export", "savedmodel", "safetensors", "pickle"):
        found = pickles if kind == "pickle" else [name for name in files if _is_of(kind, name) and name not in pickles]
        if kind == "pickle" and found:
            return said or found[0], kind
        if said in found:
            return said, kind
        if said and found and f"{said.rstrip('/')}/saved_model.pb" not in found:
            message = f"{beside.NAME} names {said!r} as the model's file, which is not {kind}"
            raise RefusedError(message, fix="mend its `entry`, or leave it out")
        if found:
            return _one(found, kind), kind
    if format:
        message = f"nothing here is {format}: {_named(files)}"
        raise RefusedError(message, fix=f"{_WANTED[format]} is needed")
    if _MODULE in files:
        message = f"{_MODULE} is a Python class, which runs its own code when it is loaded"
        raise RefusedError(message, fix="if you trust it, say so: --format python")
    message = f"no model of a known format is among {_named(files)}"
    fix = "export it (fairway.runtime.export), or save it as *.onnx, *.pt2, SavedModel or *.safetensors"
    raise RefusedError(message, fix=fix)


_WANTED = {
    "onnx": "a file NAME.onnx",
    "torch-export": "a file NAME.pt2 of torch.export.save",
    "savedmodel": "a file saved_model.pb",
    "safetensors": "a file NAME.safetensors",
    "python": f"a file {_MODULE} with a class {_CLASS}",
    "pickle": "a pickled file",
}


def _is_of(kind: str, name: str) -> bool:
    path = PurePosixPath(name)
    if kind == "savedmodel":
        return path.name == "saved_model.pb"
    if kind == "python":
        return name == _MODULE
    if kind == "torch-export":
        return path.suffix in (".pt2", ".pt", ".pth")
    return path.suffix == {"onnx": ".onnx", "safetensors": ".safetensors"}[kind]


def _one(found: list[str], kind: str) -> str:
    """The one that is meant: that nearest to the top. Weights may be in many files, a program only in one."""
    depth = min(name.count("/") for name in found)
    nearest = sorted(name for name in found if name.count("/") == depth)
    preferred = [name for name in nearest if PurePosixPath(name).stem == "model"]
    if len(nearest) == 1 or kind == "safetensors":
        return nearest[0]
    if len(preferred) == 1:
        return preferred[0]
    message = f"{' and '.join(nearest[:3])} are all {kind}"
    raise RefusedError(message, fix=f'call one model.*, or say which: {beside.NAME} with {{"format": "{kind}", "entry": "..."}}')


def _signature(format: str, entry: str, files: Mapping[str, Path], said: About) -> Signature:
    """From the model's file where it tells, else as `fairway.json` says. Refuses a file that is not what its name says."""
    match format:
        case "onnx":
            with _content(files[entry], entry, "no ONNX model") as content:
                found = onnx.signature(content)
                if not found.outputs:
                    message = "its graph gives nothing"
                    raise ValueError(message)
                _check_external(entry, onnx.external_files(content), files)
            return found
        case "savedmodel":
            with _content(files[entry], entry, "no SavedModel") as content:
                found = savedmodel.signature(content)
            return found if found.outputs else said.as_signature()
        case "torch-export":
            if not is_exported(entry, files[entry]):
                message = f"{entry} is not what torch.export.save writes"
                raise RefusedError(message, fix="save it with torch.export.save(torch.export.export(model, inputs), PATH)")
        case "safetensors":
            _check_safetensors(entry, files[entry])
        case "python":
            _check_class(entry, files[entry])
    return said.as_signature()


@contextmanager
def _content(path: Path, name: str, is_not: str) -> Iterator[memoryview]:
    """The file's bytes. A `ValueError` within means that it is something else."""
    with path.open("rb") as file:
        try:
            if os.fstat(file.fileno()).st_size <= _WHOLE:
                yield memoryview(file.read())
            else:
                # Only of what is kept: to look at a mapped file that somebody cuts short ends the process.
                yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError as problem:
            message = f"{name} is {is_not}: {problem}"
            raise RefusedError(message, fix="save the model again") from None


def _check_external(entry: str, named: set[str], files: Mapping[str, Path]) -> None:
    parent = PurePosixPath(entry).parent
    for name in sorted(named):
        if not name or "\\" in name or not stays_inside(entry, name):
            message = f"{entry} keeps weights in {name!r}, outside of its folder, which --allow-pickle does not allow either"
            raise RefusedError(message, fix="do not use this file; save the model again with its weights beside it")
        if str(parent / name) not in files:
            message = f"{entry} keeps weights in {name!r}, which is not there"
            raise RefusedError(message, fix=f"put {name} beside {entry}")


def _check_safetensors(name: str, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        begins = file.read(1)
    if size < 8 or length > size - 8 or begins != b"{":
        message = f"{name} is no safetensors file"
        raise RefusedError(message, fix="save the weights again")


def _check_class(name: str, path: Path) -> None:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as problem:
        message = f"{name} is no Python: {problem}"
        raise RefusedError(message, fix="mend it") from None
    if not any(isinstance(each, ast.ClassDef) and each.name == _CLASS for each in tree.body):
        message = f"{name} has no class {_CLASS}"
        raise RefusedError(message, fix=f"define `class {_CLASS}` at its top level")


def _runs_code(names: list[str], code: Mapping[str, Executable]) -> RefusedError:
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    message = f"{names[0]}{more} is {code[names[0]]}: loading it can run any code that its author put in"
    fix = "export the model as ONNX (fairway.runtime.export) or safetensors; or, if you trust the author: --allow-pickle"
    return RefusedError(message, fix=fix)


def _named(files: Mapping[str, Path]) -> str:
    names = sorted(files)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"
