"""Protocol Buffers encoding: messages are dictionaries by field name, according to a schema. Unknown fields are skipped.

A field without a value is absent from the dictionary; repeated fields are lists; a map is a dictionary.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.serving.replica.request_error import RequestError, bad

MOST_DEPTH = 32
"""Maximum nesting of messages."""
MOST_PARTS = 1 << 18
"""Maximum messages, texts and other separate values in one message: each takes more memory than its bytes."""
MOST_PACKED = 4 << 20
"""Maximum bytes of integers in one field, which take eight times as much in memory."""

Message = dict[str, Any]
_COPIED = 1 << 12
"""Bytes; shorter values are copied, longer ones are returned as views."""
_LONGEST_VARINT = 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPES = {"float": _FIXED32, "fixed32": _FIXED32, "double": _FIXED64, "string": _LENGTH, "bytes": _LENGTH}
_STRUCTS = {"float": struct.Struct("<f"), "double": struct.Struct("<d"), "fixed32": struct.Struct("<I")}
NUMERIC = frozenset({"bool", "int32", "int64", "uint32", "uint64", "float", "double", "enum"})


_DTYPES: dict[str, str] = {
    "float": "<f4", "double": "<f8", "fixed32": "<u4", "uint32": "u8", "uint64": "u8", "int32": "i8", "int64": "i8", "enum": "i8",
    "bool": "?",
}  # fmt: skip
_EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, **dict.fromkeys(NUMERIC - {"bool"}, 0)}


@dataclass(frozen=True, slots=True)
class ProtoField:
    """One field of a message."""

    number: int
    name: str
    kind: str
    """A scalar type, `enum`, or the name of a message in the schema."""
    repeated: bool = False
    key: str = ""
    """For a map, the type of its keys; `kind` is that of its values."""
    oneof: str = ""
    enum: str = ""
    """Name of the enumeration."""

    @property
    def wire_type(self) -> int:
        """The wire type of one value."""
        return _WIRE_TYPES.get(self.kind, _VARINT if self.kind in NUMERIC else _LENGTH)


class ProtoSchema:
    """Messages by name, each with its fields."""

    def __init__(self, messages: dict[str, tuple[ProtoField, ...]]) -> None:
        self.messages = messages
        self._by_number = {name: {field.number: field for field in fields} for name, fields in messages.items()}

    def decode(self, name: str, data: bytes | memoryview) -> Message:
        """Decode a message; raise `RequestError`: 400, or 413 when it would take far more memory than its bytes."""
        try:
            return _ProtoReader(self._by_number).read(name, memoryview(data), 0)
        except (IndexError, struct.error, UnicodeDecodeError, ValueError):
            message = f"the request is not a valid {name}"
            raise bad(message, "see docs/protocols.md for the services and their messages") from None

    def encode(self, name: str, message: Message) -> bytes:
        """Encode a message."""
        out: list[bytes] = []
        for field in self.messages[name]:
            value = message.get(field.name)
            if value is None:
                continue
            if field.key:
                out += [_delimited(field.number, self._entry(field, key, item)) for key, item in value.items()]
            elif not field.repeated:
                out.append(tag(field.number, field.wire_type) + self._value(field.kind, value))
            elif field.wire_type == _LENGTH:
                out += [tag(field.number, field.wire_type) + self._value(field.kind, item) for item in value]
            elif len(value):
                out.append(_delimited(field.number, self._pack(field.kind, value)))
        return b"".join(out)

    def _pack(self, kind: str, values: list[Any] | NDArray[Any]) -> bytes:
        if isinstance(values, np.ndarray) and kind in _STRUCTS:
            raw: bytes = values.astype(_DTYPES[kind], copy=False).tobytes()
            return raw
        return b"".join([self._value(kind, value) for value in values])

    def _entry(self, field: ProtoField, key: Any, value: Any) -> bytes:
        wire_type = ProtoField(2, "value", field.kind).wire_type
        return tag(1, _LENGTH) + self._value(field.key, key) + tag(2, wire_type) + self._value(field.kind, value)

    def _value(self, kind: str, value: Any) -> bytes:
        if kind == "string":
            text: bytes = value.encode()
            return varint(len(text)) + text
        if kind == "bytes":
            return varint(len(value)) + bytes(value)
        if kind in _STRUCTS:
            return _STRUCTS[kind].pack(value)
        if kind in NUMERIC:
            return varint(int(value) & 0xFFFFFFFFFFFFFFFF)
        content = self.encode(kind, value)
        return varint(len(content)) + content


class _ProtoReader:
    """Decodes one message, and counts its parts."""

    __slots__ = ("_fields", "_parts")

    def __init__(self, fields: dict[str, dict[int, ProtoField]]) -> None:
        self._fields = fields
        self._parts = 0

    def read(self, name: str, data: memoryview, depth: int) -> Message:
        """Decode the message."""
        return self._read(self._fields[name], data, depth)

    def _read(self, fields: dict[int, ProtoField], data: memoryview, depth: int) -> Message:
        if depth > MOST_DEPTH:
            raise ValueError
        message: Message = {}
        position, end = 0, len(data)
        while position < end:
            key, position = read_varint(data, position)
            field = fields.get(key >> 3)
            wire_type = key & 7
            if field is None:
                position = skip(data, position, wire_type)
                continue
            self._count()
            if wire_type == _LENGTH:
                size, position = read_varint(data, position)
                stop = position + size
                if stop > end:
                    raise ValueError
                self._take(field, data[position:stop], message, depth)
                position = stop
                continue
            if wire_type != field.wire_type:
                raise ValueError
            value, position = _number(field.kind, data, position)
            _add(field, value, message)
        return message

    def _take(self, field: ProtoField, content: memoryview, found: Message, depth: int) -> None:
        if field.key:
            key, value = self._entry(field, content, depth)
            found.setdefault(field.name, {})[key] = value
        elif field.kind == "string":
            _add(field, str(content, "utf-8"), found)
        elif field.kind == "bytes":
            _add(field, content if len(content) > _COPIED else bytes(content), found)
        elif field.wire_type == _LENGTH:
            value = self.read(field.kind, content, depth + 1)
            if not field.repeated and field.name in found:
                value = {**found[field.name], **value}
            _add(field, value, found)
        elif not field.repeated:
            raise ValueError
        elif field.name in found:
            previous = found[field.name]
            if isinstance(previous, np.ndarray):
                previous = found[field.name] = previous.tolist()
            previous.extend(_packed(field.kind, content).tolist())
        else:
            found[field.name] = _packed(field.kind, content)

    def _entry(self, field: ProtoField, content: memoryview, depth: int) -> tuple[Any, Any]:
        entry = self._read({1: ProtoField(1, "key", field.key), 2: ProtoField(2, "value", field.kind)}, content, depth + 1)
        return entry.get("key", "" if field.key == "string" else 0), entry.get("value", _EMPTY.get(field.kind, {}))

    def _count(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            message = f"the message has more than {MOST_PARTS} separately encoded values"
            raise RequestError(413, message, fix="send tensors as raw bytes, or fewer rows at once")


def tag(number: int, wire_type: int) -> bytes:
    """Encode the tag before a value."""
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    """Encode a non-negative number."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Decode a number; return it and the position after it. Raises `IndexError` or `ValueError` when it is malformed."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value = byte & 127
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError


