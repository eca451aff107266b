"""Rate limits for frames that cost work without effect: cancelled requests, empty frames, PING, SETTINGS and the like."""

from __future__ import annotations

from collections.abc import Callable

from fairway.serving.http2.http2_error import Http2ConnectionError, Http2ErrorCode

BURST = 10_000
"""Maximum burst of such frames."""
RATE = 1_000.0
"""Sustained rate of such frames, per second."""
RESETS = 1_000
"""Maximum burst of requests that a client cancels."""
RESET_RATE = 100.0
"""Sustained rate of cancelled requests, per second."""


class Http2AbuseLimit:
    """Two token buckets: one for frames without effect, one for cancelled requests.

    Useful frames refill the first: a gRPC client may send a PING for each of them.
    """

    __slots__ = ("_now", "_reset_since", "_resets", "_room", "_since")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._room = BURST
        self._resets = float(RESETS)
        self._since = self._reset_since = now()

    def add(self) -> None:
        """Count a frame without effect; raise `Http2ConnectionError` when there are too many."""
        self._room -= 1
        if self._room < 0:
            now = self._now()
            self._room += min(BURST, int(RATE * (now - self._since)))
            self._since = now
            if self._room < 0:
                raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, "too many frames without effect")

    def forgive(self) -> None:
        """Count a useful frame, which refills the bucket."""
        if self._room < BURST:
            self._room += 2

    def reset(self) -> None:
        """Count a request that the client cancelled; raise `Http2ConnectionError` when there are too many."""
        self._resets -= 1
        if self._resets < 0:
            now = self._now()
            self._resets += min(RESETS, RESET_RATE * (now - self._reset_since))
            self._reset_since = now
            if self._resets < 0:
                raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, "too many cancelled requests")

    def completed(self) -> None:
        """Count a fully answered request, which refills the bucket of cancelled ones."""
        if self._resets < RESETS:
            self._resets += 1
