"""Large bodies and requests sent ahead take turns: a few in one turn of the loop, so that others do not wait for all."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

_AT_ONCE = 2
"""Connections in the line that are served in one turn of the loop."""


class Bulk(Protocol):
    """A connection over which a large body comes, or which has sent requests ahead."""

    def read_on(self) -> None:
        """Its turn: read once more, or start the next request."""
        ...


class Flow(FlowControl):
    """Uvicorn's control of a connection, which does not read while the connection stands in the line."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.in_line = False

    def resume_reading(self) -> None:
        """Read again, unless the line says otherwise."""
        if not self.in_line:
            super().resume_reading()


class Line:
    """Connections that wait for their turn.

    Promises: the next of a connection comes after all others in the line had theirs, and each turn of the loop takes a few of
    them besides all small requests.
    """

    def __init__(self) -> None:
        self._waiting: deque[Bulk] = deque()
        self._scheduled = False

    def join(self, bulk: Bulk) -> None:
        """Stand at its end."""
        self._waiting.append(bulk)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            self._waiting.popleft().read_on()
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._turn)
