"""Converts rows and columns of TensorFlow Serving's JSON to arrays: small requests at once, large ones in pieces."""

from __future__ import annotations

import base64
import binascii
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from fairway.serving.replica.model.datatype import Array, of_texts
from fairway.serving.replica.model.served_model import InferenceRequest, ServedModel, check_shape, named, rows_of
from fairway.serving.replica.protocols.json_piece import (
    FRAME_WORTH,
    PIECE,
    TEXT_WORTH,
    WORTH,
    GrowingArray,
    Steps,
    beside,
    cut,
    opens,
    small,
    weight,
)  # fmt: skip
from fairway.serving.replica.protocols.json_tensor import FLOATS, array_of, flattened, read_json, read_tensors
from fairway.serving.replica.protocols.nonfinite_token import is_mark, numbers
from fairway.serving.replica.request_error import RequestError, bad
from fairway.state.model import TensorSpec

SIGNATURE = "serving_default"
_KINDS: dict[str, tuple[set[type], str]] = {
    "BOOL": ({bool}, "true or false"),
    "BYTES": ({str, dict}, 'text or {"b64": ...}'),
    **dict.fromkeys(FLOATS, ({float, int}, "a number")),
}
_MOST_REPEATED = 16 << 20
"""Maximum bytes of JSON that a context is expanded to: it applies to each example."""


class TfPredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `:predict`."""

    signature_name: str = SIGNATURE
    instances: list[Any] | msgspec.UnsetType = msgspec.UNSET
    inputs: Any = msgspec.UNSET
    params: dict[str, Any] | None = None
    """MLflow's name for parameters of the model; none are supported."""


class TfExamplesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `:classify` and `:regress`."""

    examples: list[dict[str, Any]]
    context: msgspec.Raw = msgspec.Raw(b"{}")
    signature_name: str = SIGNATURE


class _LargePredict(msgspec.Struct, forbid_unknown_fields=True):
    signature_name: str = SIGNATURE
    instances: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    inputs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] | None = None


class _LargeExamples(msgspec.Struct, forbid_unknown_fields=True):
    examples: msgspec.Raw
    context: msgspec.Raw = msgspec.Raw(b"{}")
    signature_name: str = SIGNATURE


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    b64: str


_B64_KEY = re.compile(rb'\{\s*"b64"\s*:')
_TEXT = msgspec.json.Decoder(str | _Base64)
_LIST = msgspec.json.Decoder(list[Any])
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_LARGE_PREDICT = msgspec.json.Decoder(_LargePredict)
_LARGE_EXAMPLES = msgspec.json.Decoder(_LargeExamples)


def check_signature(name: str) -> None:
    """Raise 404 for any signature but the default one."""
    if name not in ("", SIGNATURE):
        message = f"the model has no signature {name!r}"
        raise RequestError(404, message, fix=f"it has {SIGNATURE!r}")


def check_params(params: dict[str, Any] | None) -> None:
    """Raise 400 if there are parameters for the model."""
    if params:
        message = f"the request has params {', '.join(sorted(params))[:200]}, which the model does not take"
        raise bad(message, "leave params out")


def examples_question(model: ServedModel, asked: TfExamplesRequest) -> InferenceRequest:
    """Parse a request with examples by feature."""
    check_signature(asked.signature_name)
    context = _context(model, asked.context)
    _check_repeated(asked.context, len(asked.examples))
    return question_of(model, columns_of(model, [{**context, **example} for example in asked.examples], "examples"))


def _context(model: ServedModel, raw: msgspec.Raw) -> dict[str, Any]:
    """Return the features that all examples share."""
    context: dict[str, Any] = small(raw, _OBJECT, "context")
    for name in context:
        named(model.signature.inputs, name, "input")
    return context


def _check_repeated(context: msgspec.Raw, examples: int) -> None:
    if memoryview(context).nbytes * examples > _MOST_REPEATED:
        message = f"a context of {memoryview(context).nbytes} bytes for {examples} examples"
        raise RequestError(413, message, fix=f"keep their product within {_MOST_REPEATED} bytes: send fewer examples at once")


def columns_of(model: ServedModel, rows: list[Any], what: str, first: int = 0) -> list[list[Any]]:
    """Transpose rows to one list per input."""
    specs = model.signature.inputs
    if not rows:
        message = f"{what} is empty"
        raise bad(message, "send at least one row")
    by_name = [isinstance(row, dict) and not (len(specs) == 1 and set(row) == {"b64"}) for row in rows]
    if any(by_name):
        expected = {spec.name for spec in specs}
        for number, row in enumerate(rows, first):
            if not isinstance(row, dict) or set(row) != expected:
                actual = sorted(row) if isinstance(row, dict) else type(row).__name__
                message = f"{what}[{number}] has {actual}"
                raise bad(message, f"every row needs exactly: {', '.join(sorted(expected))}")
        return [[row[spec.name] for row in rows] for spec in specs]
    if len(specs) != 1:
        message = f"{what} must be objects: the model has {len(specs)} inputs"
        raise bad(message, f"name them in every row: {', '.join(spec.name for spec in specs)}")
    return [rows]


def named_columns(model: ServedModel, inputs: Any) -> list[Any]:
    """Return one value per input, in the order of the signature."""
    specs = model.signature.inputs
    if isinstance(inputs, dict) and set(inputs) != {"b64"}:
        for name in inputs:
            named(specs, name, "input")
        missing = [spec.name for spec in specs if spec.name not in inputs]
        if missing:
            message = f"inputs lacks {', '.join(missing)}"
            raise bad(message)
        return [inputs[spec.name] for spec in specs]
    if len(specs) != 1:
        message = f"inputs must be an object: the model has {len(specs)} inputs"
        raise bad(message, f"name them: {', '.join(spec.name for spec in specs)}")
    return [inputs]


def question_of(model: ServedModel, columns: list[Any]) -> InferenceRequest:
    """Build a request from one value per input."""
    return asked_of(model, [array_from(spec, column) for spec, column in zip(model.signature.inputs, columns, strict=True)])


def asked_of(model: ServedModel, arrays: list[Array]) -> InferenceRequest:
    """Build a request from one array per input."""
    shapes = [array.shape for array in arrays]
    for spec, shape in zip(model.signature.inputs, shapes, strict=True):
        check_shape(spec, shape)
    return InferenceRequest(arrays, rows_of(model, shapes))


def array_from(spec: TensorSpec, value: Any, place: str = "") -> Array:
    """Convert nested lists to an array of the same shape; all elements must have the right type."""
    place, shape, first = place or f"input {spec.name!r}", [], value
    while isinstance(first, list):
        shape.append(len(first))
        if not first or len(shape) > len(spec.shape):
            break
        first = first[0]
    # Elsewhere the lists may be nested differently than along their first elements, which flattening detects.
    flat = flattened(value, tuple(shape), place) if shape else [value]
    kinds, expected = _KINDS.get(spec.datatype, ({int}, "a whole number"))
    if spec.datatype in FLOATS and not set(map(type, flat)) <= kinds:
        flat = numbers(flat)
    if not set(map(type, flat)) <= kinds:
        wrong = next(element for element in flat if type(element) not in kinds)
        message = f"{place}: {str(wrong)[:40]!r} is not {expected}"
        raise bad(message, f"the model takes {spec.datatype} of shape {list(spec.shape)}")
    if spec.datatype == "BYTES":
        array = of_texts([_text(place, element) for element in flat])
    else:
        try:
            array = array_of(flat, spec.datatype)
        except (OverflowError, ValueError) as error:
            message = f"{place}: {error}"
            raise bad(message, f"send numbers that fit {spec.datatype}") from None
    return array.reshape(shape) if math.prod(shape) == len(flat) else array


def _text(place: str, value: Any) -> bytes:
    try:
        if isinstance(value, str):
            if is_mark(value):
                message = f"{place}: a number where text is wanted"
                raise bad(message)
            return value.encode()
        if set(value) == {"b64"}:
            return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        message = f"{place}: not valid base64: {error}"
        raise bad(message) from None
    message = f"{place}: an object with {sorted(value)[:5]}"
    raise bad(message, 'bytes are {"b64": "..."}')


# Large requests.


class InputColumn:
    """The rows of one input so far, all of the same shape."""

    def __init__(self, spec: TensorSpec, found: GrowingArray | None = None) -> None:
        self.spec = spec
        self.found = GrowingArray(spec.datatype) if found is None else found
        self.rows = 0
        self.shape: tuple[int, ...] | None = None

    def add(self, rows: int, shape: tuple[int, ...]) -> None:
        """Count rows of this shape that were added to `found`."""
        if self.shape is not None and shape != self.shape:
            message = f"input {self.spec.name!r}: rows of shape {list(self.shape)}, and after {self.rows} of them {list(shape)}"
            raise bad(message, "send rows of the same shape")
        self.shape = shape
        self.rows += rows

    def take(self, values: list[Any]) -> None:
        """Convert and add rows."""
        array = array_from(self.spec, values)
        self.found.add(array)
        self.add(len(values), array.shape[1:])

    def array(self) -> Array:
        """Return all rows."""
        return self.found.array().reshape((self.rows, *(self.shape or ())))


def large_predict(model: ServedModel, body: bytes) -> Steps[InferenceRequest]:
    """Parse a large `:predict` request in steps."""
    yield FRAME_WORTH * len(body)
    request: _LargePredict = yield from read_tensors(_LARGE_PREDICT, body)
    check_signature(request.signature_name)
    check_params(request.params)
    if isinstance(request.instances, msgspec.Raw):
        if request.inputs is not msgspec.UNSET:
            raise bad("the request has both instances and inputs", "keep one")
        return (yield from large_rows(model, memoryview(request.instances), "instances", lambda rows: rows))
    if not isinstance(request.inputs, msgspec.Raw):
        raise bad("the request has neither instances nor inputs", 'send {"instances": [...]} or {"inputs": ...}')
    question = asked_of(model, (yield from _large_inputs(model, memoryview(request.inputs))))
    question.columnar = True
    return question


def large_examples(model: ServedModel, body: bytes) -> Steps[InferenceRequest]:
    """Parse a large `:classify` or `:regress` request in steps."""
    yield FRAME_WORTH * len(body)
    request: _LargeExamples = yield from read_tensors(_LARGE_EXAMPLES, body)
    check_signature(request.signature_name)
    context, count = _context(model, request.context), 0

    def merged(rows: list[Any]) -> list[Any]:
        nonlocal count
        count += len(rows)
        _check_repeated(request.context, count)
        for row in rows:
            if not isinstance(row, dict):
                message = f"examples has a {type(row).__name__}"
                raise bad(message, "send an object of features for each example")
        return [{**context, **row} for row in rows]

    return (yield from large_rows(model, memoryview(request.examples), "examples", merged))


def large_rows(
    model: ServedModel, text: memoryview, what: str, seen: Callable[[list[Any]], list[Any]]
) -> Steps[InferenceRequest]:
    """Parse rows, each an object of inputs or, for a model with one input, its value."""
    if not opens(text, b"["):
        message = f"{what} is not an array"
        raise bad(message, "send an array of rows")
    columns = [InputColumn(spec) for spec in model.signature.inputs]
    for piece, alone in cut(text):
        held = sum(column.found.size for column in columns)
        if alone and what == "instances" and _has_names(model, piece):
            for column, value in zip(columns, (yield from beside(held, _large_object(model, piece))), strict=True):
                held_by_others = sum(other.found.size for other in columns if other is not column)
                yield from beside(held_by_others, _large_value(column, value))
        elif alone and what == "instances" and len(columns) == 1:
            yield from _large_value(columns[0], piece)
        else:
            yield held + WORTH * len(piece)
            take_rows(model, columns, seen(_decoded(piece, what)), what)
    return asked_of(model, [column.array() for column in columns])


def take_rows(model: ServedModel, columns: list[InputColumn], rows: list[Any], what: str) -> None:
    """Add rows to the columns. A separate function, so that its memory is released before the next piece is decoded."""
    for column, values in zip(columns, columns_of(model, rows, what, columns[0].rows), strict=True):
        column.take(values)


def _large_inputs(model: ServedModel, text: memoryview) -> Steps[list[Array]]:
    """Parse one value per input."""
    specs = model.signature.inputs
    if _has_names(model, text):
        values = yield from _large_object(model, text)
    else:
        values = named_columns(model, text)
    arrays: list[Array] = []
    for spec, value in zip(specs, values, strict=True):
        column = InputColumn(spec)
        yield from beside(weight(arrays), _large_value(column, value))
        arrays.append(column.array()[0])
    return arrays


def _has_names(model: ServedModel, text: memoryview) -> bool:
    """Whether an object's keys are inputs. The only input of a model may itself be an object: `{"b64": ...}`."""
    return opens(text, b"{") and not (len(model.signature.inputs) == 1 and _B64_KEY.match(text))


