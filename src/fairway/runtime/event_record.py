"""TensorBoard event files: decode their scalars without TensorFlow or protobuf.

A file is a sequence of records: length (8 bytes), its checksum (4), data, its checksum (4), all little-endian. The data of a
record is an `Event` message; only the fields that carry scalars are read. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

HEADER = 12
FOOTER = 4

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EVENT_TIME, _EVENT_STEP, _EVENT_SUMMARY = 1, 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR = 1, 2, 8
_TENSOR_TYPE, _TENSOR_SHAPE, _TENSOR_CONTENT = 1, 2, 4
_SHAPE_DIMENSION, _DIMENSION_SIZE = 2, 1

_FLOAT, _DOUBLE, _INT32, _INT64, _HALF, _BFLOAT16 = 1, 2, 3, 9, 19, 14
_LAYOUTS = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q", _HALF: "<e"}
_FLOATS, _DOUBLES, _INTS, _INT64S, _HALVES = 5, 6, 7, 10, 13


class DamagedEventFileError(ValueError):
    """Raised when the data is not an event file, or is damaged from here on."""


@dataclass(frozen=True)
class EventScalars:
    """The scalars of one event."""

    time: float
    step: int
    values: dict[str, float] = field(default_factory=dict)


def record_length(header: bytes) -> int:
    """Return the length of the data that follows a record's header. Raises `DamagedEventFileError` if its checksum is wrong."""
    length, checksum = struct.unpack("<QI", header)
    if masked_checksum(header[:8]) != checksum:
        message = "the checksum of a record's length is wrong"
        raise DamagedEventFileError(message)
    return int(length)


def records(data: bytes, *, checked: bool = False) -> Iterator[tuple[bytes, int]]:
    """Yield (data, offset of the next record) for every complete record; with `checked` its checksum is verified too."""
    at = 0
    while len(data) - at >= HEADER:
        length = record_length(data[at : at + HEADER])
        end = at + HEADER + length + FOOTER
        if end > len(data):
            return
        content = data[at + HEADER : end - FOOTER]
        if checked and struct.unpack("<I", data[end - FOOTER : end])[0] != masked_checksum(content):
            message = "the checksum of a record is wrong"
            raise DamagedEventFileError(message)
        at = end
        yield content, end


def scalars(record: bytes) -> EventScalars | None:
    """Return the scalars of one record; None if it has none. Raises `DamagedEventFileError` if it is not an event."""
    try:
        return _scalars(record)
    except struct.error as error:
        message = f"a field has another length than its type: {error}"
        raise DamagedEventFileError(message) from None


def _scalars(record: bytes) -> EventScalars | None:
    moment, step, summary = 0.0, 0, b""
    for number, value in _fields(record):
        if number == _EVENT_TIME and isinstance(value, bytes):
            moment = struct.unpack("<d", value)[0]
        elif number == _EVENT_STEP and isinstance(value, int):
            step = _signed(value)
        elif number == _EVENT_SUMMARY and isinstance(value, bytes):
            summary = value
    values = dict(_values(summary))
    return EventScalars(moment, step, values) if values else None


def _values(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, message in _fields(summary):
        if number != _SUMMARY_VALUE or not isinstance(message, bytes):
            continue
        tag, scalar = "", None
        for inner, value in _fields(message):
            if not isinstance(value, bytes):
                continue
            if inner == _VALUE_TAG:
                tag = value.decode("utf-8", "replace")
            elif inner == _VALUE_SIMPLE and len(value) == 4:
                scalar = struct.unpack("<f", value)[0]
            elif inner == _VALUE_TENSOR:
                scalar = _scalar_of(value)
        if tag and scalar is not None:
            yield tag, float(scalar)


def _scalar_of(tensor: bytes) -> float | None:
    """Return the single element of a tensor; None for a tensor of another shape or type."""
    kind, content = 0, b""
    listed: dict[int, int | bytes] = {}
    for number, value in _fields(tensor):
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif number == _TENSOR_SHAPE and isinstance(value, bytes) and not _is_single(value):
            return None
        elif number == _TENSOR_CONTENT and isinstance(value, bytes):
            content = value
        elif number in (_FLOATS, _DOUBLES, _INTS, _INT64S, _HALVES):
            listed[number] = value
    if content:
        return _unpacked(kind, content)
    return _listed(kind, listed)


def _unpacked(kind: int, content: bytes) -> float | None:
    if kind == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    layout = _LAYOUTS.get(kind, "")
    return float(struct.unpack(layout, content)[0]) if layout and len(content) == struct.calcsize(layout) else None


def _listed(kind: int, listed: dict[int, int | bytes]) -> float | None:
    """Return an element from the repeated fields, which may be packed or not."""
    for number, layout in ((_FLOATS, "<f"), (_DOUBLES, "<d")):
        value = listed.get(number)
        if isinstance(value, bytes) and len(value) == struct.calcsize(layout):
            return float(struct.unpack(layout, value)[0])
    for number in (_INTS, _INT64S, _HALVES):
        value = listed.get(number)
        if isinstance(value, bytes) and value:
            value = _varint(value, 0)[0]
        if isinstance(value, int):
            if number != _HALVES:
                return float(_signed(value))
            return _unpacked(kind, struct.pack("<H", value & 0xFFFF))
    return None


def _is_single(shape: bytes) -> bool:
    """Return whether a tensor of this shape has one element."""
    return all(
        _signed(size) == 1
        for number, dimension in _fields(shape)
        if number == _SHAPE_DIMENSION and isinstance(dimension, bytes)
        for inner, size in _fields(dimension)
        if inner == _DIMENSION_SIZE and isinstance(size, int)
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message: a number for varints, bytes for everything else."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            message_text = f"a field has the unknown wire type {kind}"
            raise DamagedEventFileError(message_text)
        if at + length > len(message):
            message_text = "a field reaches beyond its message"
            raise DamagedEventFileError(message_text)
        yield key >> 3, message[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    message = "a number is not terminated"
    raise DamagedEventFileError(message)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def masked_checksum(data: bytes) -> int:
    """Return the CRC-32C, rotated and shifted as TFRecord requires."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        entries.append(number)
    return tuple(entries)


_TABLE = _table()
