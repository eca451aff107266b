"""Universal Binary JSON, as far as XGBoost writes it: values by name, with large arrays skipped."""

from __future__ import annotations

import struct
from typing import Any

from fairway.registry.formats.protobuf import BadMessageError

_NUMBERS = {b"i": "b", b"U": "B", b"I": "h", b"l": "i", b"L": "q", b"d": "f", b"D": "d"}
_CONSTANTS = {b"T": True, b"F": False, b"Z": None, b"N": None}
_DEEPEST = 64


def decode(data: memoryview) -> Any:
    """Return the document. Typed arrays become None: they are weights. Raises `BadMessageError` for an invalid document."""
    try:
        return _UbjsonReader(data).value(0)
    except (struct.error, IndexError, UnicodeDecodeError, KeyError) as problem:
        message = f"a value is cut short or unknown: {problem}"
        raise BadMessageError(message) from None


class _UbjsonReader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int) -> Any:
        return self._typed(self._mark(), depth)

    def _mark(self) -> bytes:
        mark = bytes(self._data[self._at : self._at + 1])
        if not mark:
            message = "it ends early"
            raise BadMessageError(message)
        self._at += 1
        return mark

    def _typed(self, mark: bytes, depth: int) -> Any:
        if depth > _DEEPEST:
            message = "values are nested too deeply"
            raise BadMessageError(message)
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        if mark in _NUMBERS:
            return self._number(mark)
        if mark == b"C":
            return self._text(1)
        if mark in (b"S", b"H"):
            return self._text(self._length())
        if mark == b"{":
            return self._object(depth)
        if mark == b"[":
            return self._array(depth)
        message = f"a value has the unknown type marker {mark!r}"
        raise BadMessageError(message)

    def _number(self, mark: bytes) -> Any:
        kind = struct.Struct(">" + _NUMBERS[mark])
        (value,) = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return value

    def _length(self) -> int:
        length = self._number(self._mark())
        if not isinstance(length, int) or not 0 <= length <= len(self._data):
            message = f"a length is invalid: {length}"
            raise BadMessageError(message)
        return length

    def _text(self, length: int) -> str:
        if self._at + length > len(self._data):
            message = "a text is cut short"
            raise BadMessageError(message)
        text = str(self._data[self._at : self._at + length], "utf-8")
        self._at += length
        return text

    def _peek(self, mark: bytes) -> bool:
        if self._data[self._at : self._at + 1] != mark:
            return False
        self._at += 1
        return True

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._peek(b"}"):
            name = self._text(self._length())
            members[name] = self.value(depth + 1)
        return members

    def _array(self, depth: int) -> list[Any] | None:
        kind = self._mark() if self._peek(b"$") else b""
        if not self._peek(b"#"):
            values = []
            while not self._peek(b"]"):
                values.append(self.value(depth + 1))
            return values
        count = self._length()
        if not kind:
            return [self.value(depth + 1) for _ in range(count)]
        self._at += count * struct.calcsize(_NUMBERS[kind])
        if self._at > len(self._data):
            message = "an array is cut short"
            raise BadMessageError(message)
        return None
