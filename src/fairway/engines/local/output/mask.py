"""Takes secret values out of a stream of bytes, also where a value lies across two pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

COVER = b"***"
_LINE_WORTH_HIDING = 8
"""Bytes; a line of a secret of several lines is hidden by itself from this length on."""


class Mask:
    """A filter for one stream. What may be the beginning of a value is held back until it is known."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = tuple(sorted(_expanded(values), key=len, reverse=True))
        # Longest first, so that of two values with one beginning the longer is taken whole.
        self._find = re.compile(b"|".join(re.escape(value) for value in self._values)) if self._values else None
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown after this piece; all of the pieces, joined, are the stream with its values covered."""
        if self._find is None:
            return data
        held = self._held + data
        shown: list[bytes] = []
        at = 0
        hold = self._undecided(held, 0)
        while (match := self._find.search(held, at)) and match.start() < hold:
            shown += (held[at : match.start()], COVER)
            at = match.end()
            if at > hold:
                hold = self._undecided(held, at)
        shown.append(held[at:hold])
        self._held = held[hold:]
        return b"".join(shown)

    def flush(self) -> bytes:
        """What was held back, at the end of the stream."""
        if self._find is None:
            return b""
        rest, self._held = self._held, b""
        return self._find.sub(COVER, rest)

    def _undecided(self, data: bytes, low: int) -> int:
        """From where on the data could be the beginning of a value; its length when nowhere."""
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
    """The values, and the long lines of those with several: a tail may begin in the middle of one."""
    found: set[bytes] = set()
    for value in values:
        found.add(value)
        lines = value.splitlines()
        if len(lines) > 1:
            found.update(line.strip() for line in lines if len(line.strip()) >= _LINE_WORTH_HIDING)
    found.discard(b"")
    return found
