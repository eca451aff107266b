"""Limits concurrent bindings to as many as the API server answers quickly, first come first served.

More would only wait at the API server, and the pods of a gang would start further apart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LEAST, MOST = 8, 32
QUICK, SLOW = 0.03, 0.12
"""Response times in seconds: below the first, concurrency is raised; above the second, lowered."""


class AdaptiveConcurrencyLimit:
    """A concurrency limit that adapts to response times."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._width = float(LEAST)
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def width(self) -> int:
        """The current limit."""
        return int(self._width)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot; the time spent in it adapts the limit."""
        now = self._clock or asyncio.get_running_loop().time
        await self._enter()
        began = now()
        try:
            yield
        finally:
            self._learn(now() - began)
            self._inside -= 1
            self._admit()

    async def _enter(self) -> None:
        if self._inside < self.width and not self._waiting:
            self._inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The slot was granted already: pass it to the next waiter.
                self._inside -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._inside < self.width:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                self._inside += 1

    def _learn(self, took: float) -> None:
        if took < QUICK:
            self._width = min(float(MOST), self._width + 1.0 / self._width)
        elif took > SLOW:
            self._width = max(float(LEAST), self._width * 0.98)
