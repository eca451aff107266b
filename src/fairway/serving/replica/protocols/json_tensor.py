"""Tensors in JSON, nested or flat, with strict checks of types and counts."""

from __future__ import annotations

import array
import functools
import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from fairway.serving.replica.model.datatype import DTYPES, Array, as_bytes, of_texts
from fairway.serving.replica.protocols.json_piece import (
    FRAME_WORTH,
    PIECE,
    TEXT_WORTH,
    WORTH,
    GrowingArray,
    Steps,
    cut,
    elements,
    opens,
    opens_nested,
)
from fairway.serving.replica.protocols.nonfinite_token import has_marks, has_tokens, is_mark, masked, numbers
from fairway.serving.replica.request_error import bad

FLOATS = ("FP16", "FP32", "FP64", "BF16")
_TYPES: dict[str, Any] = {"marked": float | str, "BOOL": bool, "BYTES": str, **dict.fromkeys(FLOATS, float)}


def read_tensors(decoder: msgspec.json.Decoder[Any], body: bytes | memoryview) -> Steps[Any]:
    """Decode JSON with tensors that may contain `NaN` and infinities: in steps if it does, otherwise at once."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError) or not has_tokens(body):
            return read_json(decoder, body)  # reports the error
    text = bytes(body)
    masked_text = bytearray(text)
    for _ in masked(text, masked_text):
        yield 2 * len(masked_text) + FRAME_WORTH * len(masked_text)
    return read_json(decoder, bytes(masked_text))


def read_json(decoder: msgspec.json.Decoder[Any], body: bytes | memoryview) -> Any:
    """Decode JSON; raise 400 with the error and its position."""
    fix = ""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, fix = f"the request does not match the protocol: {error}", _known(decoder.type, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the request is not valid JSON: {error}"
    except RecursionError:
        message = "the request is nested too deeply"
    raise bad(message, fix)


def _known(of: Any, error: str) -> str:
    """Return the known members, if the error is an unknown one at the top level of a single type."""
    if "unknown field" not in error or " - at `" in error or not isinstance(of, type):
        return ""
    return f"the known fields are: {', '.join(field.encode_name for field in msgspec.structs.fields(of))}"


@functools.lru_cache(maxsize=64)
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    kind = _TYPES.get(datatype, int)
    for _ in range(depth):
        kind = list.__class_getitem__(kind)
    return msgspec.json.Decoder(kind)


def _decoded(data: bytes | msgspec.Raw, datatype: str, depth: int) -> list[Any]:
    try:
        values: list[Any] = _decoder(datatype, depth).decode(data)
        if datatype == "BYTES" and has_marks(data) and any(map(is_mark, _leaves(values))):
            raise bad("a number where text is wanted")
    except msgspec.ValidationError:
        if datatype not in FLOATS or not has_marks(data):
            raise
        values = _decoder("marked", depth).decode(data)
    return values


def _leaves(nested: list[Any]) -> Iterator[str]:
    for item in nested:
        if isinstance(item, list):
            yield from _leaves(item)
        else:
            yield item


def from_json(data: msgspec.Raw, datatype: str, shape: tuple[int, ...], place: str) -> Array:
    """Convert JSON to an array of this shape, from flat or nested lists."""
    flat: list[Any]
    try:
        flat = _decoded(data, datatype, 1)
    except msgspec.ValidationError as error:
        if len(shape) < 2 or not bytes(data)[1:].lstrip().startswith(b"["):
            message = f"{place}: {error}"
            raise bad(message) from None
        return _from_nested(data, datatype, shape, place)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{place}: the data is not valid JSON: {error}"
        raise bad(message) from None
    if len(flat) != math.prod(shape):
        raise elements(place, len(flat), shape)
    return _checked(flat, datatype, place).reshape(shape)


def steps_from_json(data: msgspec.Raw, datatype: str, shape: tuple[int, ...], place: str) -> Steps[Array]:
    """Convert JSON in steps, with little memory besides the array."""
    text = memoryview(data)
    if len(text) <= PIECE:
        return from_json(data, datatype, shape, place)
    gathered, nested = GrowingArray(datatype), len(shape) > 1 and opens_nested(text)
    yield from _gather(text, shape if nested else (math.prod(shape),), place, gathered)
    if gathered.count != math.prod(shape):
        raise elements(place, gathered.count, shape)
    return gathered.array().reshape(shape)


def _gather(text: memoryview, shape: tuple[int, ...], place: str, found: GrowingArray) -> Steps[None]:
    """Add the elements of an array that is nested like this shape."""
    if not opens(text, b"["):
        message = f"{place}: lists and values at the same depth"
        raise bad(message)
    count = 0
    for piece, alone in cut(text):
        if alone and len(shape) > 1:
            yield from _gather(piece, shape[1:], place, found)
            count += 1
            continue
        if alone and not (found.datatype == "BYTES" and opens(piece, b'"')):
            message = f"{place}: an element of {len(piece)} bytes"
            raise bad(message, f"send {found.datatype}, nested as the shape or flat")
        yield (TEXT_WORTH if alone else WORTH) * len(piece) + found.size
        count += _add_piece(piece, (shape[0] - count, *shape[1:]), place, found)
    if count != shape[0]:
        message = f"{place}: a list of {count} where {shape[0]} are needed"
        raise bad(message)


def _add_piece(piece: memoryview, shape: tuple[int, ...], place: str, found: GrowingArray) -> int:
    """Add the elements of one piece, at most the remaining rows of the shape; return the number of rows."""
    try:
        values = _decoded(b"".join((b"[", piece, b"]")), found.datatype, len(shape))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{place}, after {found.count} elements: {error}"
        raise bad(message) from None
    rows = len(values)
    if rows > shape[0]:
        message = f"{place}: {rows - shape[0]} rows or elements more than the shape allows"
        raise bad(message)
    if len(shape) > 1:
        values = flattened(values, (rows, *shape[1:]), place)
    found.add(_checked(values, found.datatype, place))
    return rows


def _from_nested(data: msgspec.Raw, datatype: str, shape: tuple[int, ...], place: str) -> Array:
    try:
        nested = _decoded(data, datatype, len(shape))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{place}: the data is neither flat nor nested as the shape {list(shape)}: {error}"
        raise bad(message) from None
    flat = flattened(nested, shape, place)
    return _checked(flat, datatype, place).reshape(shape)


def flattened(nested: list[Any], shape: tuple[int, ...], place: str) -> list[Any]:
    """Return the elements in order; raise 400 when the length of a list does not match the shape."""
    flat: list[Any] = [nested]
    for depth, length in enumerate(shape):
        for item in flat:
            if type(item) is not list:
                message = f"{place}: lists and values at the same depth"
                raise bad(message)
            if len(item) != length:
                message = f"{place}: a list of {len(item)} in dimension {depth} where the shape {list(shape)} has {length}"
                raise bad(message)
        flat = [element for item in flat for element in item]
    return flat


def _checked(flat: list[Any], datatype: str, place: str) -> Array:
    try:
        return array_of(flat, datatype)
    except (OverflowError, TypeError, ValueError) as error:  # too large; an unpaired surrogate; a text among floats
        if datatype in FLOATS and (unmarked := numbers(flat)) != flat and str not in set(map(type, unmarked)):
            return array_of(unmarked, datatype)
        message = f"{place}: {error}"
        raise bad(message, f"send numbers that fit {datatype}") from None


def array_of(flat: list[Any], datatype: str) -> Array:
    """Return a flat array of checked elements. A number too large is infinite as a float, and an OverflowError as an integer."""
    if datatype == "BYTES":
        return of_texts([text.encode() for text in flat])
    if datatype in ("FP32", "BF16"):
        try:
            return np.frombuffer(_packer(len(flat)).pack(*flat), "<f4")  # twice as fast as with numpy
        except (OverflowError, struct.error):  # struct.error for an integer that no float can hold
            return np.frombuffer(array.array("f", flat), "<f4")
    if datatype == "FP16":
        with np.errstate(over="ignore"):
            return np.array(flat, "<f2")
    return np.array(flat, DTYPES[datatype])


@functools.lru_cache(maxsize=64)
def _packer(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}f")


def json_of(datatype: str, values: Array, place: str) -> list[Any]:
    """Return the elements of an output as a flat list for JSON."""
    flat: list[Any] = values.ravel().tolist()
    if datatype != "BYTES":
        return flat
    try:
        return [as_bytes(element).decode() for element in flat]
    except UnicodeDecodeError:
        message = f"{place} is not text"
        raise bad(message, "request it as binary data") from None
