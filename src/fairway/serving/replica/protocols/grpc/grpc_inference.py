"""The inference request of the Open Inference Protocol over gRPC.

The part of a client's requests before the tensor data is the same each time, except for the id. So it is parsed and checked once
and cached, and later requests only need a scan of their tags. Tensor data is not copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairway.serving.replica.model.datatype import DTYPES, Array, from_raw, of_texts, to_raw
from fairway.serving.replica.model.served_model import (
    InferenceRequest,
    ReplicaResponse,
    ServedModel,
    Wanted,
    check_shape,
    check_version,
    named,
    rows_of,
)
from fairway.serving.replica.protocols.class_ranking import best_classes
from fairway.serving.replica.protocols.grpc.message_frame import CONTENT_TYPE, OK_HEADERS, frame, unframed
from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.protocols.grpc.protobuf import Message, read_varint, skip, varint
from fairway.serving.replica.protocols.json_piece import Steps
from fairway.serving.replica.protocols.open_inference_parameter import check_input, check_output, check_request
from fairway.serving.replica.request_error import RequestError, bad

REQUEST = "inference.ModelInferRequest"
RESPONSE = "inference.ModelInferResponse"
_KNOWN = 256
"""Maximum number of cached request heads and answer heads."""
_HEAD_SIZE = 2048
_ID, _RAW = 0x1A, 0x3A
"""The tags of `id` and `raw_input_contents`."""
_OUT_ID, _OUT_RAW = b"\x1a", b"\x32"
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


@dataclass(slots=True)
class _GrpcRequestHead:
    """The checked content of a request, without its id and tensor data."""

    tensors: list[tuple[int, str, tuple[int, ...], int]]
    """Index in the signature, datatype, shape and number of elements, in the order of the request."""
    rows: int
    wanted: Wanted
    classes: tuple[int, ...] = ()
    timeout: float = 0.0
    typed: list[Array] = field(default_factory=list)
    """The inputs, if the request has them in `contents`."""


class GrpcInferCodec:
    """Parses and writes `ModelInfer`. Implements `Form`."""

    def __init__(self, model: ServedModel, most: int) -> None:
        """`most`: maximum bytes of a decompressed request."""
        self._model = model
        self._specs = model.signature.inputs
        self._most = most
        self._heads: dict[bytes, _GrpcRequestHead] = {}
        self._frames: dict[tuple[Wanted, tuple[tuple[int, ...], ...]], bytes] = {}
        self._everything = tuple((index, True) for index in range(len(model.signature.outputs)))

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse the message in a body; raise `RequestError` when it is invalid."""
        return self.read_message(unframed(body, self._most))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse in a single step: gRPC requests contain no JSON to parse in steps."""
        yield 0
        return self.read(body, head_length)

    def read_message(self, data: bytes | memoryview) -> InferenceRequest:
        """Parse a message."""
        key, identity, raws = _split(data)
        head = self._heads.get(key)
        if head is None:
            head = self._read_head(key)
        if head.typed:
            if raws:
                raise bad("the request has both contents and raw_input_contents", "keep one")
            return InferenceRequest(head.typed, head.rows, identity, head.wanted, timeout=head.timeout, classes=head.classes)
        if len(raws) != len(head.tensors):
            message = f"{len(raws)} raw_input_contents for {len(head.tensors)} inputs"
            raise bad(message, "send the bytes of each input, in the order of the inputs")
        inputs: list[Array] = [None] * len(self._specs)  # type: ignore[list-item]  # the head covers every input
        for (index, datatype, shape, count), raw in zip(head.tensors, raws, strict=True):
            inputs[index] = from_raw(datatype, raw, count, self._specs[index].name).reshape(shape)
        return InferenceRequest(inputs, head.rows, identity, head.wanted, timeout=head.timeout, classes=head.classes)

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write the outputs in the same form as the inputs, raw or typed."""
        wanted = question.wanted
        if question.classes or not all(binary for _, binary in wanted):
            return _answer(self._written(question, outputs, question.classes))
        head = self._frames.get((wanted, shapes := tuple([outputs[index].shape for index, _ in wanted])))
        if head is None:
            head = self._about(wanted, shapes)
        parts = [head]
        if question.id:
            request_id = question.id.encode()
            parts += (_OUT_ID, varint(len(request_id)), request_id)
        for index, _ in wanted:
            raw = to_raw(self._model.signature.outputs[index].datatype, outputs[index])
            parts += (_OUT_RAW, varint(len(raw)), raw)
        return _answer(b"".join(parts))

    def _about(self, wanted: Wanted, shapes: tuple[tuple[int, ...], ...]) -> bytes:
        """Encode the part of an answer that is the same for the same shapes, and cache it."""
        specs = self._model.signature.outputs
        tensors = [
            {"name": specs[index].name, "datatype": specs[index].datatype, "shape": shape}
            for (index, _), shape in zip(wanted, shapes, strict=True)
        ]
        head = definitions().schema.encode(RESPONSE, {**self._named(), "outputs": tensors})
        if len(self._frames) >= _KNOWN:
            self._frames.clear()
        self._frames[wanted, shapes] = head
        return head

    def _written(self, question: InferenceRequest, outputs: list[Array], classes: tuple[int, ...]) -> bytes:
        """Encode an answer with `contents`, or with classes."""
        tensors: list[Message] = []
        raws: list[bytes] = []
        for number, (index, binary) in enumerate(question.wanted):
            spec, array = self._model.signature.outputs[index], outputs[index]
            datatype = spec.datatype
            if classes and classes[number]:
                datatype, array = "BYTES", best_classes(spec, array, classes[number], rows=self._model.batches)
            tensor: Message = {"name": spec.name, "datatype": datatype, "shape": array.shape}
            if binary:
                raws.append(to_raw(datatype, array))
            else:
                tensor["contents"] = {_CONTENTS[datatype]: _elements(datatype, array)}
            tensors.append(tensor)
        response = {**self._named(), "id": question.id or None, "outputs": tensors, "raw_output_contents": raws}
        return definitions().schema.encode(RESPONSE, response)

    def _named(self) -> Message:
        return {"model_name": self._model.name, "model_version": self._model.version}

    def _read_head(self, key: bytes) -> _GrpcRequestHead:
        head = self._checked(definitions().schema.decode(REQUEST, key))
        if not head.typed and len(key) <= _HEAD_SIZE:
            if len(self._heads) >= _KNOWN:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _checked(self, request: Message) -> _GrpcRequestHead:
        model = self._model
        check_name(model, request.get("model_name", ""), request.get("model_version", ""))
        timeout = check_request(_plain(request.get("parameters", {})))
        tensors = request.get("inputs", [])
        if len(tensors) != len(self._specs):
            message = f"the request has {len(tensors)} inputs"
            raise bad(message, f"the model takes {len(self._specs)}: {', '.join(spec.name for spec in self._specs)}")
        checked: list[tuple[int, str, tuple[int, ...], int]] = []
        shapes: list[tuple[int, ...]] = [()] * len(self._specs)
        typed: list[Array | None] = [None] * len(self._specs)
        for tensor in tensors:
            index, shape = self._place(tensor), tuple(tensor.get("shape", ()))
            check_shape(self._specs[index], shape)
            shapes[index] = shape
            checked.append((index, tensor.get("datatype", ""), shape, math.prod(shape)))
            if tensor.get("contents"):
                typed[index] = _typed(tensor["contents"], *checked[-1][1:], self._specs[index].name)
        if len({entry[0] for entry in checked}) != len(checked):
            raise bad("an input is given twice", "send each once")
        arrays = [entry for entry in typed if entry is not None]
        if arrays and len(arrays) != len(checked):
            raise bad("some inputs have contents and others do not", "send contents for all inputs, or raw_input_contents")
        wanted, classes = self._wanted(request.get("outputs", []), raw=not arrays)
        return _GrpcRequestHead(checked, rows_of(model, shapes), wanted, classes, timeout, arrays)

    def _place(self, tensor: Message) -> int:
        index = named(self._specs, tensor.get("name", ""), "input")
        check_input(tensor.get("name", ""), _plain(tensor.get("parameters", {})))
        spec, datatype = self._specs[index], tensor.get("datatype", "")
        if datatype != spec.datatype:
            message = f"input {spec.name!r} is {datatype[:40]!r}"
            raise bad(message, f"the model takes {spec.datatype}")
        return index

    def _wanted(self, asked: list[Message], *, raw: bool) -> tuple[Wanted, tuple[int, ...]]:
        """Return the requested outputs: raw if the inputs were, or if `contents` has no field for a datatype."""
        outputs = self._model.signature.outputs
        raw = raw or any(spec.datatype not in _CONTENTS for spec in outputs)
        if not asked:
            return tuple((index, raw) for index, _ in self._everything), ()
        indices, classes = [], []
        for output in asked:
            name = output.get("name", "")
            indices.append(named(outputs, name, "output"))
            classes.append(check_output(name, _plain(output.get("parameters", {}))))
        if len(set(indices)) != len(indices):
            raise bad("an output is requested twice", "request each once")
        return tuple((index, raw) for index in indices), tuple(classes) if any(classes) else ()


