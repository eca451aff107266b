"""Reads protocol-buffer messages, field by field, from a buffer; only requested values are copied."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_HIGHEST = (1 << 29) - 1
"""The highest field number. Other readers cut longer ones to 32 bits, and would see fields that this reader does not."""


class BadMessageError(ValueError):
    """The bytes are not a valid message."""


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of every field: an integer, or bytes for all else. Raises `BadMessageError`."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if not 0 < number <= _HIGHEST:
            raise BadMessageError(f"a field has the invalid number {number}")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise BadMessageError(f"a field has the unknown wire type {kind}")
        end = at + length
        if end > len(message):
            raise BadMessageError("a field reaches beyond its message")
        yield number, message[at:end]
        at = end


def messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the values of one field that are messages, texts or bytes."""
    for field, value in fields(message):
        if field == number and isinstance(value, memoryview):
            yield value


def text(message: memoryview, number: int) -> str:
    """Return the last value of a text field; empty if there is none."""
    result = ""
    for value in messages(message, number):
        result = str(value, "utf-8", "replace")
    return result


def integer(message: memoryview, number: int, otherwise: int = 0) -> int:
    """Return the last value of an integer field, signed."""
    result = otherwise
    for field, value in fields(message):
        if field == number and isinstance(value, int):
            result = value - (1 << 64) if value >= 1 << 63 else value
    return result


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if at + index >= len(message):
            break
        byte = message[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (1 << 64) - 1, at + index + 1
    raise BadMessageError("a number is not terminated")
