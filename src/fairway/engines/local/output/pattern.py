"""Regular expressions of users for log lines; mistakes in them are reported as usage errors."""

from __future__ import annotations

from fairway.errors import UsageError
from fairway.runtime import pattern
from fairway.runtime.pattern import LinePattern


def compile_pattern(text: str) -> LinePattern:
    """Compile an expression for bytes. Raises `UsageError` if it is wrong, or could take exponential time on some line."""
    try:
        return pattern.compile_pattern(text)
    except pattern.PatternError as error:
        raise UsageError(error.message, fix=error.fix) from None
