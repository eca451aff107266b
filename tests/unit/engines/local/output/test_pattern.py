"""Search expressions entered by users."""

from __future__ import annotations

import time

import pytest

from fairway.engines.local.output.pattern import compile_pattern
from fairway.errors import UsageError


@pytest.mark.parametrize(
    "text",
    [
        "loss",
        r"loss=(?P<loss>[\d.]+)",
        "(foo|bar)+",
        "(?:a+)b",
        r"\(a+\)+",
        "[(+]+",
        "é",
        "(a{2,5})+",
        "(a|ab)",
        r"(\d|\s)+",
        "(?i)loss",
        "(?<=x)y+",
    ],
)
def test_ordinary_expressions_are_taken(text: str) -> None:
    assert str(compile_pattern(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+",
        "(a*)*b",
        "((a+)b?)+",
        "(?:x{2,})*",
        "(?P<n>.*)+",
        "((ab)+|c)*",
        "(a|a)*",
        "(a|ab)+b",
        r"(\d|\d\d)+",
        "(?P<x>[ab]|[ab]c)*",
    ],
)
def test_repeated_repetitions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="forever"):
        compile_pattern(text)


@pytest.mark.parametrize("text", ["[", "(", "*", "(?P<1>x)"])
def test_broken_expressions_are_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        compile_pattern(text)


def test_only_the_beginning_of_a_line_is_looked_at() -> None:
    assert compile_pattern("end").search(b"x" * 4000 + b"end")
    assert not compile_pattern("end").search(b"x" * 5000 + b"end")
    assert not compile_pattern(r".*x.*y.*end").search(b"xy" * 500 + b"end")


def test_even_an_unlucky_line_takes_seconds_at_most() -> None:
    begun = time.process_time()
    assert not compile_pattern(".*a.*b").search(b"a" * 100_000)
    assert time.process_time() - begun < 20
