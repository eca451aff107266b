"""Takes turns between large bodies and pipelined requests: one per iteration of the event loop, so that others need not wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from fairway.serving.replica.http.pacer import LargeRequestPacer

BULK = 1 << 17
"""Bytes of a body after which the rest is read in turns with other large bodies."""


class TurnMember(Protocol):
    """A connection that receives a large body, or that has pipelined requests."""

    def read_on(self) -> None:
        """Take a turn: read once more, or start the next request."""
        ...


class TurnFlowControl(FlowControl):
    """Uvicorn's flow control for a connection, which does not read while the connection waits in the line."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.in_line = False

    def resume_reading(self) -> None:
        """Resume reading, unless the connection waits in the line."""
        if not self.in_line:
            super().resume_reading()


class TurnQueue:
    """Connections that wait for their turn.

    Promises: a connection gets its next turn after all others in the line. One iteration of the event loop serves one of them,
    besides all small requests. With a pace, turns pause while small requests arrive.
    """

    def __init__(self, pace: LargeRequestPacer | None = None) -> None:
        self._waiting: deque[TurnMember] = deque()
        self._pace = pace
        self._scheduled = False
        self._served = 0.0
        """When the last connection was served, if the event loop has read from it since then; otherwise 0."""

    def join(self, bulk: TurnMember) -> None:
        """Append a connection."""
        self._waiting.append(bulk)
        if not self._scheduled:
            self._served = 0.0
            self._schedule()

    def _schedule(self, pause: float = 0.0) -> None:
        self._scheduled = True
        loop = asyncio.get_running_loop()
        if pause > 0.0:
            self._served = 0.0
            loop.call_later(pause, self._turn)
        else:
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._pace is not None and self._served:
            pause = self._pace.pause_after(time.perf_counter() - self._served)
            if pause:
                self._schedule(pause)
                return
        self._waiting.popleft().read_on()
        self._served = time.perf_counter()
        if self._waiting:
            self._schedule()
        else:
            self._scheduled = False
