"""Tensors on the wire and in memory."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairway.serving.replica.model.datatype import DTYPES, from_raw, of_texts, to_raw, word_of
from fairway.serving.replica.request_error import RequestError

PLAIN = [word for word in DTYPES if word not in ("BYTES", "BF16", "BOOL")]


@given(some.sampled_from(PLAIN), some.binary(max_size=64))
def test_plain_tensors_come_back_as_they_went(word: str, data: bytes) -> None:
    size = DTYPES[word].itemsize
    data = data[: len(data) // size * size]
    assert to_raw(word, from_raw(word, memoryview(data), len(data) // size, "x")) == data


@given(some.lists(some.binary(max_size=20), max_size=10))
def test_texts_come_back_as_they_went(texts: list[bytes]) -> None:
    assert from_raw("BYTES", memoryview(to_raw("BYTES", of_texts(texts))), len(texts), "x").tolist() == texts


@given(some.sampled_from(sorted(DTYPES)), some.binary(max_size=64), some.integers(0, 20))
def test_any_bytes_are_read_or_refused(word: str, data: bytes, count: int) -> None:
    with suppress(RequestError):
        assert len(from_raw(word, memoryview(data), count, "x")) == count


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x01\0\0", "length of element 0 is cut short"),
        (b"\x05\0\0\0ab", "5 bytes and 2 are left"),
        (b"\0\0\0\0", "1 elements of BYTES"),
    ],
)
def test_texts_that_are_cut_short_say_where(data: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        from_raw("BYTES", memoryview(data), 2, "input 'x'")


def test_bf16_is_rounded_to_the_nearest_and_keeps_what_is_no_number() -> None:
    values = np.array([1.0, -2.5, 3.14159, np.inf, np.nan, 1e-40], np.float32)
    back = from_raw("BF16", memoryview(to_raw("BF16", values)), 6, "x")
    np.testing.assert_allclose(back[:3], values[:3], rtol=2**-8)
    assert np.isinf(back[3])
    assert np.isnan(back[4])


def test_a_bool_is_true_or_false_whatever_the_byte() -> None:
    assert from_raw("BOOL", memoryview(b"\0\x01\x07"), 3, "x").tolist() == [False, True, True]


def test_every_type_has_its_word() -> None:
    assert [word_of(DTYPES[word]) for word in PLAIN] == PLAIN
    assert word_of(np.dtype("U3")) == "BYTES"
    assert word_of(np.dtype(">f4")) == "FP32"
    with pytest.raises(ValueError, match="complex"):
        word_of(np.dtype("complex64"))