def check_name(model: ServedModel, name: str, version: str) -> None:
    """Raise 404 for another model or version."""
    if name != model.name:
        message = f"no model {name[:200]!r} here"
        raise RequestError(404, message, fix=f"{model.name!r} is served")
    if version:
        check_version(model, version)


def _split(data: bytes | memoryview) -> tuple[bytes, str, list[memoryview]]:
    """Split a request into its head without the id, its id, and the tensor data."""
    view = memoryview(data)
    raws: list[memoryview] = []
    pieces: list[memoryview] = []
    request_id, start, position, end = b"", 0, 0, len(view)
    try:
        while position < end:
            tag = view[position]
            if tag not in (_RAW, _ID):
                key, after = read_varint(view, position)
                position = skip(view, after, key & 7)
                continue
            size, begin = read_varint(view, position + 1)
            stop = begin + size
            view[stop - 1]  # IndexError when the value is cut short
            if position > start:
                pieces.append(view[start:position])
            start = position = stop
            if tag == _RAW:
                raws.append(view[begin:stop])
            else:
                request_id = bytes(view[begin:stop])
        if end > start:
            pieces.append(view[start:])
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces), request_id.decode(), raws
    except (IndexError, ValueError):
        raise bad("the request is not a valid inference.ModelInferRequest") from None


