"""The request id at a replica: for its log, its samples, its span, and clients that connect directly."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

NAME = b"x-request-id"
BEFORE_ID = b"x-forwarded-host"
"""Fairway's routers end the head with this header and the id, and return the id themselves."""
FAILURES_A_SECOND = 10
"""Maximum log lines per second about failed requests."""

_PLAIN = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")

Headers = Sequence[tuple[bytes, bytes]]

_log = logging.getLogger("fairway.replica")


def id_of(headers: Headers) -> str:
    """Return the id if it is safe to log, otherwise ""."""
    for name, value in reversed(headers):
        if name == NAME:
            return value.decode() if _PLAIN.fullmatch(value) else ""
    return ""


def echoed(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the header that returns the id to a client that connects directly."""
    if len(headers) > 1 and headers[-2][0] == BEFORE_ID and headers[-1][0] == NAME:
        return []
    request_id = id_of(headers)
    return [(NAME, request_id.encode())] if request_id else []


class FailureLog:
    """Logs the ids of failed requests, with a rate limit. `now`: seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = 0.0
        self._left = FAILURES_A_SECOND
        self._dropped = 0

    def note(self, headers: Headers, status: int, reason: bytes) -> None:
        """Log a failed request."""
        now = self._now()
        if now - self._since >= 1.0:
            if self._dropped:
                _log.warning("%d more requests failed", self._dropped)
            self._since, self._left, self._dropped = now, FAILURES_A_SECOND, 0
        if self._left <= 0:
            self._dropped += 1
            return
        self._left -= 1
        _log.warning("request %s: %d %s", id_of(headers) or "without an id", status, reason[:500].decode("utf-8", "replace"))
