"""Inspects the folder of a model version: its format, the file to load, and its declared signature."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry.formats import onnx
from fairway.serving.replica.model.datatype import DTYPES
from fairway.state.model import ModelSignature, TensorSpec

FORMATS = {"onnx": "onnx", "torch": "torch-export", "savedmodel": "savedmodel", "python": "python"}
"""The format for each runtime that can be requested by name."""


class _CardTensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int] = []


class _CardSignature(msgspec.Struct):
    inputs: list[_CardTensor] = []
    outputs: list[_CardTensor] = []


class _ModelCard(msgspec.Struct):
    """The content of `fairway.json`."""

    format: str = ""
    entry: str = ""
    signature: _CardSignature = msgspec.field(default_factory=_CardSignature)
    generates: bool = False
    batching: Literal["auto", "always", "never"] = "auto"


@dataclass(frozen=True, slots=True)
class ModelFolderContent:
    """The result of inspecting a folder."""

    runtime: str
    """`onnx`, or the module of `loaders` that loads it in a worker."""
    entry: Path
    """The file to load; for formats that are folders, the folder."""
    signature: ModelSignature = ModelSignature()
    """Empty when not declared: the model itself may contain it."""
    generates: bool = False
    batching: str = "auto"
    """Whether rows of several requests may run together: always, never, or auto when not declared."""
    root: Path = Path()
    """The folder of the version."""
    trusted: bool = False
    """Whether code of the model's author may run in the worker."""
    packages: tuple[str, ...] = ()
    """Packages that the worker's interpreter needs."""


def find(folder: Path, format_: str = "", runtime: str = "auto", *, allow_pickle: bool = False) -> ModelFolderContent:
    """Determine what to load from a folder.

    Files that can run code when loaded are refused without consent: a Python class requires its format or runtime to be named,
    all others require `allow_pickle`. An ONNX model reads no files outside its folder.
    """
    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise NotFoundError(message, fix="name the folder of a model version with --folder")
    card = _card(folder)
    if runtime != "auto":
        format_ = FORMATS[runtime]
    elif not format_ and card.format == "python":
        message = f"{folder} holds a Python class, which executes code"
        raise RefusedError(message, fix="to allow it, add --runtime python")
    signature = ModelSignature(_specs(folder, card.signature.inputs), _specs(folder, card.signature.outputs))
    if (format_ or card.format) == "onnx" and (entry := _plain_onnx(folder, card.entry)) is not None:
        _check_weights(folder, entry)
        return ModelFolderContent("onnx", entry, signature, card.generates, card.batching, folder)
    from fairway.serving.replica.model import loader_choice  # noqa: PLC0415  # not needed for ONNX models

    chosen = loader_choice.choose(folder, format_ or card.format, card.entry, allow_pickle=allow_pickle)
    if chosen.loader == "onnx":
        _check_weights(folder, chosen.entry)
    return ModelFolderContent(
        chosen.loader,
        chosen.entry,
        signature if signature != ModelSignature() else chosen.signature,
        card.generates,
        card.batching,
        folder,
        chosen.trusted,
        chosen.packages,
    )


def _card(folder: Path) -> _ModelCard:
    path = folder / "fairway.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ModelCard)
    except FileNotFoundError:
        return _ModelCard()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="write it as fairway.runtime.export does, or remove it") from None


def _plain_onnx(folder: Path, named: str) -> Path | None:
    """Return the ONNX file if it is unambiguous: the named one, or the only one at the top level."""
    if named:
        entry = (folder / named).resolve()
        if not entry.is_relative_to(folder.resolve()) or not entry.is_file():
            message = f"{folder / 'fairway.json'}: entry {named!r} is not a file in the folder"
            raise UsageError(message, fix="name a file of the version")
        return entry if entry.suffix == ".onnx" else None
    candidates = sorted(folder.glob("*.onnx"))
    return candidates[0] if len(candidates) == 1 else None


def _check_weights(folder: Path, entry: Path) -> None:
    """Refuse an ONNX model that refers to files outside its folder: onnxruntime would read them, and answers would leak them."""
    if not entry.stat().st_size:
        return
    with entry.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if onnx.names_no_files(content):
            return
        try:
            with memoryview(content) as view:
                named = onnx.external_files(view)
        except ValueError as error:
            message = f"{entry}: this is not an ONNX model: {error}"
            raise RefusedError(message, fix="export the model again") from None
    for name in sorted(named):
        weights = (entry.parent / name).resolve()
        if not name or "\\" in name or not weights.is_relative_to(folder.resolve()) or not weights.is_file():
            message = f"{entry} keeps weights in {name!r}, which is not a file in its folder; --allow-pickle does not permit that"
            raise RefusedError(message, fix="do not use this file; save the model again with its weights beside it")


def _specs(folder: Path, tensors: list[_CardTensor]) -> tuple[TensorSpec, ...]:
    for tensor in tensors:
        if tensor.datatype not in DTYPES:
            message = f"{folder / 'fairway.json'}: {tensor.name!r} has datatype {tensor.datatype!r}"
            raise UsageError(message, fix=f"use one of {', '.join(DTYPES)}")
    return tuple(TensorSpec(tensor.name, tensor.datatype, tuple(tensor.shape)) for tensor in tensors)
