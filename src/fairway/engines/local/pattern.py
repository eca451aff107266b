"""Regular expressions from people, over lines of logs: compiled to bytes, with a bound on what one line can cost."""

from __future__ import annotations

import re

from fairway.errors import UsageError

LINE_LIMIT = 4096
"""Only this much of a line is looked at; a longer one is a dump, not something to search with an expression."""

_OPEN_ENDED = re.compile(rb"[*+]|\{\d*,\}")
_ESCAPE_OR_CLASS = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """The expression for bytes. `UsageError` for one that is wrong, or that could take forever on an unlucky line."""
    raw = text.encode()
    try:
        compiled = re.compile(raw)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"{text!r} is no regular expression: {error}"
        raise UsageError(message, fix="put a backslash before characters that are meant as such, for example \\[") from None
    if _repeats_a_repeat(raw):
        message = f"{text!r} repeats a group that itself repeats; one unlucky line could take forever"
        raise UsageError(message, fix="write it without the inner or the outer repetition: (a+)+ is the same as a+")
    return compiled


def _repeats_a_repeat(raw: bytes) -> bool:
    """Whether an open-ended repetition applies to a group that holds another one: the way to exponential time."""
    plain = _ESCAPE_OR_CLASS.sub(b"x", raw)
    inside: list[bool] = [False]
    at = 0
    while at < len(plain):
        char = plain[at : at + 1]
        if char == b"(":
            inside.append(False)
            # The mark after `(?` is no repetition.
            at += 2 if plain[at + 1 : at + 2] == b"?" else 1
            continue
        if char == b")" and len(inside) > 1:
            repeats = inside.pop()
            quantified = _OPEN_ENDED.match(plain, at + 1) is not None
            if repeats and quantified:
                return True
            inside[-1] = inside[-1] or repeats or quantified
        elif _OPEN_ENDED.match(plain, at):
            inside[-1] = True
        at += 1
    return False
