"""Open Inference Protocol v2 over REST, with its binary tensor extension."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec

from fairway.serving.replica.model.datatype import DTYPES, Array, from_raw, to_raw
from fairway.serving.replica.model.served_model import (
    InferenceRequest,
    ReplicaResponse,
    ServedModel,
    Wanted,
    check_shape,
    named,
    rows_of,
)
from fairway.serving.replica.protocols.class_ranking import best_classes
from fairway.serving.replica.protocols.json_piece import FRAME_WORTH, Steps, beside, elements, finish, small, weight
from fairway.serving.replica.protocols.json_tensor import FLOATS, array_of, json_of, read_tensors, steps_from_json
from fairway.serving.replica.protocols.open_inference_parameter import check_input, check_output, check_request
from fairway.serving.replica.request_error import bad
from fairway.state.model import TensorSpec
from fairway.state.serving.batching_verdict import BatchingVerdict

LENGTH_HEADER = b"inference-header-content-length"
_KNOWN_HEADS = 256
"""Number of JSON heads of binary requests to cache; clients send the same one repeatedly."""
_HEAD_SIZE = 2048

Parameters = dict[str, Any]
_Wishes = tuple[Wanted, tuple[int, ...], float]
"""Requested outputs, the number of classes for each, and the timeout."""


class _Output(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    parameters: Parameters = {}


class _OpenInferenceTensor(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _OpenInferenceRequest(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    inputs: list[_OpenInferenceTensor]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[_Output] = []
    model_name: str | None = None
    """KServe's clients repeat the name from the path."""
    model_version: str | None = None


