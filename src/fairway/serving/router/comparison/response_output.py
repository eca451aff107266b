"""The outputs in the response of an inference server, whatever its protocol.

Supported are responses of the Open Inference Protocol (JSON, JSON followed by binary tensors, and gRPC) and of TensorFlow
Serving's REST interface (`predictions`, `outputs`, `result`), also compressed with gzip or deflate. Any other response has no
outputs here.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairway.serving.replica.model.datatype import DTYPES, Array, from_raw
from fairway.serving.replica.protocols.grpc.message_frame import PREFIX
from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.protocols.grpc.protobuf import Message
from fairway.serving.replica.request_error import RequestError

LARGEST = 4 * 1024 * 1024
"""Limit on the bytes of a decompressed response."""
_ENCODINGS = {b"gzip": 31, b"deflate": 47}
_SCORES = "scores"
_TFSERVING = ("predictions", "outputs", "result")


class IncomparableError(ValueError):
    """A response whose outputs cannot be read here."""


class NoOutputError(IncomparableError):
    """A response that was read and has no outputs."""


@dataclass(frozen=True, slots=True)
class InferenceOutput:
    """One output: its name, its datatype, and its values in their shape."""

    name: str
    datatype: str
    values: Array

    @property
    def is_float(self) -> bool:
        """Whether its values have a numeric distance."""
        return self.values.dtype.kind == "f"


def outputs_of(lines: Sequence[bytes], body: bytes) -> list[InferenceOutput]:
    """Return the outputs of a whole response, ordered by name; raise `IncomparableError` if none can be read.

    `lines` are the header lines of the response.
    """
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if headers.get(b"content-type", b"").startswith(b"application/grpc"):
        return _of_call(body)
    body = _plain(headers.get(b"content-encoding", b""), body)
    length = headers.get(b"inference-header-content-length", b"")
    text, raw = body, b""
    if length:
        if not length.isdigit() or len(length) > 12 or int(length) > len(body):
            raise IncomparableError("the length of the JSON part is wrong")
        text, raw = body[: int(length)], body[int(length) :]
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise NoOutputError("it is not JSON") from None
    if not isinstance(parsed, dict):
        raise NoOutputError("it is not a JSON object")
    try:
        return sorted(_read(parsed, memoryview(raw)), key=lambda output: output.name)
    except IncomparableError:
        raise
    except (RequestError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise IncomparableError(str(error)) from None


def _of_call(body: bytes) -> list[InferenceOutput]:
    """Return the outputs of a response to `ModelInfer` over gRPC."""
    try:
        answer = definitions().schema.decode("inference.ModelInferResponse", memoryview(body)[PREFIX:])
        pairs = zip(answer["outputs"], answer["raw_output_contents"], strict=True)
        outputs = [_output_of_call(tensor, memoryview(raw)) for tensor, raw in pairs]
    except (RequestError, ValueError, KeyError) as error:
        raise IncomparableError(f"its raw outputs cannot be read: {error}") from None
    return sorted(outputs, key=lambda output: output.name)


def _output_of_call(tensor: Message, raw: memoryview) -> InferenceOutput:
    name, datatype, shape = tensor["name"], tensor["datatype"], tuple(tensor.get("shape", ()))
    return InferenceOutput(name, datatype, from_raw(datatype, raw, math.prod(shape), name).reshape(shape))


def _plain(encoding: bytes, body: bytes) -> bytes:
    encoding = encoding.lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in _ENCODINGS:
        raise IncomparableError("its content encoding is not supported")
    try:
        reader = zlib.decompressobj(_ENCODINGS[encoding])
        plain = reader.decompress(body, LARGEST)
    except zlib.error:
        raise IncomparableError("it does not match its content encoding") from None
    if reader.unconsumed_tail or not reader.eof:
        raise IncomparableError("it is too large")
    return plain


def _read(found: dict[str, Any], raw: memoryview) -> list[InferenceOutput]:
    outputs = found.get("outputs")
    if isinstance(outputs, list) and outputs and all(isinstance(output, dict) and "datatype" in output for output in outputs):
        return _inference(outputs, raw)
    name = next((name for name in _TFSERVING if name in found), None)
    if name is None:
        raise NoOutputError("it has no outputs")
    return _columns(name, found[name])


def _inference(outputs: list[dict[str, Any]], raw: memoryview) -> list[InferenceOutput]:
    """Return the outputs of the Open Inference Protocol."""
    read: list[InferenceOutput] = []
    at = 0
    for output in outputs:
        name, datatype, shape = str(output["name"]), str(output["datatype"]), tuple(int(length) for length in output["shape"])
        if datatype not in DTYPES or any(length < 0 for length in shape):
            raise IncomparableError(f"output {name!r} has an unknown datatype or an invalid shape")
        count = math.prod(shape)
        if "data" in output:
            values = _of_json(output["data"], datatype)
        else:
            size = int(output["parameters"]["binary_data_size"])
            if size < 0 or at + size > len(raw):
                raise IncomparableError(f"output {name!r} has no data")
            values = from_raw(datatype, raw[at : at + size], count, name)
            at += size
        if values.size != count:
            raise IncomparableError(f"output {name!r} has {values.size} values for its shape")
        read.append(InferenceOutput(name, datatype, values.reshape(shape)))
    return read


def _of_json(data: Any, datatype: str) -> Array:
    """Return flat or nested values as an array; `null` stands for a number that JSON cannot express."""
    dtype = DTYPES[datatype]
    if dtype.kind == "f":
        return _floats(data)
    if datatype == "BYTES":
        return np.array([str(value) for value in _flat(data)], dtype=object)
    return np.array(_flat(data), dtype=dtype)


def _floats(data: Any) -> Array:
    try:
        return np.array(data, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        return np.array([float("nan") if value is None else float(value) for value in _flat(data)], dtype=np.float64)


def _flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    return [value for item in data for value in _flat(item)] if any(isinstance(item, list) for item in data) else data


def _columns(name: str, found: Any) -> list[InferenceOutput]:
    """Return the outputs of TensorFlow Serving: rows of values, rows of named values, or named columns."""
    if isinstance(found, dict):
        return [_column(key, value) for key, value in found.items()]
    if not isinstance(found, list):
        raise IncomparableError(f"{name!r} has no values")
    if found and all(isinstance(row, dict) for row in found):
        if any(row.keys() != found[0].keys() for row in found):
            raise IncomparableError("its rows have different names")
        return [_column(key, [row[key] for row in found]) for key in found[0]]
    if name == "result" and found and all(isinstance(row, list) and row and isinstance(row[0], list) for row in found):
        return _classified(found)
    return [_column(name, found)]


def _classified(rows: list[list[list[Any]]]) -> list[InferenceOutput]:
    """Return the outputs of a `:classify` response: rows of (label, score)."""
    labels = [[str(label) for label, _ in row] for row in rows]
    return [_column("labels", labels), _column(_SCORES, [[score for _, score in row] for row in rows])]


def _column(name: str, data: Any) -> InferenceOutput:
    """Return one column; its datatype is that of its values, as far as JSON shows it."""
    flat = _flat(data)
    shape = _shape(data)
    if math.prod(shape) != len(flat):
        raise IncomparableError(f"output {name!r} is ragged")
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in flat):
        numbers = [float("nan") if value is None else float(value) for value in flat]
        whole = bool(flat) and all(isinstance(value, int) for value in flat)
        values: Array = np.array(numbers, dtype=np.float64)
        return InferenceOutput(name, "INTEGER" if whole else "NUMBER", values.reshape(shape))
    kind = "BOOL" if all(isinstance(value, bool) for value in flat) else "TEXT"
    return InferenceOutput(name, kind, np.array([json.dumps(value) for value in flat], dtype=object).reshape(shape))


def _shape(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, list):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)
