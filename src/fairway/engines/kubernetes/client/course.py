"""How to follow a kind of object for ever: what to ask next, given how it went. Pure; `watch` does the asking.

A watch list gives everything that is there and then every change, in one request. Servers that do not know it refuse it; then a
list comes first and a watch from its version on. A watch that ends is resumed where it was; one that is too old begins anew.
"""

from __future__ import annotations

from enum import Enum

from fairway.engines.kubernetes.client import errors

SPAN, SPREAD = 290.0, 60.0
"""Seconds that a watch is asked to last, and how many more by chance, so that not all come back at once."""
PATIENCE = 15.0
"""Seconds more until a silent watch is given up."""


class Ask(Enum):
    """What to ask next."""

    WATCH_LIST = "everything, then changes"
    LIST = "everything; changes with the next request"
    RESUME = "changes since the version"


class Course:
    """Where a watch is, and what comes next."""

    def __init__(self) -> None:
        self.version = ""
        """The state that is known; empty: none."""
        self._knows_watch_list = True
        self._failures = 0

    @property
    def ask(self) -> Ask:
        """What to ask next."""
        if self.version:
            return Ask.RESUME
        return Ask.WATCH_LIST if self._knows_watch_list else Ask.LIST

    @property
    def failures(self) -> int:
        """How often it failed since something last came."""
        return self._failures

    def reached(self, version: str) -> None:
        """Something came; this state is known now."""
        self.version = version or self.version
        self._failures = 0

    def ended(self, *, empty: bool) -> None:
        """The server ended the watch, as it does after a while. One that brought nothing at all counts as a failure."""
        self._failures += empty

    def failed(self, error: errors.ApiError) -> bool:
        """It failed. True when asking otherwise, at once, is the answer; false when it should be told, and asked again later."""
        asked = self.ask
        self._failures += 1
        if isinstance(error, errors.Gone):
            self.version = ""
            return self._failures == 1
        if asked is Ask.WATCH_LIST and isinstance(error, errors.BadRequest | errors.Invalid | errors.Forbidden):
            # A server without it says one of these; if the reason is another, the list says it again.
            self._knows_watch_list = False
            return True
        return False
