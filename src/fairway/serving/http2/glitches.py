"""Counts what costs work and brings none: requests taken back, empty frames, PING, SETTINGS and the like."""

from __future__ import annotations

from collections.abc import Callable

from fairway.serving.http2.errors import Code, SessionError

BURST = 10_000
"""Such frames at once..."""
RATE = 1_000.0
"""...and so many a second."""
RESETS = 1_000
"""Requests that a client may take back at once..."""
RESET_RATE = 100.0
"""...and a second."""


class Glitches:
    """Two buckets that fill again with time.

    Frames that bring something give room back: a client of gRPC may send a PING for each of them.
    """

    __slots__ = ("_now", "_reset_since", "_resets", "_room", "_since")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._room = BURST
        self._resets = float(RESETS)
        self._since = self._reset_since = now()

    def add(self) -> None:
        """One frame more that brings nothing; `SessionError` when these are too many."""
        self._room -= 1
        if self._room < 0:
            now = self._now()
            self._room += min(BURST, int(RATE * (now - self._since)))
            self._since = now
            if self._room < 0:
                raise SessionError(Code.ENHANCE_YOUR_CALM, "too many frames that bring nothing")

    def forgive(self) -> None:
        """A frame has brought something."""
        if self._room < BURST:
            self._room += 2

    def reset(self) -> None:
        """The client took a request back; `SessionError` when it does so too often."""
        self._resets -= 1
        if self._resets < 0:
            now = self._now()
            self._resets += min(RESETS, RESET_RATE * (now - self._reset_since))
            self._reset_since = now
            if self._resets < 0:
                raise SessionError(Code.ENHANCE_YOUR_CALM, "too many requests are taken back")

    def completed(self) -> None:
        """A request was answered whole."""
        if self._resets < RESETS:
            self._resets += 1
