"""Protocol-buffer messages, field by field, over a buffer: nothing is copied but what is asked for."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_HIGHEST = (1 << 29) - 1
"""The highest number of a field. Other readers cut longer ones to 32 bits, so that these would be fields that we do not see."""


class DamagedError(ValueError):
    """The bytes are no such message."""


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of every field: a whole number, or bytes for everything else. `DamagedError` for what is no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if not 0 < number <= _HIGHEST:
            raise DamagedError(f"a field has the number {number}")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise DamagedError(f"a field has the kind {kind}")
        end = at + length
        if end > len(message):
            raise DamagedError("a field reaches beyond its message")
        yield number, message[at:end]
        at = end


def messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """The values of one field that are messages, texts or bytes."""
    for found, value in fields(message):
        if found == number and isinstance(value, memoryview):
            yield value


def text(message: memoryview, number: int) -> str:
    """The last value of a text field; empty when there is none."""
    found = ""
    for value in messages(message, number):
        found = str(value, "utf-8", "replace")
    return found


def integer(message: memoryview, number: int, otherwise: int = 0) -> int:
    """The last value of a whole-number field, signed."""
    found = otherwise
    for given, value in fields(message):
        if given == number and isinstance(value, int):
            found = value - (1 << 64) if value >= 1 << 63 else value
    return found


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise DamagedError("a number has no end")
