"""Masks secret values in a stream of bytes, also where a value spans two pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

COVER = b"***"
_LINE_WORTH_HIDING = 8
"""Lines of a multi-line secret with at least this many bytes are masked individually, too."""


class SecretMask:
    """A filter for one stream. A possible beginning of a value is held back until it is decided."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = tuple(sorted(_expanded(values), key=len, reverse=True))
        # Longest first, so that of two values with the same beginning the longer one matches.
        self._find = re.compile(b"|".join(re.escape(value) for value in self._values)) if self._values else None
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown after this piece. All results, joined, are the stream with its values masked."""
        if self._find is None:
            return data
        held = self._held + data
        visible: list[bytes] = []
        at = 0
        hold = self._undecided(held, 0)
        while (match := self._find.search(held, at)) and match.start() < hold:
            visible += (held[at : match.start()], COVER)
            at = match.end()
            if at > hold:
                hold = self._undecided(held, at)
        visible.append(held[at:hold])
        self._held = held[hold:]
        return b"".join(visible)

    def flush(self) -> bytes:
        """Return the data held back, at the end of the stream."""
        if self._find is None:
            return b""
        rest, self._held = self._held, b""
        return self._find.sub(COVER, rest)

    def _undecided(self, data: bytes, low: int) -> int:
        """Return from where on the data could be the beginning of a value; its length when nowhere."""
        earliest = len(data)
        for value in self._values:
            at = data.find(value[:1], max(low, len(data) - len(value) + 1))
            while 0 <= at < earliest:
                if value.startswith(data[at:]):
                    earliest = at
                    break
                at = data.find(value[:1], at + 1)
        return earliest


def _expanded(values: Iterable[bytes]) -> set[bytes]:
    """Return the values and the long lines of multi-line values: a tail may begin in the middle of one."""
    expanded: set[bytes] = set()
    for value in values:
        expanded.add(value)
        lines = value.splitlines()
        if len(lines) > 1:
            expanded.update(line.strip() for line in lines if len(line.strip()) >= _LINE_WORTH_HIDING)
    expanded.discard(b"")
    return expanded
