"""Masking as data: no value leaks, wherever the text is split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.engines.local.output.secret_mask import COVER, SecretMask


def masked(values: list[bytes], pieces: list[bytes]) -> bytes:
    mask = SecretMask(values)
    return b"".join([mask.feed(piece) for piece in pieces] + [mask.flush()])


@pytest.mark.parametrize(
    ("values", "pieces", "expected"),
    [
        ([b"hunter2"], [b"pw=hunter2\n"], b"pw=***\n"),
        ([b"hunter2"], [b"pw=hun", b"ter2\n"], b"pw=***\n"),
        ([b"hunter2"], [b"pw=hun", b"gry\n"], b"pw=hungry\n"),
        ([b"abc", b"abcd"], [b"abc", b"d"], b"***"),
        ([b"abc", b"abcd"], [b"abc", b"e"], b"***e"),
        ([b"xabc", b"cd"], [b"xabc", b"!"], b"***!"),
        ([b"abcX", b"bc"], [b"abc", b"X"], b"***"),
        ([b"abcX", b"bc"], [b"abc", b"Y"], b"a***Y"),
        ([b"aa"], [b"a", b"a", b"a"], b"***a"),
        ([], [b"plain"], b"plain"),
        ([b""], [b"plain"], b"plain"),
        ([b"a.c"], [b"abc a.c"], b"abc ***"),
    ],
)
def test_values_are_covered(values: list[bytes], pieces: list[bytes], expected: bytes) -> None:
    assert masked(values, pieces) == expected


def test_lines_of_a_long_value_are_covered_by_themselves() -> None:
    key = b"-----BEGIN KEY-----\nMIIEvQIBADANBg\nab\n-----END KEY-----"
    assert masked([key], [b"MIIEvQIBADANBg\nab\n"]) == b"***\nab\n"


def test_only_what_may_begin_a_value_is_held_back() -> None:
    mask = SecretMask([b"secret"])
    assert mask.feed(b"Password: ") == b"Password: "
    assert mask.feed(b"it is se") == b"it is "
    assert mask.flush() == b"se"


@given(
    values=st.lists(
        st.binary(min_size=1, max_size=6).map(lambda raw: bytes(97 + byte % 3 for byte in raw)), min_size=1, max_size=3
    ),
    data=st.binary(max_size=40).map(lambda raw: bytes(97 + byte % 3 for byte in raw)),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
def test_the_cuts_make_no_difference(values: list[bytes], data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[low:high] for low, high in pairwise(places)]
    whole = masked(values, [data])
    assert masked(values, pieces) == whole
    assert all(value not in part for part in whole.split(COVER) for value in values)
