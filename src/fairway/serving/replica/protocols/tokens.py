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

_MARKS = {b"NaN": b'"\x7f"', b"-Infinity": b'"\x7f-Infin"', b"Infinity": b'"\x7fInfin"'}
"""The one that has another in it comes before."""
_VALUES = {"\x7f": math.nan, "\x7fInfin": math.inf, "\x7f-Infin": -math.inf}
_TOKEN = re.compile(rb"NaN|-?Infinity")
_SPAN = re.compile(rb'(?:"(?:[^"\\]++|(?:\\.)++)*+"|[^"NI-]{1,4096}+|(?!NaN|-?Infinity)[NI-]){0,200}+', re.DOTALL)
"""Texts and all else that is no such number, so much as one step passes."""
_NULL = re.compile(rb'"(?:[^"\\]++|\\.)*+"|null')
_AFTER = (b",", b"]", b"}", b" ", b"\n", b"\r", b"\t", b"")
_WINDOW = 1 << 16
_RUN = 1 << 13


def has_tokens(body: bytes | memoryview) -> bool:
    """Whether a body may have such numbers."""
    text = bytes(body)
    return b"NaN" in text or b"Infinity" in text


def masked(body: bytes, found: bytearray) -> Iterator[None]:
    """Replace the numbers in `found`, a copy of the body; in steps."""
    at, end = 0, len(body)
    while at < end:
        span = _SPAN.match(body, at)
        stop = at if span is None else span.end()
        token = _TOKEN.match(body, stop)
        if token is not None:
            if body[token.end() : token.end() + 1] not in _AFTER:
                return  # the decoder tells what is wrong
            # What follows without a text in it is replaced at once, to the last comma.
            last = body.rfind(b",", token.end(), _before_text(body, token.end()))
            until = max(token.end(), last)
            found[stop:until] = _replaced(body[stop:until])
            stop = until
        elif stop == at:
            return  # a text that has no end; the decoder tells so
        at = stop
        yield


def _before_text(body: bytes, at: int) -> int:
    """Where the next text begins, or some bytes on."""
    end = body.find(b'"', at, at + _RUN)
    return at + _RUN if end < 0 else end


def _replaced(part: bytes) -> bytes:
    for token, mark in _MARKS.items():
        part = part.replace(token, mark)
    return part


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
    alone = text.count(b"null") == sum(int((~np.isfinite(each)).sum()) for each in floats)
    if alone and not any(np.isinf(each).any() for each in floats):
        return text.replace(b"null", b"NaN ")  # as long, and by far faster than one by one
    if by_rows and len(floats) > 1:
        floats = [np.concatenate([each.reshape(len(each), -1) for each in floats], axis=1)]
    unusual = iter(np.concatenate([each[~np.isfinite(each)] for each in floats]))
    # What is null in it is one of these numbers, or part of a text, which has quotes around it.
    found, at = bytearray(), 0
    while at < len(text):
        # Where no text has the word, it may be cut between elements: what one step makes is small.
        end = text.find(b",", at + _WINDOW) if alone else -1
        end = len(text) if end < 0 else end
        found += _NULL.sub(lambda match: _token(next(unusual)) if match[0] == b"null" else match[0], text[at:end])
        at = end
    return bytes(found)


def _token(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
