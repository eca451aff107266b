"""The backlog: requests that have arrived completely and are not decoded yet.

Requests that do not fit into the next batch are kept as bytes. Decoding multiplies the memory of a request, and decoding a
request that is then refused would cost as much as answering it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from fairway.serving.replica.request_error import RequestError

_LATEST = 0.05
"""Weight of the latest request in the mean number of rows."""


class BacklogRequest(Protocol):
    """A request whose body has arrived."""

    arrived: float
    """By `time.perf_counter`."""

    def is_gone(self) -> bool:
        """Whether its client has disconnected, so that no answer is needed."""
        ...

    def read(self) -> int:
        """Decode the body, submit its rows and return their number; 0 when the request was refused instead."""
        ...

    def refuse(self, error: RequestError) -> None:
        """Answer with an error, without decoding the body."""
        ...


class RequestBacklog:
    """A first-in, first-out queue."""

    __slots__ = ("_mean_rows", "_requests")

    def __init__(self) -> None:
        self._requests: deque[BacklogRequest] = deque()
        self._mean_rows = 1.0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def rows(self) -> int:
        """The estimated number of rows in the queue, from the mean of earlier requests."""
        return round(len(self._requests) * self._mean_rows)

    def add(self, request: BacklogRequest) -> None:
        """Append a request."""
        self._requests.append(request)

    def next(self) -> BacklogRequest:
        """Remove and return the first request."""
        return self._requests.popleft()

    def was_read(self, rows: int) -> None:
        """Update the mean with the number of rows of a decoded request."""
        if rows:
            self._mean_rows += _LATEST * (rows - self._mean_rows)
