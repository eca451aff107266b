"""A model version as it lies on disk: which format it has, which file to load, what is written of its signature."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry.formats import onnx
from fairway.serving.replica.datatypes import DTYPES
from fairway.state.model import Signature, TensorSpec

RUNTIMES = {"onnx": "onnx", "torch-export": "torch", "savedmodel": "savedmodel", "python": "python"}
"""What runs which format."""
_PATTERNS = (("onnx", "*.onnx"), ("torch-export", "*.pt2"), ("savedmodel", "saved_model.pb"))
_ENTRIES = {"onnx": "*.onnx", "torch-export": "*.pt2", "savedmodel": "saved_model.pb", "python": "model.py"}
_PICKLES = ("*.pkl", "*.pickle", "*.joblib", "*.pt", "*.pth", "*.bin", "*.keras", "*.h5", "*.hdf5")
_PROGRAMS = {"torch-export": "a program of torch.export", "savedmodel": "a SavedModel"}


class _Tensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int] = []


class _Signature(msgspec.Struct):
    inputs: list[_Tensor] = []
    outputs: list[_Tensor] = []


class _Card(msgspec.Struct):
    """`fairway.json`."""

    format: str = ""
    entry: str = ""
    signature: _Signature = msgspec.field(default_factory=_Signature)
    generates: bool = False
    batching: Literal["auto", "always", "never"] = "auto"


@dataclass(frozen=True, slots=True)
class Found:
    """What a folder holds."""

    runtime: str
    entry: Path
    """The file to load; for a SavedModel its folder."""
    signature: Signature = Signature()
    """Empty where nothing is written: the model itself may know."""
    generates: bool = False
    batching: str = "auto"
    """Whether rows of several requests may run together: always, never, or auto where the author does not say."""


def find(folder: Path, format_: str = "", runtime: str = "auto", *, allow_pickle: bool = False) -> Found:
    """What to load from a folder.

    What can run code when it is loaded is refused without consent: a Python class needs its format or runtime to be named,
    a program of torch.export and a SavedModel need `allow_pickle`. An ONNX model reads no file outside of the folder.
    """
    if not folder.is_dir():
        message = f"{folder} is no folder"
        raise NotFoundError(message, fix="name the folder of a model version with --folder")
    card = _card(folder)
    if runtime != "auto":
        format_ = next(name for name, runs in RUNTIMES.items() if runs == runtime)
    elif not format_ and card.format == "python":
        message = f"{folder} holds a Python class, which runs code"
        raise RefusedError(message, fix="ask for it: --runtime python")
    format_ = format_ or card.format or _format_of(folder)
    if format_ not in RUNTIMES:
        raise _not_served(folder, format_)
    if format_ in _PROGRAMS and not allow_pickle:
        message = f"{folder} holds {_PROGRAMS[format_]}: loading it can run any code that its author put in"
        raise RefusedError(message, fix="export the model as ONNX; or, if you trust the author: --allow-pickle")
    entry = _entry(folder, format_, card.entry)
    if format_ == "onnx":
        _check_weights(folder, entry)
    signature = Signature(_specs(folder, card.signature.inputs), _specs(folder, card.signature.outputs))
    return Found(RUNTIMES[format_], entry.parent if format_ == "savedmodel" else entry, signature, card.generates, card.batching)


def _card(folder: Path) -> _Card:
    path = folder / "fairway.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Card)
    except FileNotFoundError:
        return _Card()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="write it as fairway.runtime.export does, or remove it") from None


def _format_of(folder: Path) -> str:
    for name, pattern in _PATTERNS:
        if any(folder.glob(pattern)):
            return name
    if any(path for pattern in _PICKLES for path in folder.glob(pattern)):
        return "pickle"
    return "safetensors" if any(folder.glob("*.safetensors")) else ""


def _entry(folder: Path, format_: str, named: str) -> Path:
    if named:
        entry = (folder / named).resolve()
        if not entry.is_relative_to(folder.resolve()) or not entry.is_file():
            message = f"{folder / 'fairway.json'}: entry {named!r} is no file in the folder"
            raise UsageError(message, fix="name a file of the version")
        return entry
    found = sorted(folder.glob(_ENTRIES[format_]))
    if len(found) != 1:
        what = "several" if found else "no"
        message = f"{folder} has {what} {_ENTRIES[format_]}"
        raise UsageError(message, fix='name the file in fairway.json: {"entry": "model.onnx"}')
    return found[0]


def _check_weights(folder: Path, entry: Path) -> None:
    """Refuse an ONNX model that names files outside of its folder: onnxruntime would read them into its answers."""
    if not entry.stat().st_size:
        return
    with entry.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if onnx.names_no_files(content):
            return
        try:
            with memoryview(content) as view:
                named = onnx.external_files(view)
        except ValueError as error:
            message = f"{entry}: this is no ONNX model: {error}"
            raise RefusedError(message, fix="export the model again") from None
    for name in sorted(named):
        weights = (entry.parent / name).resolve()
        if not name or "\\" in name or not weights.is_relative_to(folder.resolve()) or not weights.is_file():
            message = f"{entry} keeps weights in {name!r}, which is no file of its folder; --allow-pickle does not allow that"
            raise RefusedError(message, fix="do not use this file; save the model again with its weights beside it")


def _specs(folder: Path, tensors: list[_Tensor]) -> tuple[TensorSpec, ...]:
    for tensor in tensors:
        if tensor.datatype not in DTYPES:
            message = f"{folder / 'fairway.json'}: {tensor.name!r} has datatype {tensor.datatype!r}"
            raise UsageError(message, fix=f"one of {', '.join(DTYPES)}")
    return tuple(TensorSpec(tensor.name, tensor.datatype, tuple(tensor.shape)) for tensor in tensors)


def _not_served(folder: Path, format_: str) -> RefusedError:
    if format_ == "pickle":
        message = f"{folder} holds a pickle or a Keras model, which runs code when it is read, and is not served"
        fix = "export it as ONNX, or as .pt2 or SavedModel with --allow-pickle, or write a model.py and ask for --runtime python"
        return RefusedError(message, fix=fix)
    if format_ == "safetensors":
        message = f"{folder} holds weights alone"
        return RefusedError(message, fix="export the model as ONNX")
    if not format_:
        message = f"{folder} holds no model: neither *.onnx, *.pt2 nor saved_model.pb"
        return RefusedError(message, fix="export the model, or ask for --runtime python with a model.py")
    message = f"nothing here runs the format {format_!r}"
    return RefusedError(message, fix=f"one of {', '.join(RUNTIMES)}")
