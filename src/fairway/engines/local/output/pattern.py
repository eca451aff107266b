"""Regular expressions from people, over lines of logs, with mistakes in them told as mistakes of a request."""

from __future__ import annotations

from fairway.errors import UsageError
from fairway.runtime import pattern
from fairway.runtime.pattern import LinePattern


def compile_pattern(text: str) -> LinePattern:
    """The expression for bytes. `UsageError` for one that is wrong, or that could take forever on an unlucky line."""
    try:
        return pattern.compile_pattern(text)
    except pattern.PatternError as error:
        raise UsageError(error.message, fix=error.fix) from None
