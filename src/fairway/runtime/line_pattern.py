"""Users' regular expressions for log lines: compiled to bytes, with a bound on the time that one line can take.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import re

from fairway.runtime import number

_REACH = (4096, 4096, 1024)
"""Bytes of a line that are searched, by the number of open-ended repetitions: each one multiplies the worst case by the
length."""
_LEAST_REACH = 512

_TOKEN = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P?<\w+>|<?[=!:]|[aimsux-]+:?)?)?|\{\d*,\d*\}|.", re.DOTALL)
_OPEN_ENDED = re.compile(rb"[*+]|\{\d*,\}")


class PatternError(ValueError):
    """Raised when the expression is wrong, or could take forever on an unlucky line."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class LinePattern:
    """An expression that is searched in the beginning of a line; a longer line is a dump and is not worth searching."""

    def __init__(self, compiled: re.Pattern[bytes], reach: int) -> None:
        self._compiled = compiled
        self.reach = reach

    def search(self, line: bytes) -> re.Match[bytes] | None:
        """Return the first match in the line, if any."""
        return self._compiled.search(line, 0, self.reach)

    def __str__(self) -> str:
        """Return the expression as it was written."""
        return self._compiled.pattern.decode()


def compile_pattern(text: str) -> LinePattern:
    """Compile an expression for bytes. Raises `PatternError` if it is wrong, or could take forever on an unlucky line."""
    raw = text.encode()
    try:
        compiled = re.compile(raw)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"{text!r} is not a regular expression: {error}"
        raise PatternError(
            message, fix="put a backslash before special characters that are meant literally, for example \\["
        ) from None
    tokens = _TOKEN.findall(raw)
    if _is_explosive(tokens):
        message = f"{text!r} repeats a group that can match the same text in several ways; one unlucky line could take forever"
        raise PatternError(message, fix="write it without the inner or the outer repetition: (a+)+ is the same as a+")
    repeats = sum(1 for token in tokens if _OPEN_ENDED.fullmatch(token))
    return LinePattern(compiled, _REACH[repeats] if repeats < len(_REACH) else _LEAST_REACH)


def numbers(pattern: LinePattern, line: bytes, refuse: number.Refuse = number.ignore) -> tuple[int | None, dict[str, float]]:
    """Return the step and the metrics of a line; groups that hold no number are skipped.

    A line whose step is not a 64-bit integer is rejected as a whole: the result is empty, and `refuse` is called with the reason.
    """
    match = pattern.search(line)
    step: int | None = None
    metrics: dict[str, float] = {}
    for name, text in (match.groupdict() if match else {}).items():
        try:
            if name == "step":
                step = _whole(text)
            else:
                metrics[name] = float(text)
        except (TypeError, ValueError, OverflowError):
            continue
    if step is not None and number.int64(step) is None:
        refuse("step", f"step {number.shown(step)} is out of range; a step is a whole number from -2**63 to 2**63 - 1")
        return None, {}
    return step, metrics


def _whole(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


class _PatternGroup:
    """State of a group while the parser looks for its end."""

    def __init__(self) -> None:
        self.repeats = False
        self.beginnings: list[bytes] = [b""]
        """The first token of each alternative."""

    @property
    def ambiguous(self) -> bool:
        return self.repeats or len(set(self.beginnings)) < len(self.beginnings)


def _is_explosive(tokens: list[bytes]) -> bool:
    """Return whether an open-ended repetition applies to a group that itself repeats, or whose alternatives start alike."""
    groups = [_PatternGroup()]
    for token, following in zip(tokens, [*tokens[1:], b""]):
        if token.startswith(b"("):
            groups.append(_PatternGroup())
        elif token == b")" and len(groups) > 1:
            inner = groups.pop()
            is_repeated = _OPEN_ENDED.fullmatch(following) is not None
            if inner.ambiguous and is_repeated:
                return True
            groups[-1].repeats = groups[-1].repeats or inner.repeats or is_repeated
        elif token == b"|":
            groups[-1].beginnings.append(b"")
        elif _OPEN_ENDED.fullmatch(token):
            groups[-1].repeats = True
        elif not groups[-1].beginnings[-1]:
            groups[-1].beginnings[-1] = token
    return False
