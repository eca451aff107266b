"""The process that runs a model under the user's own interpreter, with a module of `loaders`.

It is started by path, so that the user's environment need not contain Fairway: it uses only the standard library and numpy, and
must run on Python 3.9 and newer. Its socket carries frames: the lengths of a JSON head and of the tensor data, the head, and the
data. Everything runs on one thread: one prediction at a time, and generators in turn, one piece each.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import select
import socket
import struct
import sys
import traceback
from collections.abc import Iterator
from typing import Any

try:
    import numpy as np
except ModuleNotFoundError:  # the replica reports what to install
    np = None  # type: ignore[assignment]

FRAME = struct.Struct("<IQ")
OPTIONS = ("seed", "temperature", "top_p")
"""The options passed to a Python class that declares no `generate_options`."""
_LENGTH = struct.Struct("<I")
_WORDS = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32",
    "float64": "FP64", "bfloat16": "BF16",
    "string": "BYTES", "object": "BYTES",
}  # fmt: skip
_DTYPES = {word: name for name, word in _WORDS.items() if word not in ("BYTES", "BF16")}

Head = dict[str, Any]
Told = dict[str, Any]
"""A tensor of a signature: name, datatype, shape."""


def send(wire: socket.socket, head: Head, arrays: tuple[tuple[str, str, Any], ...] = ()) -> None:
    """Send a head, followed by tensors (name, datatype, array)."""
    raws = [_raw(datatype, array) for _, datatype, array in arrays]
    if arrays:
        head["tensors"] = [[name, datatype, list(array.shape), len(raw)] for (name, datatype, array), raw in zip(arrays, raws)]
    text = json.dumps(head).encode()
    wire.sendall(FRAME.pack(len(text), sum(len(raw) for raw in raws)) + text)
    for raw in raws:
        wire.sendall(raw)


def receive(wire: socket.socket) -> tuple[Head, dict[str, Any]] | None:
    """Receive the next head and its tensors by name; None at the end of the connection."""
    start = _exactly(wire, FRAME.size)
    if start is None:
        return None
    length, size = FRAME.unpack(start)
    text, raw = _exactly(wire, length), _exactly(wire, size)
    if text is None or raw is None:
        return None
    head = json.loads(bytes(text))
    tensors, offset, view = {}, 0, memoryview(raw)
    for name, datatype, shape, nbytes in head.get("tensors", ()):
        tensors[name] = _array(datatype, view[offset : offset + nbytes]).reshape(shape)
        offset += nbytes
    return head, tensors


def _exactly(wire: socket.socket, size: int) -> bytearray | None:
    received = bytearray(size)
    view = memoryview(received)
    while view:
        count = wire.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return received


def _raw(word: str, array: Any) -> Any:
    if word == "BYTES":
        texts = [element if isinstance(element, bytes) else str(element).encode() for element in array.ravel().tolist()]
        return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))
    flat = np.ascontiguousarray(array, dtype=_DTYPES.get(word, "float32"))
    return flat.reshape(-1).view(np.uint8).data if flat.size else b""


def _array(word: str, raw: memoryview) -> Any:
    if word != "BYTES":
        return np.frombuffer(raw, dtype=_DTYPES.get(word, "float32"))
    texts, offset = [], 0
    while offset < len(raw):
        (size,) = _LENGTH.unpack_from(raw, offset)
        texts.append(bytes(raw[offset + 4 : offset + 4 + size]))
        offset += 4 + size
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


class LoadOrder:
    """What a loader must load, and helpers to describe it."""

    words = _WORDS
    """The protocol's datatype by dtype name."""

    def __init__(self, entry: str, threads: int, written: dict[str, list[Told]], trusted: bool, root: str) -> None:
        self.entry = entry
        self.threads = threads
        self.written = written
        """Inputs and outputs declared in `fairway.json`; empty lists if it declares none."""
        self.trusted = trusted
        """Whether code of the model's author may run."""
        self.root = root
        """The folder of the version."""
        self.device = os.environ.get("FAIRWAY_DEVICE", "") or "auto"
        """cpu, cuda, cuda:1 ...; auto: the GPU if there is one."""

    def module(self, name: str) -> Any:
        """Return another module of the loaders."""
        return _loader(name)

    def word(self, array: Any) -> str:
        """Return the protocol's datatype for an array's type."""
        if array.dtype.kind in "OSU":
            return "BYTES"
        return _WORDS[array.dtype.name]

    def zeros(self, told: list[Told], rows: int, length: int) -> list[Any]:
        """Return zero inputs, to try a model with."""
        arrays = []
        for tensor in told:
            shape = [rows if index == 0 else length for index, _ in enumerate(tensor["shape"])]
            shape = [default if declared == -1 else declared for default, declared in zip(shape, tensor["shape"])]
            arrays.append(np.full(shape, b"", dtype=object) if tensor["datatype"] == "BYTES" else np.zeros(shape, _dtype(tensor)))
        return arrays

    def outputs(self, told: list[Told], predict: Any, names: Any = None) -> list[Told]:
        """Determine the outputs of a model that does not describe them, by running it on zeros of one row and of two.

        A dimension that differs between the two runs, or that follows a free dimension of the inputs, is free.
        """
        has_free_dimensions = any(-1 in tensor["shape"][1:] for tensor in told)
        problem: Any = None
        for length, other_length in ((8, 16), (32, 64), (224, 256), (1, 2)):
            try:
                single = predict(self.zeros(told, 1, length))
                double = predict(self.zeros(told, 2, other_length if has_free_dimensions else length))
            except Exception as error:  # noqa: BLE001  # after any error, another length may work
                problem = problem or error
                if not has_free_dimensions:
                    break
                continue
            return [self._output(index, pair, names) for index, pair in enumerate(zip(single, double))]
        raise ValueError(f"it cannot be run with zeros to find its outputs ({problem!r}); write them into fairway.json")

    def _output(self, place: int, pair: Any, names: Any) -> Told:
        first, second = pair
        shape = [length if length == second_length else -1 for length, second_length in zip(first.shape, second.shape)]
        name = names[place] if names else f"output_{place}"
        return {"name": name, "datatype": self.word(first), "shape": shape}


