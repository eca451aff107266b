"""The state machine of a watch: decides the next request from the results so far. Pure; `watch` sends the requests.

A watch list returns all objects and then every change, in one request. Servers that do not support it refuse it; then a list
comes first and a watch from its version on. A watch that ends is resumed where it was; one that is too old starts from the
beginning.
"""

from __future__ import annotations

from enum import Enum

from fairway.engines.kubernetes.client import errors

SPAN, SPREAD = 290.0, 60.0
"""Requested duration of a watch in seconds, and a random addition, so that not all watches reconnect at once."""
PATIENCE = 15.0
"""Further seconds after which a silent watch is given up."""


class WatchRequest(Enum):
    """The next request."""

    WATCH_LIST = "everything, then changes"
    LIST = "everything; changes with the next request"
    RESUME = "changes since the version"


class WatchState:
    """The state of a watch, and its next request."""

    def __init__(self) -> None:
        self.version = ""
        """The resource version that was reached; empty: none."""
        self._knows_watch_list = True
        self._failures = 0

    @property
    def ask(self) -> WatchRequest:
        """The next request."""
        if self.version:
            return WatchRequest.RESUME
        return WatchRequest.WATCH_LIST if self._knows_watch_list else WatchRequest.LIST

    @property
    def failures(self) -> int:
        """The number of failures since something last arrived."""
        return self._failures

    def reached(self, version: str) -> None:
        """Record that something arrived, and the version reached by it."""
        self.version = version or self.version
        self._failures = 0

    def ended(self, *, empty: bool) -> None:
        """Record that the server ended the watch, as it does after a while. A watch without any result counts as a failure."""
        self._failures += empty

    def failed(self, error: errors.ApiError) -> bool:
        """Record a failure.

        Returns True when another request may be sent at once; False when it should be reported and tried later.
        """
        request = self.ask
        self._failures += 1
        if isinstance(error, errors.Gone):
            self.version = ""
            return self._failures == 1
        if request is WatchRequest.WATCH_LIST and isinstance(error, errors.BadRequest | errors.Invalid | errors.Forbidden):
            # A server without watch lists responds with one of these. If there is another cause, the list request fails with it,
            # too.
            self._knows_watch_list = False
            return True
        return False