def _typed(contents: Message, word: str, shape: tuple[int, ...], count: int, name: str) -> Array:
    """Return an input given in `contents`."""
    field_name = _CONTENTS.get(word)
    if field_name is None or set(contents) != {field_name}:
        message = f"input {name!r} of {word} has {', '.join(sorted(contents))}"
        raise bad(message, f"send {field_name}" if field_name else "send raw_input_contents")
    values = contents[field_name]
    if len(values) != count:
        message = f"input {name!r} has {len(values)} elements"
        raise bad(message, f"the shape {list(shape)} needs {count}")
    if word == "BYTES":
        return of_texts([bytes(value) for value in values]).reshape(shape)
    dtype = DTYPES[word]
    array = np.asarray(values)
    if dtype.kind in "iu" and count and not (np.iinfo(dtype).min <= int(array.min()) and int(array.max()) <= np.iinfo(dtype).max):
        message = f"input {name!r} has numbers outside the range of {word}"
        raise bad(message)
    return array.astype(dtype).reshape(shape)


def _elements(word: str, array: Array) -> list[Any]:
    flat = array.ravel().tolist()
    return [element if isinstance(element, bytes) else str(element).encode() for element in flat] if word == "BYTES" else flat


def _plain(parameters: Message) -> dict[str, Any]:
    """Return parameters without their wrapper messages, and without `binary_data_output`, which gRPC does not need."""
    values = {name: next(iter(value.values()), None) for name, value in parameters.items()}
    values.pop("binary_data_output", None)
    return values


def _answer(message: bytes) -> ReplicaResponse:
    return ReplicaResponse(frame(message), headers=list(OK_HEADERS), content_type=CONTENT_TYPE)