def skip(data: bytes | memoryview, at: int, wire_type: int) -> int:
    """Return the position after a value that is ignored."""
    if wire_type == _VARINT:
        return read_varint(data, at)[1]
    if wire_type == _LENGTH:
        size, at = read_varint(data, at)
    elif wire_type in (_FIXED64, _FIXED32):
        size = 8 if wire_type == _FIXED64 else 4
    else:
        raise ValueError
    if at + size > len(data):
        raise ValueError
    return at + size


def signed(value: int) -> int:
    """Convert the unsigned number of an int64 or int32 field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _delimited(number: int, content: bytes) -> bytes:
    return tag(number, _LENGTH) + varint(len(content)) + content


def _number(kind: str, data: memoryview, at: int) -> tuple[Any, int]:
    layout = _STRUCTS.get(kind)
    if layout is not None:
        return layout.unpack_from(data, at)[0], at + layout.size
    value, at = read_varint(data, at)
    return _converted(kind, value), at


def _converted(kind: str, value: int) -> Any:
    if kind == "bool":
        return bool(value)
    if kind in ("uint32", "uint64"):
        return value
    return signed(value)


def _packed(kind: str, content: memoryview) -> NDArray[Any]:
    """Decode the numbers of a packed field."""
    if kind in _STRUCTS:
        return np.frombuffer(content, _DTYPES[kind])
    if len(content) > MOST_PACKED:
        message = f"{len(content)} bytes of packed integers, more than the limit of {MOST_PACKED}"
        raise RequestError(413, message, fix="send tensors as raw bytes, or fewer rows at once")
    octets = np.frombuffer(content, "u1")
    last = np.flatnonzero(octets < 128)
    if not len(octets):
        return np.empty(0, _DTYPES[kind])
    if not len(last) or last[-1] != len(octets) - 1:
        raise ValueError
    first = np.concatenate(([0], last[:-1] + 1))
    lengths = last - first + 1
    if lengths.max() > _LONGEST_VARINT:
        raise ValueError
    places = np.arange(len(octets)) - np.repeat(first, lengths)
    shifted = (octets & 127).astype("u8") << (7 * places).astype("u8")
    numbers = np.bitwise_or.reduceat(shifted, first)
    return numbers.view("i8") if kind not in ("uint32", "uint64", "bool") else numbers.astype(_DTYPES[kind])


def _add(field: ProtoField, value: Any, found: Message) -> None:
    if not field.repeated:
        found[field.name] = value
        return
    values = found.setdefault(field.name, [])
    if isinstance(values, np.ndarray):
        values = found[field.name] = values.tolist()
    values.append(value)
