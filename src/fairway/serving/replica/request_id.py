"""The id of a request at a replica: for its log, its samples, its span, and for clients that ask it directly."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

NAME = b"x-request-id"
BEFORE_ID = b"x-forwarded-host"
"""A router of ours ends its head with this and the id, and gives the id back itself."""
FAILURES_A_SECOND = 10
"""Lines about failed requests a second."""

_PLAIN = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")

Headers = Sequence[tuple[bytes, bytes]]

_log = logging.getLogger("fairway.replica")


def id_of(headers: Headers) -> str:
    """The id, where it is one that can be logged; else nothing."""
    for name, value in reversed(headers):
        if name == NAME:
            return value.decode() if _PLAIN.fullmatch(value) else ""
    return ""


def echoed(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The line that gives the id back to a client that asked directly."""
    if len(headers) > 1 and headers[-2][0] == BEFORE_ID and headers[-1][0] == NAME:
        return []
    found = id_of(headers)
    return [(NAME, found.encode())] if found else []


class FailureLog:
    """Writes the ids of requests that failed, so many a second at the most. `now`: seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = 0.0
        self._left = FAILURES_A_SECOND
        self._dropped = 0

    def note(self, headers: Headers, status: int, reason: bytes) -> None:
        """One request failed."""
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
