"""Requests that are whole and not decoded yet.

More of them than the next batch can take are left as bytes: decoded, each would take several times its memory, and a request that
is refused would have cost as much as one that is answered.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from fairway.serving.replica.problem import RequestError

_LATEST = 0.05
"""Weight of the latest request in the mean number of rows."""


class Unread(Protocol):
    """A request whose body has come."""

    arrived: float
    """By `time.perf_counter`."""

    def is_gone(self) -> bool:
        """Whether its client has left, so that no answer is needed."""
        ...

    def read(self) -> int:
        """Decode the body and submit the rows; how many. 0: the request was refused instead."""
        ...

    def refuse(self, error: RequestError) -> None:
        """Answer it with an error; the body was not decoded."""
        ...


class Backlog:
    """A queue, first in, first out."""

    __slots__ = ("_mean_rows", "_requests")

    def __init__(self) -> None:
        self._requests: deque[Unread] = deque()
        self._mean_rows = 1.0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def rows(self) -> int:
        """About how many rows its requests have, by those that were read before them."""
        return round(len(self._requests) * self._mean_rows)

    def add(self, request: Unread) -> None:
        """One more, behind all others."""
        self._requests.append(request)

    def next(self) -> Unread:
        """The first one, which leaves the queue."""
        return self._requests.popleft()

    def was_read(self, rows: int) -> None:
        """A request had so many rows."""
        if rows:
            self._mean_rows += _LATEST * (rows - self._mean_rows)
