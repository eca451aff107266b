"""Expressions from people."""

from __future__ import annotations

import pytest

from fairway.engines.local.pattern import compile_pattern
from fairway.errors import UsageError


@pytest.mark.parametrize("text", ["loss", r"loss=(?P<loss>[\d.]+)", "(foo|bar)+", "(?:a+)b", r"\(a+\)+", "[(+]+", "é", "(a{2,5})+"])
def test_ordinary_expressions_are_taken(text: str) -> None:
    assert compile_pattern(text).pattern == text.encode()


@pytest.mark.parametrize("text", ["(a+)+", "(a*)*b", "((a+)b?)+", "(?:x{2,})*", "(?P<n>.*)+", "((ab)+|c)*"])
def test_repeated_repetitions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="forever"):
        compile_pattern(text)


@pytest.mark.parametrize("text", ["[", "(", "*", "(?P<1>x)"])
def test_broken_expressions_are_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match="is no regular expression"):
        compile_pattern(text)
