"""`NaN`, `Infinity` and `-Infinity` in JSON: no JSON, but what TensorFlow Serving, Triton and Python's encoder use.

Before decoding each is replaced by a text of the same length; where a float is wanted, the text becomes the number again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from fairway.serving.replica.datatypes import Array

_MARKS = {b"NaN": b'"\x7f"', b"Infinity": b'"\x7fInfin"', b"-Infinity": b'"\x7f-Infin"'}
_VALUES = {"\x7f": math.nan, "\x7fInfin": math.inf, "\x7f-Infin": -math.inf}
_NEXT = re.compile(rb'"|NaN|-Infinity|Infinity')
_REST_OF_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NULL = re.compile(rb'"(?:[^"\\]++|\\.)*+"|null')
_LONGEST = 9
_WINDOW = 1 << 16
_MATCHES = 500
"""Tokens and texts that one step passes."""


def has_tokens(body: bytes | memoryview) -> bool:
    """Whether a body may have such numbers."""
    text = bytes(body)
    return b"NaN" in text or b"Infinity" in text


def masked(body: bytes, found: bytearray) -> Iterator[None]:
    """Replace the numbers in `found`, a copy of the body; in steps."""
    at, end, matches = 0, len(body), 0
    while at < end:
        window = min(at + _WINDOW, end)
        match = _NEXT.search(body, at, min(window + _LONGEST - 1, end))
        if match is None:
            at = window
            yield
        elif match[0] == b'"':
            at = _end_of_text(body, match.end())
        else:
            found[match.start() : match.end()] = _MARKS[match[0]]
            at = match.end()
        matches += 1
        if matches % _MATCHES == 0:
            yield


def _end_of_text(body: bytes, start: int) -> int:
    match = _REST_OF_TEXT.match(body, start)
    return len(body) if match is None else match.end()


def has_marks(data: bytes | memoryview | msgspec.Raw) -> bool:
    """Whether texts that stand for such numbers may be in a piece of JSON."""
    return b'"\x7f' in bytes(data)


def is_mark(text: str) -> bool:
    """Whether a text stands for such a number, where texts are wanted: there it would be wrong."""
    return text in _VALUES


def numbers(flat: list[Any]) -> list[Any]:
    """Elements with the numbers in place of the texts that stand for them; other texts stay."""
    return [_VALUES.get(each, each) if type(each) is str else each for each in flat]


def encoded(value: Any, arrays: list[Array], *, by_rows: bool = False) -> bytes:
    """A value as JSON, with the bare tokens for numbers that JSON lacks.

    `arrays`: what the value was made of, one after the other or, `by_rows`, a row of each in turn.
    """
    text = msgspec.json.encode(value)
    floats = [each for each in arrays if each.dtype.kind == "f"]
    if b"null" not in text or all(bool(np.isfinite(each).all()) for each in floats):
        return text
    if by_rows and len(floats) > 1:
        floats = [np.concatenate([each.reshape(len(each), -1) for each in floats], axis=1)]
    unusual = iter(np.concatenate([each[~np.isfinite(each)] for each in floats]).tolist())
    # What is null in it is one of these numbers, or part of a text, which has quotes around it.
    return _NULL.sub(lambda match: _token(next(unusual)) if match[0] == b"null" else match[0], text)


def _token(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
