"""The process that runs a model under the user's own interpreter: torch.export, SavedModel, or a Python class.

Started by path, so that the user's environment needs nothing of Fairway: standard library and numpy alone, Python 3.9 and newer.
Over its socket go frames: the length of a JSON head and of what follows, the head, and the tensors' bytes.
Everything happens on one thread: a prediction at a time, and generators by turns, a piece each.
"""

from __future__ import annotations

import argparse
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

import numpy as np

FRAME = struct.Struct("<IQ")
OPTIONS = ("seed", "temperature", "top_p")
"""What a Python class gets that declares no `generate_options`."""
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
    """Send a head, with tensors (name, datatype, array) after it."""
    raws = [_raw(word, array) for _, word, array in arrays]
    if arrays:
        head["tensors"] = [[name, word, list(array.shape), len(raw)] for (name, word, array), raw in zip(arrays, raws)]
    text = json.dumps(head).encode()
    wire.sendall(FRAME.pack(len(text), sum(len(raw) for raw in raws)) + text)
    for raw in raws:
        wire.sendall(raw)


def receive(wire: socket.socket) -> tuple[Head, dict[str, Any]] | None:
    """The next head and its tensors by name; None at the end."""
    start = _exactly(wire, FRAME.size)
    if start is None:
        return None
    length, size = FRAME.unpack(start)
    text, raw = _exactly(wire, length), _exactly(wire, size)
    if text is None or raw is None:
        return None
    head = json.loads(bytes(text))
    tensors, at, view = {}, 0, memoryview(raw)
    for name, word, shape, nbytes in head.get("tensors", ()):
        tensors[name] = _array(word, view[at : at + nbytes]).reshape(shape)
        at += nbytes
    return head, tensors


def _exactly(wire: socket.socket, size: int) -> bytearray | None:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        count = wire.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return found


def _raw(word: str, array: Any) -> Any:
    if word == "BYTES":
        texts = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()]
        return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))
    flat = np.ascontiguousarray(array, dtype=_DTYPES.get(word, "float32"))
    return flat.reshape(-1).view(np.uint8).data if flat.size else b""


def _array(word: str, raw: memoryview) -> Any:
    if word != "BYTES":
        return np.frombuffer(raw, dtype=_DTYPES.get(word, "float32"))
    texts, at = [], 0
    while at < len(raw):
        (size,) = _LENGTH.unpack_from(raw, at)
        texts.append(bytes(raw[at + 4 : at + 4 + size]))
        at += 4 + size
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


class TorchExport:
    """A program of torch.export: a graph and weights."""

    platform = "pytorch_export"

    def __init__(self, entry: str, threads: int) -> None:
        # What of a program is pickled must be tensors alone; torch.export itself would read anything.
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        torch.set_num_threads(threads)
        self._torch = torch
        program = torch.export.load(entry)
        self._module = program.module()
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        signature = program.graph_signature
        self.inputs = [self._told(name, values[name]) for name in signature.user_inputs]
        outputs = [values[name] for name in signature.user_outputs]
        self.outputs = [self._told(f"output_{place}", value) for place, value in enumerate(outputs)]

    def _told(self, name: str, value: Any) -> Told:
        word = _WORDS[str(value.dtype).rpartition(".")[2]]
        return {"name": name, "datatype": word, "shape": [each if isinstance(each, int) else -1 for each in value.shape]}

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the graph."""
        torch = self._torch
        tensors = []
        for told, array in zip(self.inputs, inputs):
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
            tensors.append(tensor.bfloat16() if told["datatype"] == "BF16" else tensor)
        with torch.no_grad():
            outputs = self._module(*tensors)
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        elif isinstance(outputs, dict):
            outputs = tuple(outputs.values())
        return [each.float().numpy() if each.dtype == torch.bfloat16 else each.numpy() for each in outputs]


class SavedModel:
    """A SavedModel of TensorFlow: its signature `serving_default`."""

    platform = "tensorflow_savedmodel"

    def __init__(self, entry: str, threads: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._tf = tf
        self._model = tf.saved_model.load(entry)  # the signature lives as long as what it belongs to
        signatures = self._model.signatures
        if "serving_default" not in signatures:
            message = "it has no signature serving_default, only: %s; export it with Model.export" % (
                ", ".join(signatures) or "none"
            )
            raise ValueError(message)
        self._run = signatures["serving_default"]
        self.inputs = [self._told(name, spec) for name, spec in self._run.structured_input_signature[1].items()]
        self.outputs = [self._told(name, spec) for name, spec in self._run.structured_outputs.items()]

    def _told(self, name: str, spec: Any) -> Told:
        return {"name": name, "datatype": _WORDS[spec.dtype.name], "shape": [-1 if each is None else each for each in spec.shape]}

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the signature."""
        tf = self._tf
        named = {
            told["name"]: tf.cast(array, tf.bfloat16) if told["datatype"] == "BF16" else tf.constant(array)
            for told, array in zip(self.inputs, inputs)
        }
        outputs = self._run(**named)
        found = [outputs[told["name"]] for told in self.outputs]
        return [(tf.cast(each, tf.float32) if each.dtype == tf.bfloat16 else each).numpy() for each in found]