def _dtype(told: Told) -> str:
    return _DTYPES.get(told["datatype"], "float32")


def _loader(name: str) -> Any:
    """Load a module of `loaders`, beside this file. Fairway is not on the path of the user's interpreter."""
    full = "fairway_loader_" + name
    if full not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loaders", name + ".py")
        spec = importlib.util.spec_from_file_location(full, path)
        if spec is None or spec.loader is None:
            raise ValueError(f"unknown loader {name}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


class ModelWorker:
    """Handles frames until the replica closes the socket."""

    def __init__(self, wire: socket.socket, runtime: Any) -> None:
        self._wire = wire
        self._runtime = runtime
        self._model: Any = getattr(runtime, "model", None)
        self._writing: dict[int, tuple[Iterator[Any], int]] = {}
        """Generators by request number, with the number of pieces that each may still yield."""
        self._usage: dict[int, Any] = {}
        """Token counts of the model, for generators that yielded them before their end."""

    def serve(self) -> None:
        """Handle frames until the end of the connection."""
        while True:
            if not self._writing or select.select([self._wire], [], [], 0)[0]:
                frame = receive(self._wire)
                if frame is None:
                    return
                self._guarded(frame[0]["id"], lambda frame=frame: self._do(*frame))
            for number in list(self._writing):
                self._guarded(number, lambda number=number: self._step(number))

    def _guarded(self, number: int, do: Any) -> None:
        try:
            do()
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # any error of the model is sent as a reply
            self._writing.pop(number, None)
            self._usage.pop(number, None)
            traceback.print_exc()
            send(
                self._wire,
                {"id": number, "error": f"{type(error).__name__}: {error}", "bad": isinstance(error, ValueError)},
            )

    def _do(self, head: Head, tensors: dict[str, Any]) -> None:
        number, do = head["id"], head["do"]
        if do == "predict":
            outputs = self._runtime.predict([tensors[spec["name"]] for spec in self._runtime.inputs])
            named = [(spec["name"], spec["datatype"], output) for spec, output in zip(self._runtime.outputs, outputs)]
            send(self._wire, {"id": number}, tuple(named))
        elif do == "embed":
            extra = (head["options"],) if head.get("options") else ()
            vectors = np.asarray(self._model.embed(head["texts"], *extra), dtype="float32")
            send(self._wire, {"id": number}, (("embeddings", "FP32", vectors),))
        elif do == "generate":
            limit = head["options"].get("max_tokens") or sys.maxsize
            self._writing[number] = (iter(self._model.generate(head["prompt"], head["options"])), limit)
        elif do == "count":
            send(self._wire, {"id": number, "counts": [int(self._model.count(text)) for text in head["texts"]]})
        elif do == "cancel":
            self._writing.pop(head["which"], None)
            self._usage.pop(head["which"], None)

    def _step(self, number: int) -> None:
        pieces, remaining = self._writing[number]
        piece = next(pieces, None)
        metadata = dict(piece) if isinstance(piece, dict) else {}
        text = str(metadata.pop("text", "")) if isinstance(piece, dict) else str(piece or "")
        reason, usage = metadata.pop("finish_reason", None), metadata.pop("usage", None)
        counted = bool(text or metadata)
        if counted and remaining > 0:
            self._writing[number] = (pieces, remaining - 1)
            send(self._wire, {"id": number, "piece": text, "more": metadata} if metadata else {"id": number, "piece": text})
        if piece is None or reason or (counted and remaining == 0):
            del self._writing[number]
            end = "length" if counted and remaining == 0 else reason or "stop"
            send(self._wire, {"id": number, "end": str(end), "usage": usage or self._usage.pop(number, None)})
        elif usage:
            self._usage[number] = usage


def main() -> None:
    """Load the model, describe it to the replica, and serve."""
    parser = argparse.ArgumentParser()
    for name in ("--socket", "--threads"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--loader", "--entry", "--root", "--signature"):
        parser.add_argument(name, required=True)
    parser.add_argument("--trusted", action="store_true")
    parsed = parser.parse_args()
    own_folder = os.path.dirname(os.path.abspath(__file__))
    # The folder of this program contains modules with common names, which must not shadow those of the framework.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != own_folder]
    wire = socket.socket(fileno=parsed.socket)
    written = json.loads(parsed.signature)
    order = LoadOrder(parsed.entry, parsed.threads, written, parsed.trusted, parsed.root)
    try:
        importlib.import_module("numpy")
        runtime: Any = _loader(parsed.loader).load(order)
        for side in ("inputs", "outputs"):
            if written[side]:
                setattr(runtime, side, _renamed(getattr(runtime, side), written[side]))
    except Exception as error:  # noqa: BLE001  # on any error the model cannot be loaded
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if not missing:
            traceback.print_exc()
        send(wire, {"id": 0, "error": f"{type(error).__name__}: {error}", "missing": missing})
        sys.exit(1)
    model = getattr(runtime, "model", None)
    ready: Head = {name: hasattr(model, name) for name in ("generate", "embed", "count")}
    # A class without `generate_options` gets the options that existed before they could be declared.
    ready["generate_options"] = sorted(getattr(model, "generate_options", OPTIONS))
    ready["embed_options"] = sorted(getattr(model, "embed_options", ()))
    ready["independent"] = bool(getattr(runtime, "independent", False))
    send(wire, {"id": 0, "platform": runtime.platform, "inputs": runtime.inputs, "outputs": runtime.outputs, **ready})
    ModelWorker(wire, runtime).serve()


def _renamed(own: list[Told], written: list[Told]) -> list[Told]:
    """Return the declared tensors, which take precedence over the model's own by position; their number must be the same."""
    if own and len(own) != len(written):
        raise ValueError(f"fairway.json names {len(written)} tensors where the model has {len(own)}")
    return written


if __name__ == "__main__":
    main()