def _large_object(model: ServedModel, text: memoryview) -> Steps[list[memoryview]]:
    """Return the values of an object with one key per input."""
    yield FRAME_WORTH * len(text)
    decoded = read_json(_by_name(tuple(spec.name for spec in model.signature.inputs)), text)
    return [memoryview(value) for value in msgspec.structs.astuple(decoded)]


@functools.lru_cache(maxsize=8)
def _by_name(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = [(f"input_{index}", msgspec.Raw) for index in range(len(names))]
    rename = dict(zip((name for name, _ in fields), names, strict=True))
    return msgspec.json.Decoder(msgspec.defstruct("Inputs", fields, rename=rename, forbid_unknown_fields=True))


def _large_value(column: InputColumn, text: memoryview, depth: int = 0) -> Steps[None]:
    """Add one row of any size to a column."""
    place = f"input {column.spec.name!r}"
    if len(text) <= PIECE:
        yield column.found.size + WORTH * len(text)
        column.take(_decoded(text, place))
        return
    if not opens(text, b"["):
        if column.spec.datatype != "BYTES":
            message = f"{place}: a value of {len(text)} bytes"
            raise bad(message, f"the model takes {column.spec.datatype} of shape {list(column.spec.shape)}")
        yield column.found.size + TEXT_WORTH * len(text)
        value = read_json(_TEXT, text)
        column.take([value if isinstance(value, str) else {"b64": value.b64}])
        return
    if depth > len(column.spec.shape):
        message = f"{place}: lists within lists, deeper than its shape {list(column.spec.shape)}"
        raise bad(message)
    row = InputColumn(column.spec, column.found)
    for piece, alone in cut(text):
        if alone:
            yield from _large_value(row, piece, depth + 1)
        else:
            yield column.found.size + WORTH * len(piece)
            row.take(_decoded(piece, place))
    column.add(1, (row.rows, *(row.shape or ())))


def _decoded(piece: memoryview, place: str) -> list[Any]:
    try:
        return _LIST.decode(b"".join((b"[", piece, b"]")))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the request is not valid JSON: {error} - in `{place}`"
    except RecursionError:
        message = f"the request is nested too deeply - in `{place}`"
    raise bad(message)