class PythonClass:
    """The class `Model` of a file: `load(folder)`, `predict(inputs)`, `generate(prompt, options)`, `embed(texts)`, `count(text)`.

    Each only where it has it.
    """

    platform = "python"

    def __init__(self, entry: str, threads: int) -> None:
        folder = os.path.dirname(os.path.abspath(entry))
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location("model", entry)
        if spec is None or spec.loader is None:
            raise ValueError(f"{entry} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules["model"] = module
        spec.loader.exec_module(module)
        if not hasattr(module, "Model"):
            raise ValueError(f"{entry} has no class Model")
        self.model = module.Model()
        if hasattr(self.model, "load"):
            self.model.load(folder)
        signature = getattr(self.model, "signature", None) or {}
        self.inputs: list[Told] = list(signature.get("inputs", ()))
        self.outputs: list[Told] = list(signature.get("outputs", ()))

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Ask the class, by name."""
        named = {told["name"]: array for told, array in zip(self.inputs, inputs)}
        outputs = self.model.predict(named)
        missing = [told["name"] for told in self.outputs if told["name"] not in outputs]
        if missing:
            raise KeyError(f"predict gave {sorted(outputs)} and lacks {missing}")
        return [np.asarray(outputs[told["name"]]) for told in self.outputs]


RUNTIMES = {"torch": TorchExport, "savedmodel": SavedModel, "python": PythonClass}


class Worker:
    """Answers frames until the other side is gone."""

    def __init__(self, wire: socket.socket, runtime: Any) -> None:
        self._wire = wire
        self._runtime = runtime
        self._model: Any = getattr(runtime, "model", None)
        self._writing: dict[int, tuple[Iterator[Any], int]] = {}
        """Generators by question, with how many pieces each may still give."""
        self._usage: dict[int, Any] = {}
        """Tokens by a model's own count, of those that gave it before their end."""

    def serve(self) -> None:
        """Until the end."""
        while True:
            if not self._writing or select.select([self._wire], [], [], 0)[0]:
                found = receive(self._wire)
                if found is None:
                    return
                self._guarded(found[0]["id"], lambda found=found: self._do(*found))
            for number in list(self._writing):
                self._guarded(number, lambda number=number: self._step(number))

    def _guarded(self, number: int, do: Any) -> None:
        try:
            do()
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever the model raises is an answer
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
            outputs = self._runtime.predict([tensors[told["name"]] for told in self._runtime.inputs])
            named = [(told["name"], told["datatype"], output) for told, output in zip(self._runtime.outputs, outputs)]
            send(self._wire, {"id": number}, tuple(named))
        elif do == "embed":
            more = (head["options"],) if head.get("options") else ()
            vectors = np.asarray(self._model.embed(head["texts"], *more), dtype="float32")
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
        pieces, left = self._writing[number]
        piece = next(pieces, None)
        more = dict(piece) if isinstance(piece, dict) else {}
        text = str(more.pop("text", "")) if isinstance(piece, dict) else str(piece or "")
        reason, usage = more.pop("finish_reason", None), more.pop("usage", None)
        counted = bool(text or more)
        if counted and left > 0:
            self._writing[number] = (pieces, left - 1)
            send(self._wire, {"id": number, "piece": text, "more": more} if more else {"id": number, "piece": text})
        if piece is None or reason or (counted and left == 0):
            del self._writing[number]
            end = "length" if counted and left == 0 else reason or "stop"
            send(self._wire, {"id": number, "end": str(end), "usage": usage or self._usage.pop(number, None)})
        elif usage:
            self._usage[number] = usage


def main() -> None:
    """Load, say what was loaded, serve."""
    parser = argparse.ArgumentParser()
    for name in ("--socket", "--threads"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--runtime", "--entry", "--signature"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    wire = socket.socket(fileno=given.socket)
    try:
        runtime: Any = RUNTIMES[given.runtime](given.entry, given.threads)
    except Exception as error:  # noqa: BLE001  # whatever it is, the model cannot be loaded
        traceback.print_exc()
        send(wire, {"id": 0, "error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    written = json.loads(given.signature)
    for side in ("inputs", "outputs"):
        if written[side]:
            setattr(runtime, side, _renamed(getattr(runtime, side), written[side]))
    model = getattr(runtime, "model", None)
    ready: Head = {name: hasattr(model, name) for name in ("generate", "embed", "count")}
    # What a class does not declare of `generate` is what it got before it could declare anything.
    ready["generate_options"] = sorted(getattr(model, "generate_options", OPTIONS))
    ready["embed_options"] = sorted(getattr(model, "embed_options", ()))
    send(wire, {"id": 0, "platform": runtime.platform, "inputs": runtime.inputs, "outputs": runtime.outputs, **ready})
    Worker(wire, runtime).serve()


def _renamed(own: list[Told], written: list[Told]) -> list[Told]:
    """What is written of a signature counts, by place, where the model itself cannot say more than it."""
    if own and len(own) != len(written):
        raise ValueError(f"fairway.json names {len(written)} tensors where the model has {len(own)}")
    return written


if __name__ == "__main__":
    main()
