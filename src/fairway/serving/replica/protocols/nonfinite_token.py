"""`NaN`, `Infinity` and `-Infinity` in JSON: not valid, but used by TensorFlow Serving, Triton and Python's encoder.

Before decoding, each token is replaced by a text of the same length; where a float is expected, the text is converted back to the
number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from fairway.serving.replica.model.datatype import Array

_MARKS = {b"NaN": b'"\x7f"', b"-Infinity": b'"\x7f-Infin"', b"Infinity": b'"\x7fInfin"'}
"""A token that contains another one comes first."""
_VALUES = {"\x7f": math.nan, "\x7fInfin": math.inf, "\x7f-Infin": -math.inf}
_TOKEN = re.compile(rb"NaN|-?Infinity")
_SPAN = re.compile(rb'(?:"(?:[^"\\]++|(?:\\.)++)*+"|[^"NI-]{1,4096}+|(?!NaN|-?Infinity)[NI-]){0,200}+', re.DOTALL)
"""Texts and everything else that is not such a token, as much as one step skips."""
_NULL = re.compile(rb'"(?:[^"\\]++|\\.)*+"|null')
_AFTER = (b",", b"]", b"}", b" ", b"\n", b"\r", b"\t", b"")
_RUN = 1 << 13


def has_tokens(body: bytes | memoryview) -> bool:
    """Whether a body may contain such tokens."""
    text = bytes(body)
    return b"NaN" in text or b"Infinity" in text


def masked(body: bytes, found: bytearray) -> Iterator[None]:
    """Replace the tokens in `found`, a copy of the body, in steps."""
    position, end = 0, len(body)
    while position < end:
        span = _SPAN.match(body, position)
        stop = position if span is None else span.end()
        token = _TOKEN.match(body, stop)
        if token is not None:
            if body[token.end() : token.end() + 1] not in _AFTER:
                return  # the decoder reports the error
            # Up to the next text, everything to the last comma is replaced at once.
            last = body.rfind(b",", token.end(), _before_text(body, token.end()))
            until = max(token.end(), last)
            found[stop:until] = _replaced(body[stop:until])
            stop = until
        elif stop == position:
            return  # a text without an end; the decoder reports the error
        position = stop
        yield


def _before_text(body: bytes, at: int) -> int:
    """Return the position of the next text, or `_RUN` bytes further on."""
    end = body.find(b'"', at, at + _RUN)
    return at + _RUN if end < 0 else end


def _replaced(part: bytes) -> bytes:
    for token, mark in _MARKS.items():
        part = part.replace(token, mark)
    return part


def has_marks(data: bytes | memoryview | msgspec.Raw) -> bool:
    """Whether a piece of JSON may contain texts that stand for such numbers."""
    return b'"\x7f' in bytes(data)


def is_mark(text: str) -> bool:
    """Whether a text stands for such a number. Where texts are expected, this is an error."""
    return text in _VALUES


def numbers(flat: list[Any]) -> list[Any]:
    """Replace the texts that stand for numbers by these numbers; other texts are kept."""
    return [_VALUES.get(element, element) if type(element) is str else element for element in flat]


def encoded(value: Any, arrays: list[Array], *, by_rows: bool = False) -> bytes:
    """Encode a value as JSON, with bare tokens for the numbers that JSON lacks.

    `arrays`: the arrays from which the value was made, one after the other or, with `by_rows`, a row of each in turn.
    """
    text = msgspec.json.encode(value)
    floats = [array for array in arrays if array.dtype.kind == "f"]
    if b"null" not in text or all(bool(np.isfinite(array).all()) for array in floats):
        return text
    only_numbers = text.count(b"null") == sum(int((~np.isfinite(array)).sum()) for array in floats)
    if only_numbers and not any(np.isinf(array).any() for array in floats):
        return text.replace(b"null", b"NaN ")  # same length, and much faster than one by one
    if by_rows and len(floats) > 1:
        floats = [np.concatenate([array.reshape(len(array), -1) for array in floats], axis=1)]
    unusual = iter(np.concatenate([array[~np.isfinite(array)] for array in floats]))
    if only_numbers:
        return re.sub(b"null", lambda _null: _token(next(unusual)), text)
    # Every null is one of these numbers, or inside a text, which is quoted.
    return _NULL.sub(lambda match: _token(next(unusual)) if match[0] == b"null" else match[0], text)


def _token(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
