"""Decodes large JSON in pieces, so that only a small part is decoded at once, however large the body is.

A decoded list takes many times the memory of its text. So a JSON array is cut at the commas between its elements, and each piece
is added to a flat array before the next one is decoded. A parser in steps yields before each step how many bytes it will hold,
which bounds the memory and the time of one step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np

from fairway.serving.replica.model.datatype import DTYPES, Array, of_texts
from fairway.serving.replica.request_error import RequestError, bad

LARGE = 1 << 15
"""Bytes of JSON; a larger body is parsed in steps."""
PIECE = 1 << 13
"""Bytes of JSON that one step decodes: a millisecond at most."""
WORTH = 64
"""Upper bound of the bytes in memory per byte of JSON while it is decoded; measured in `test_decoded_memory.py`."""
FRAME_WORTH = 8
"""The same if tensors stay undecoded and the rest has fixed fields."""
TEXT_WORTH = 8
"""The same for a single text."""
_TEXT_BYTES = 64
"""Bytes of an element of BYTES besides its text: two pointers and an object."""

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_SPACE = b" \t\r\n"
_MARKS = (b'"', b"[", b"]", b"{", b"}", b"\\")
_QUOTE, _COMMA = 0x22, 0x2C
_OPEN, _CLOSE = 0x7B, 0x7D
"""Braces; brackets become braces by setting the bit 0x20."""

T = TypeVar("T")
Steps = Generator[int, None, T]
"""Yields before each step the bytes that it will hold besides the body; returns the parsed value."""


def finish(steps: Steps[T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def beside(held: int, steps: Steps[T]) -> Steps[T]:
    """Run steps while `held` additional bytes are held."""
    while True:
        try:
            need = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        yield held + need


def trimmed(text: memoryview) -> memoryview:
    """Return a text without surrounding whitespace."""
    start, end = 0, len(text)
    while start < end and text[start] in _SPACE:
        start += 1
    while end > start and text[end - 1] in _SPACE:
        end -= 1
    return text[start:end]


def opens(text: memoryview, bracket: bytes) -> bool:
    """Whether a text begins with this bracket."""
    return bytes(text[:1]) == bracket


def opens_nested(text: memoryview) -> bool:
    """Whether a text is an array whose first element is an array."""
    position = 1
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return opens(text, b"[") and opens(text[position:], b"[")


def cut(text: memoryview) -> Iterator[tuple[memoryview, bool]]:
    """Yield the elements of a JSON array in pieces of comma-separated elements, each no longer than `PIECE`.

    A longer element is yielded alone, with True as the second value. Malformed JSON may be cut anywhere: the decoder of the
    pieces detects it.
    """
    position, end = 1, len(text) - 1
    while end - position > PIECE:
        window = bytes(text[position : position + PIECE])
        if _is_flat(window) and (comma := window.rfind(b",")) >= 0:
            yield text[position : position + comma], False
            position += comma + 1
            continue
        scan = _CommaScanner()
        commas = scan.commas(window)
        if len(commas):
            stop = position + int(commas[-1])
            yield text[position:stop], False
        else:
            stop = _end_of_first(text, position + PIECE, end, scan)
            yield trimmed(text[position:stop]), True
        position = stop + 1
        if stop == end:
            return
    yield text[position : max(position, end)], False


def _is_flat(window: bytes) -> bool:
    """Whether a text has only numbers and literals, so that every comma separates two elements."""
    return not any(mark in window for mark in _MARKS)


def _end_of_first(text: memoryview, at: int, end: int, scan: _CommaScanner) -> int:
    while at < end:
        commas = scan.commas(bytes(text[at : min(at + PIECE, end)]))
        if len(commas):
            return at + int(commas[0])
        at += PIECE
    return end


class _CommaScanner:
    """Finds the commas between elements, over consecutive windows of the text."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = 0
        self._escaped = False

    def commas(self, window: bytes) -> Array:
        """Return the positions of commas outside of texts, arrays and objects."""
        if self._escaped:
            window = b" " + window[1:]
            self._escaped = False
        if b"\\" in window:
            window = _ESCAPED.sub(b"  ", window)
            self._escaped = window.endswith(b"\\")
        codes: Array = np.frombuffer(window, np.uint8)
        if self._in_text or b'"' in window:
            in_text = (np.cumsum(codes == _QUOTE, dtype=np.int32) + self._in_text) & 1
            self._in_text = int(in_text[-1])
            codes = np.where(in_text, 0, codes)
        folded = codes | 0x20
        depth = np.cumsum((folded == _OPEN).view(np.int8) - (folded == _CLOSE).view(np.int8), dtype=np.int32) + self._depth
        self._depth = int(depth[-1])
        return np.flatnonzero((codes == _COMMA) & (depth == 0))


class GrowingArray:
    """A flat array that grows by pieces; its memory is never held twice."""

    def __init__(self, datatype: str) -> None:
        self.datatype = datatype
        self.count = 0
        self._texts: list[bytes] = []
        self._raw = bytearray()
        self._text_bytes = 0

    @property
    def size(self) -> int:
        """Bytes held, including the reserve of a growing array."""
        return len(self._raw) * 9 // 8 + self._text_bytes

    def add(self, values: Array) -> None:
        """Append elements."""
        self.count += values.size
        if self.datatype == "BYTES":
            texts = values.ravel().tolist()
            self._texts += texts
            self._text_bytes += sum(map(len, texts)) + _TEXT_BYTES * len(texts)
        elif values.size:
            self._raw += values.astype(DTYPES[self.datatype], copy=False).data.cast("B")

    def array(self) -> Array:
        """Return all elements."""
        if self.datatype == "BYTES":
            return of_texts(self._texts)
        return np.frombuffer(self._raw, DTYPES[self.datatype])


def weight(arrays: list[Array]) -> int:
    """Return the bytes that arrays hold, including their texts."""
    return sum(
        array.nbytes + (sum(map(len, array.ravel().tolist())) + _TEXT_BYTES * array.size if array.dtype == object else 0)
        for array in arrays
    )


def small(raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any], place: str) -> Any:
    """Decode a part of a large request that must itself be small; raise 400 otherwise."""
    if memoryview(raw).nbytes > LARGE:
        message = f"{place} has {memoryview(raw).nbytes} bytes"
        raise bad(message, f"send at most {LARGE}")
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the request does not match the protocol: {error} - in `{place}`"
        raise bad(message) from None


def elements(name: str, given: int, shape: tuple[int, ...]) -> RequestError:
    """Return the error 400 for a wrong number of elements."""
    return bad(f"{name} has {given} elements where the shape {list(shape)} has {math.prod(shape)}")
