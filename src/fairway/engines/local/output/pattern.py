"""Regular expressions of users for log lines; mistakes in them are reported as usage errors."""

from __future__ import annotations

from fairway.errors import UsageError
from fairway.runtime import line_pattern
from fairway.runtime.line_pattern import LinePattern


def compile_pattern(text: str) -> LinePattern:
    """Compile an expression for bytes. Raises `UsageError` if it is wrong, or could take exponential time on some line."""
    try:
        return line_pattern.compile_pattern(text)
    except line_pattern.PatternError as error:
        raise UsageError(error.message, fix=error.fix) from None
