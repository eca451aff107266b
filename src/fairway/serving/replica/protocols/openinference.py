"""Open Inference Protocol v2 over REST, with its binary tensor extension."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec

from fairway.serving.replica.datatypes import DTYPES, Array, from_raw, to_raw
from fairway.serving.replica.model import Answer, Question, ServedModel, Wanted, check_shape, named, rows_of
from fairway.serving.replica.problem import bad
from fairway.serving.replica.protocols.classification import best_classes
from fairway.serving.replica.protocols.parameters import check_input, check_output, check_request
from fairway.serving.replica.protocols.pieces import FRAME_WORTH, Steps, beside, elements, finish, small, weight
from fairway.serving.replica.protocols.values import FLOATS, array_of, json_of, read_tensors, steps_from_json
from fairway.state.batching import BatchingVerdict
from fairway.state.model import TensorSpec

LENGTH_HEADER = b"inference-header-content-length"
_KNOWN_HEADS = 256
"""JSON heads of binary requests that are remembered; clients send the same one again and again."""
_HEAD_SIZE = 2048

Parameters = dict[str, Any]
_Wishes = tuple[Wanted, tuple[int, ...], float]
"""Outputs that are wanted, how many classes of each, and the timeout."""


class _Output(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    parameters: Parameters = {}


class _Tensor(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Request(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    inputs: list[_Tensor]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[_Output] = []
    model_name: str | None = None
    """KServe's clients repeat what the path says."""
    model_version: str | None = None