class _LargeTensor(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A tensor of a large request: members without a fixed size are not decoded yet."""

    name: str
    datatype: str
    shape: msgspec.Raw
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _LargeRequest(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    inputs: list[_LargeTensor]
    id: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    model_name: str | None = None
    model_version: str | None = None


class _FloatTensor(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    datatype: str
    data: list[float]
    parameters: Parameters = {}


class _FloatRequest(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The most common form of request: flat numbers, all outputs, nothing else. Others take the general path."""

    inputs: list[_FloatTensor]
    id: str = ""


class _NotCommonFormError(Exception):
    """The request is not of the most common form."""


class _BinaryRequestHead:
    """The checked JSON of a binary request."""

    __slots__ = ("classes", "id", "rows", "size", "tensors", "timeout", "wanted")

    def __init__(
        self,
        tensors: list[tuple[int, str, tuple[int, ...], int, int]],
        rows: int,
        request: _OpenInferenceRequest,
        wanted: _Wishes,
    ) -> None:
        self.tensors = tensors
        """Index in the signature, datatype, shape, number of elements and bytes, in the order of the body."""
        self.size = sum(tensor[4] for tensor in tensors)
        self.rows = rows
        self.id = request.id
        self.wanted, self.classes, self.timeout = wanted


class _AnswerTemplate:
    """An answer without its values: the text before each value, and the text at the end."""

    __slots__ = ("before", "end")

    def __init__(self, before: list[bytes], end: bytes) -> None:
        self.before = before
        self.end = end


class OpenInferenceCodec:
    """Parses and writes the requests of one model."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._specs = model.signature.inputs
        self._decoder = msgspec.json.Decoder(_OpenInferenceRequest)
        self._all_floats = all(spec.datatype in FLOATS for spec in self._specs)
        self._quick = msgspec.json.Decoder(_FloatRequest)
        self._heads: dict[bytes, _BinaryRequestHead] = {}
        self._everything: _Wishes = (tuple((index, False) for index in range(len(model.signature.outputs))), (), 0.0)
        self._frames: dict[tuple[Wanted, tuple[tuple[int, ...], ...]], _AnswerTemplate] = {}

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse the body of a request; raise `RequestError` when it is invalid."""
        if head_length is not None:
            return self._read_binary(body, _length(head_length, len(body)))
        if self._all_floats:
            try:
                return self._read_floats(self._quick.decode(body))
            except (msgspec.ValidationError, _NotCommonFormError):
                pass  # not the common form; the general path reports the error, if there is one
            except (msgspec.DecodeError, ValueError, RecursionError):
                pass
        request: _OpenInferenceRequest = finish(read_tensors(self._decoder, body))
        return finish(self._read_tensors(request, memoryview(b"")))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse a request with much JSON in steps."""
        length = len(body) if head_length is None else _length(head_length, len(body))
        yield FRAME_WORTH * length
        large: _LargeRequest = yield from read_tensors(_LARGE, memoryview(body)[:length])
        self._check_count(len(large.inputs))
        tensors = [
            _OpenInferenceTensor(
                tensor.name,
                small(tensor.shape, _SHAPE, f"shape of input {tensor.name!r}"),
                tensor.datatype,
                small(tensor.parameters, _PARAMETERS, f"parameters of input {tensor.name!r}"),
                tensor.data,
            )
            for tensor in large.inputs
        ]
        parameters, outputs = small(large.parameters, _PARAMETERS, "parameters"), small(large.outputs, _OUTPUTS, "outputs")
        return (
            yield from self._read_tensors(
                _OpenInferenceRequest(tensors, large.id, parameters, outputs), memoryview(body)[length:]
            )
        )

    def _read_floats(self, request: _FloatRequest) -> InferenceRequest:
        self._check_count(len(request.inputs))
        arrays: list[Array | None] = [None] * len(self._specs)
        shapes: list[tuple[int, ...]] = [()] * len(self._specs)
        for tensor in request.inputs:
            if tensor.parameters:
                raise _NotCommonFormError
            index = self._place(tensor.name, tensor.datatype)
            shape = shapes[index] = tuple(tensor.shape)
            check_shape(self._specs[index], shape)
            if len(tensor.data) != math.prod(shape):
                raise elements(f"input {tensor.name!r}", len(tensor.data), shape)
            arrays[index] = array_of(tensor.data, tensor.datatype).reshape(shape)
        return self._question(arrays, shapes, request.id, self._everything, len(request.inputs))

    def _read_tensors(self, request: _OpenInferenceRequest, raw: memoryview) -> Steps[InferenceRequest]:
        self._check_count(len(request.inputs))
        arrays: list[Array | None] = [None] * len(self._specs)
        shapes: list[tuple[int, ...]] = [()] * len(self._specs)
        offset = 0
        for tensor in request.inputs:
            index = self._place(tensor.name, tensor.datatype)
            shape = shapes[index] = tuple(tensor.shape)
            check_shape(self._specs[index], shape)
            size = _binary_size(tensor)
            if size is None:
                assert isinstance(tensor.data, msgspec.Raw)
                steps = steps_from_json(tensor.data, tensor.datatype, shape, f"input {tensor.name!r}")
                arrays[index] = yield from beside(weight([array for array in arrays if array is not None]), steps)
                continue
            if offset + size > len(raw):
                message = f"input {tensor.name!r}: binary_data_size {size} where {len(raw) - offset} bytes are left of the body"
                raise bad(message)
            arrays[index] = from_raw(
                tensor.datatype, raw[offset : offset + size], math.prod(shape), f"input {tensor.name!r}"
            ).reshape(shape)
            offset += size
        if offset != len(raw):
            message = f"{len(raw) - offset} bytes of the body belong to no input"
            raise bad(message, "make the binary_data_size of the inputs add up to the bytes after the JSON")
        return self._question(arrays, shapes, request.id, self._wanted(request), len(request.inputs))

    def _read_binary(self, body: bytes, length: int) -> InferenceRequest:
        text = body[:length]
        head = self._heads.get(text)
        if head is None:
            request: _OpenInferenceRequest = finish(read_tensors(self._decoder, text))
            if not _plain_binary(request):
                return finish(self._read_tensors(request, memoryview(body)[length:]))
            head = self._head(request)
            if length <= _HEAD_SIZE:
                if len(self._heads) >= _KNOWN_HEADS:
                    self._heads.clear()
                self._heads[text] = head
        if len(body) - length != head.size:
            message = f"{len(body) - length} bytes follow the JSON, and the inputs' binary_data_size add up to {head.size}"
            raise bad(message)
        view = memoryview(body)
        inputs: list[Array] = [None] * len(self._specs)  # type: ignore[list-item]  # the head covers every input
        for index, datatype, shape, count, size in head.tensors:
            inputs[index] = from_raw(datatype, view[length : length + size], count, self._specs[index].name).reshape(shape)
            length += size
        return InferenceRequest(inputs, head.rows, head.id, head.wanted, timeout=head.timeout, classes=head.classes)

    def _head(self, request: _OpenInferenceRequest) -> _BinaryRequestHead:
        self._check_count(len(request.inputs))
        tensors, shapes = [], {}
        for tensor in request.inputs:
            index = self._place(tensor.name, tensor.datatype)
            shape = shapes[index] = tuple(tensor.shape)
            check_shape(self._specs[index], shape)
            size, count = _binary_size(tensor) or 0, math.prod(shape)
            width = 2 if tensor.datatype == "BF16" else DTYPES[tensor.datatype].itemsize
            if tensor.datatype != "BYTES" and size != count * width:
                message = f"input {tensor.name!r}: binary_data_size {size} for {count} elements of {tensor.datatype}"
                raise bad(message, f"it should be {count * width}")
            tensors.append((index, tensor.datatype, shape, count, size))
        self._complete(shapes, len(request.inputs))
        return _BinaryRequestHead(
            tensors, rows_of(self._model, [shapes[index] for index in range(len(self._specs))]), request, self._wanted(request)
        )

    def _place(self, name: str, datatype: str) -> int:
        index = named(self._specs, name, "input")
        if datatype != self._specs[index].datatype:
            message = f"input {name!r} has datatype {datatype!r}"
            raise bad(message, f"the model takes {self._specs[index].datatype}")
        return index

    def _check_count(self, given: int) -> None:
        """Refuse too many inputs before any of them is parsed."""
        if given > len(self._specs):
            message = f"the request has {given} inputs where the model takes {len(self._specs)}: one is unknown or given twice"
            raise bad(message)

    def _complete(self, seen: dict[int, tuple[int, ...]], given: int) -> None:
        missing = [spec.name for index, spec in enumerate(self._specs) if index not in seen]
        if missing:
            message = f"the request lacks the input{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}"
            raise bad(message)
        if given != len(self._specs):
            raise bad("an input is given twice")

    def _question(
        self, found: list[Array | None], shapes: list[tuple[int, ...]], id_: str, wishes: _Wishes, given: int
    ) -> InferenceRequest:
        inputs = [array for array in found if array is not None]
        if given != len(self._specs) or len(inputs) != given:
            self._complete({index: () for index, array in enumerate(found) if array is not None}, given)
        return InferenceRequest(inputs, rows_of(self._model, shapes), id_, wishes[0], timeout=wishes[2], classes=wishes[1])

    def _wanted(self, request: _OpenInferenceRequest) -> _Wishes:
        timeout = check_request(request.parameters) if request.parameters else 0.0
        binary_by_default = bool(request.parameters.get("binary_data_output", False))
        outputs = self._model.signature.outputs
        if not request.outputs:
            return tuple((index, binary_by_default) for index in range(len(outputs))), (), timeout
        if len(request.outputs) > len(outputs):
            message = f"the request asks for {len(request.outputs)} outputs"
            raise bad(message, f"the model has {len(outputs)}; request each once")
        classes = tuple([check_output(output.name, output.parameters) for output in request.outputs])
        wanted = {
            named(outputs, output.name, "output"): bool(output.parameters.get("binary_data", binary_by_default))
            for output in request.outputs
        }
        if len(wanted) != len(request.outputs):
            raise bad("an output is requested twice", "request each once")
        return tuple(wanted.items()), classes if any(classes) else (), timeout

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write the answer in the requested form."""
        specs = self._model.signature.outputs
        if question.classes:
            specs, outputs = self._classified(question, outputs)
        shapes = tuple([outputs[index].shape for index, _ in question.wanted])
        frame = None if question.classes else self._frames.get((question.wanted, shapes))
        if frame is None or question.id:
            frame = self._frame(question, shapes, specs)
        pieces: list[bytes] = []
        raws: list[bytes] = []
        for (index, binary), before in zip(question.wanted, frame.before, strict=True):
            array, spec = outputs[index], specs[index]
            pieces.append(before)
            if not binary:
                pieces.append(msgspec.json.encode(json_of(spec.datatype, array, spec.name)))
            else:
                raws.append(to_raw(spec.datatype, array))
                if spec.datatype == "BYTES":
                    pieces.append(b"%d}" % len(raws[-1]))
        pieces.append(frame.end)
        head = b"".join(pieces)
        if not raws:
            return ReplicaResponse(head)
        raws.insert(0, head)
        return ReplicaResponse(
            b"".join(raws), headers=[(LENGTH_HEADER, b"%d" % len(head))], content_type=b"application/octet-stream"
        )

    def _classified(self, question: InferenceRequest, outputs: list[Array]) -> tuple[tuple[TensorSpec, ...], list[Array]]:
        """Return the outputs, with the best classes in place of the values where requested."""
        specs, outputs = list(self._model.signature.outputs), list(outputs)
        for (index, _), count in zip(question.wanted, question.classes, strict=True):
            if count:
                outputs[index] = best_classes(specs[index], outputs[index], count, rows=self._model.batches)
                specs[index] = TensorSpec(specs[index].name, "BYTES", outputs[index].shape)
        return tuple(specs), outputs

    def _frame(
        self, question: InferenceRequest, shapes: tuple[tuple[int, ...], ...], specs: tuple[TensorSpec, ...]
    ) -> _AnswerTemplate:
        """Return an answer without its values, and cache it if it can be reused."""
        model = self._model
        model_members = {"model_name": model.name, "model_version": model.version, **({"id": question.id} if question.id else {})}
        separator = msgspec.json.encode(model_members)[:-1] + b',"outputs":['
        before = []
        for (index, binary), shape in zip(question.wanted, shapes, strict=True):
            spec = specs[index]
            description = msgspec.json.encode({"name": spec.name, "datatype": spec.datatype, "shape": shape})[:-1]
            if not binary:
                before.append(separator + description + b',"data":')
            elif spec.datatype == "BYTES":  # its length depends on the values
                before.append(separator + description + b',"parameters":{"binary_data_size":')
            else:
                width = 2 if spec.datatype == "BF16" else DTYPES[spec.datatype].itemsize
                before.append(separator + description + b',"parameters":{"binary_data_size":%d}' % (width * math.prod(shape)))
            separator = b"},"
        frame = _AnswerTemplate(before, b"}]}" if before else separator + b"]}")
        in_order = all(before < after for (before, _), (after, _) in itertools.pairwise(question.wanted))
        if in_order and not question.id and not question.classes:
            # Only answers with the outputs in the order of the signature are cached, because there are many other orders.
            if len(self._frames) >= _KNOWN_HEADS:
                self._frames.clear()
            self._frames[question.wanted, shapes] = frame
        return frame


def metadata(model: ServedModel, verdict: BatchingVerdict) -> dict[str, object]:
    """Return the model's inputs and outputs; `parameters` is an extension that clients ignore."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": model.platform,
        "inputs": [_told(spec) for spec in model.signature.inputs],
        "outputs": [_told(spec) for spec in model.signature.outputs],
        "parameters": {"batching": str(verdict)},
    }


def _told(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _plain_binary(request: _OpenInferenceRequest) -> bool:
    return all(tensor.data is msgspec.UNSET for tensor in request.inputs)


def _binary_size(tensor: _OpenInferenceTensor) -> int | None:
    """Return the number of bytes of this input in the body; None when it is in the JSON."""
    if tensor.parameters:
        check_input(tensor.name, tensor.parameters)
    size = tensor.parameters.get("binary_data_size")
    if size is None:
        if tensor.data is msgspec.UNSET:
            message = f"input {tensor.name!r} has no data"
            raise bad(message, "send data, or parameters.binary_data_size and bytes after the JSON")
        return None
    if tensor.data is not msgspec.UNSET and (size or bytes(tensor.data) not in (b"[]", b"null")):
        message = f"input {tensor.name!r} has both data and binary_data_size"
        raise bad(message, "keep one")
    if type(size) is not int or size < 0:
        message = f"input {tensor.name!r}: binary_data_size {size!r} is not a number of bytes"
        raise bad(message)
    return size


def _length(value: bytes, whole: int) -> int:
    """Parse the header with the length of the JSON."""
    if not value.isdigit() or len(value) > 12 or int(value) > whole:
        message = f"Inference-Header-Content-Length {value[:40].decode('latin-1')!r} for a body of {whole} bytes"
        raise bad(message, "send the length of the JSON at the start of the body")
    return int(value)


_LARGE = msgspec.json.Decoder(_LargeRequest)
_SHAPE = msgspec.json.Decoder(list[int])
_PARAMETERS = msgspec.json.Decoder(Parameters)
_OUTPUTS = msgspec.json.Decoder(list[_Output])