class _LargeTensor(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A tensor of a large request: what has no fixed size stays text."""

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
    """The request that nearly all send: flat numbers, all outputs, nothing else. Anything more is read the long way."""

    inputs: list[_FloatTensor]
    id: str = ""


class _UnusualError(Exception):
    """The request has more than the form that nearly all have."""


class _Head:
    """What the JSON of a binary request says, checked."""

    __slots__ = ("classes", "id", "rows", "size", "tensors", "timeout", "wanted")

    def __init__(
        self,
        tensors: list[tuple[int, str, tuple[int, ...], int, int]],
        rows: int,
        request: _Request,
        wanted: _Wishes,
    ) -> None:
        self.tensors = tensors
        """Place in the signature, datatype, shape, elements, bytes; in the order of the body."""
        self.size = sum(each[4] for each in tensors)
        self.rows = rows
        self.id = request.id
        self.wanted, self.classes, self.timeout = wanted


class _Frame:
    """An answer without its values: what comes before each, and what comes after all."""

    __slots__ = ("before", "end")

    def __init__(self, before: list[bytes], end: bytes) -> None:
        self.before = before
        self.end = end


class OpenInference:
    """Reads and writes the requests of one model."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._specs = model.signature.inputs
        self._decoder = msgspec.json.Decoder(_Request)
        self._all_floats = all(spec.datatype in FLOATS for spec in self._specs)
        self._quick = msgspec.json.Decoder(_FloatRequest)
        self._heads: dict[bytes, _Head] = {}
        self._everything: _Wishes = (tuple((place, False) for place in range(len(model.signature.outputs))), (), 0.0)
        self._frames: dict[tuple[Wanted, tuple[tuple[int, ...], ...]], _Frame] = {}

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """A question from a request's body, or a `RequestError` that says what is wrong with it."""
        if head_length is not None:
            return self._read_binary(body, _length(head_length, len(body)))
        if self._all_floats:
            try:
                return self._read_floats(self._quick.decode(body))
            except (msgspec.ValidationError, _UnusualError):
                pass  # not of the usual form; the long way tells what is wrong, if anything is
            except (msgspec.DecodeError, ValueError, RecursionError):
                pass
        request: _Request = finish(read_tensors(self._decoder, body))
        return finish(self._read_tensors(request, memoryview(b"")))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[Question]:
        """The same in steps, for a request with much JSON."""
        length = len(body) if head_length is None else _length(head_length, len(body))
        yield FRAME_WORTH * length
        large: _LargeRequest = yield from read_tensors(_LARGE, memoryview(body)[:length])
        self._check_count(len(large.inputs))
        tensors = [
            _Tensor(
                each.name,
                small(each.shape, _SHAPE, f"shape of input {each.name!r}"),
                each.datatype,
                small(each.parameters, _PARAMETERS, f"parameters of input {each.name!r}"),
                each.data,
            )
            for each in large.inputs
        ]
        parameters, outputs = small(large.parameters, _PARAMETERS, "parameters"), small(large.outputs, _OUTPUTS, "outputs")
        return (yield from self._read_tensors(_Request(tensors, large.id, parameters, outputs), memoryview(body)[length:]))

    def _read_floats(self, request: _FloatRequest) -> Question:
        self._check_count(len(request.inputs))
        found: list[Array | None] = [None] * len(self._specs)
        shapes: list[tuple[int, ...]] = [()] * len(self._specs)
        for tensor in request.inputs:
            if tensor.parameters:
                raise _UnusualError
            place = self._place(tensor.name, tensor.datatype)
            shape = shapes[place] = tuple(tensor.shape)
            check_shape(self._specs[place], shape)
            if len(tensor.data) != math.prod(shape):
                raise elements(f"input {tensor.name!r}", len(tensor.data), shape)
            found[place] = array_of(tensor.data, tensor.datatype).reshape(shape)
        return self._question(found, shapes, request.id, self._everything, len(request.inputs))

    def _read_tensors(self, request: _Request, raw: memoryview) -> Steps[Question]:
        self._check_count(len(request.inputs))
        found: list[Array | None] = [None] * len(self._specs)
        shapes: list[tuple[int, ...]] = [()] * len(self._specs)
        at = 0
        for tensor in request.inputs:
            place = self._place(tensor.name, tensor.datatype)
            shape = shapes[place] = tuple(tensor.shape)
            check_shape(self._specs[place], shape)
            size = _binary_size(tensor)
            if size is None:
                assert isinstance(tensor.data, msgspec.Raw)
                steps = steps_from_json(tensor.data, tensor.datatype, shape, f"input {tensor.name!r}")
                found[place] = yield from beside(weight([each for each in found if each is not None]), steps)
                continue
            if at + size > len(raw):
                message = f"input {tensor.name!r}: binary_data_size {size} where {len(raw) - at} bytes are left of the body"
                raise bad(message)
            found[place] = from_raw(tensor.datatype, raw[at : at + size], math.prod(shape), f"input {tensor.name!r}").reshape(
                shape
            )
            at += size
        if at != len(raw):
            message = f"{len(raw) - at} bytes of the body belong to no input"
            raise bad(message, "let the binary_data_size of the inputs add up to what follows the JSON")
        return self._question(found, shapes, request.id, self._wanted(request), len(request.inputs))

    def _read_binary(self, body: bytes, length: int) -> Question:
        text = body[:length]
        head = self._heads.get(text)
        if head is None:
            request: _Request = finish(read_tensors(self._decoder, text))
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
        inputs: list[Array] = [None] * len(self._specs)  # type: ignore[list-item]  # the head has every input
        for place, word, shape, count, size in head.tensors:
            inputs[place] = from_raw(word, view[length : length + size], count, self._specs[place].name).reshape(shape)
            length += size
        return Question(inputs, head.rows, head.id, head.wanted, timeout=head.timeout, classes=head.classes)

    def _head(self, request: _Request) -> _Head:
        self._check_count(len(request.inputs))
        tensors, seen = [], {}
        for tensor in request.inputs:
            place = self._place(tensor.name, tensor.datatype)
            shape = seen[place] = tuple(tensor.shape)
            check_shape(self._specs[place], shape)
            size, count = _binary_size(tensor) or 0, math.prod(shape)
            width = 2 if tensor.datatype == "BF16" else DTYPES[tensor.datatype].itemsize
            if tensor.datatype != "BYTES" and size != count * width:
                message = f"input {tensor.name!r}: binary_data_size {size} for {count} elements of {tensor.datatype}"
                raise bad(message, f"it should be {count * width}")
            tensors.append((place, tensor.datatype, shape, count, size))
        self._complete(seen, len(request.inputs))
        return _Head(
            tensors, rows_of(self._model, [seen[place] for place in range(len(self._specs))]), request, self._wanted(request)
        )

    def _place(self, name: str, datatype: str) -> int:
        place = named(self._specs, name, "input")
        if datatype != self._specs[place].datatype:
            message = f"input {name!r} has datatype {datatype!r}"
            raise bad(message, f"the model takes {self._specs[place].datatype}")
        return place

    def _check_count(self, given: int) -> None:
        """Before any of them is read."""
        if given > len(self._specs):
            message = f"the request has {given} inputs where the model takes {len(self._specs)}: one is unknown or given twice"
            raise bad(message)

    def _complete(self, seen: dict[int, tuple[int, ...]], given: int) -> None:
        missing = [spec.name for place, spec in enumerate(self._specs) if place not in seen]
        if missing:
            message = f"the request lacks the input{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}"
            raise bad(message)
        if given != len(self._specs):
            raise bad("an input is given twice")

    def _question(
        self, found: list[Array | None], shapes: list[tuple[int, ...]], id_: str, wishes: _Wishes, given: int
    ) -> Question:
        inputs = [each for each in found if each is not None]
        if given != len(self._specs) or len(inputs) != given:
            self._complete({place: () for place, each in enumerate(found) if each is not None}, given)
        return Question(inputs, rows_of(self._model, shapes), id_, wishes[0], timeout=wishes[2], classes=wishes[1])

    def _wanted(self, request: _Request) -> _Wishes:
        timeout = check_request(request.parameters) if request.parameters else 0.0
        usual = bool(request.parameters.get("binary_data_output", False))
        outputs = self._model.signature.outputs
        if not request.outputs:
            return tuple((place, usual) for place in range(len(outputs))), (), timeout
        if len(request.outputs) > len(outputs):
            message = f"the request asks for {len(request.outputs)} outputs"
            raise bad(message, f"the model has {len(outputs)}; ask for each once")
        classes = tuple([check_output(output.name, output.parameters) for output in request.outputs])
        wanted = {
            named(outputs, output.name, "output"): bool(output.parameters.get("binary_data", usual)) for output in request.outputs
        }
        if len(wanted) != len(request.outputs):
            raise bad("an output is asked for twice", "ask for each once")
        return tuple(wanted.items()), classes if any(classes) else (), timeout

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """The answer in the form that the question asked for."""
        specs = self._model.signature.outputs
        if question.classes:
            specs, outputs = self._classified(question, outputs)
        shapes = tuple([outputs[place].shape for place, _ in question.wanted])
        frame = None if question.classes else self._frames.get((question.wanted, shapes))
        if frame is None or question.id:
            frame = self._frame(question, shapes, specs)
        pieces: list[bytes] = []
        raws: list[bytes] = []
        for (place, binary), before in zip(question.wanted, frame.before, strict=True):
            array, spec = outputs[place], specs[place]
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
            return Answer(head)
        raws.insert(0, head)
        return Answer(b"".join(raws), headers=[(LENGTH_HEADER, b"%d" % len(head))], content_type=b"application/octet-stream")

    def _classified(self, question: Question, outputs: list[Array]) -> tuple[tuple[TensorSpec, ...], list[Array]]:
        """The outputs, with the best classes in place of the values where these are wanted."""
        specs, outputs = list(self._model.signature.outputs), list(outputs)
        for (place, _), count in zip(question.wanted, question.classes, strict=True):
            if count:
                outputs[place] = best_classes(specs[place], outputs[place], count, rows=self._model.batches)
                specs[place] = TensorSpec(specs[place].name, "BYTES", outputs[place].shape)
        return tuple(specs), outputs

    def _frame(self, question: Question, shapes: tuple[tuple[int, ...], ...], specs: tuple[TensorSpec, ...]) -> _Frame:
        """Everything of an answer but the values; kept where it will be the same next time."""
        model = self._model
        about = {"model_name": model.name, "model_version": model.version, **({"id": question.id} if question.id else {})}
        between = msgspec.json.encode(about)[:-1] + b',"outputs":['
        before = []
        for (place, binary), shape in zip(question.wanted, shapes, strict=True):
            spec = specs[place]
            told = msgspec.json.encode({"name": spec.name, "datatype": spec.datatype, "shape": shape})[:-1]
            if not binary:
                before.append(between + told + b',"data":')
            elif spec.datatype == "BYTES":  # how long it is depends on the values
                before.append(between + told + b',"parameters":{"binary_data_size":')
            else:
                width = 2 if spec.datatype == "BF16" else DTYPES[spec.datatype].itemsize
                before.append(between + told + b',"parameters":{"binary_data_size":%d}' % (width * math.prod(shape)))
            between = b"},"
        frame = _Frame(before, b"}]}" if before else between + b"]}")
        usual = all(before < after for (before, _), (after, _) in itertools.pairwise(question.wanted))
        if usual and not question.id and not question.classes:
            # Of the many orders of the outputs one is kept: that of the signature.
            if len(self._frames) >= _KNOWN_HEADS:
                self._frames.clear()
            self._frames[question.wanted, shapes] = frame
        return frame


def metadata(model: ServedModel, verdict: BatchingVerdict) -> dict[str, object]:
    """What the model takes and gives; `parameters` is an extension that clients ignore."""
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


def _plain_binary(request: _Request) -> bool:
    return all(tensor.data is msgspec.UNSET for tensor in request.inputs)


def _binary_size(tensor: _Tensor) -> int | None:
    """How many bytes of the body are this input's; None when it is in the JSON."""
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
        message = f"input {tensor.name!r}: binary_data_size {size!r} is no number of bytes"
        raise bad(message)
    return size


def _length(value: bytes, whole: int) -> int:
    """The value of the header that says how long the JSON is."""
    if not value.isdigit() or len(value) > 12 or int(value) > whole:
        message = f"Inference-Header-Content-Length {value[:40].decode('latin-1')!r} for a body of {whole} bytes"
        raise bad(message, "send the length of the JSON at the body's beginning")
    return int(value)


_LARGE = msgspec.json.Decoder(_LargeRequest)
_SHAPE = msgspec.json.Decoder(list[int])
_PARAMETERS = msgspec.json.Decoder(Parameters)
_OUTPUTS = msgspec.json.Decoder(list[_Output])
