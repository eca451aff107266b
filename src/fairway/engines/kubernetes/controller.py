"""Keys in, work done: hands of a work queue, a few at a time, until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.workqueue import WorkQueue

Work = Callable[[str], Awaitable[float | None]]
"""Bring what the key names to what it should be. Returns in how many seconds to look again, or none."""

_log = logging.getLogger(__name__)


class Controller:
    """Looks at every key that is added, one at a time per key, `hands` keys at a time."""

    def __init__(
        self,
        name: str,
        work: Work,
        hands: int = 4,
        queue: WorkQueue | None = None,
        *,
        failed: Callable[[str, Exception], None] = lambda _key, _error: None,
        succeeded: Callable[[str], None] = lambda _key: None,
    ) -> None:
        """`failed` is called with a key that cannot be handled, besides conflicts; `succeeded` with one that was."""
        self._name = name
        self._failed = failed
        self._succeeded = succeeded
        self._work = work
        self._hands = hands
        self._queue = queue or WorkQueue()
        self._changed = asyncio.Event()
        self._in_work = 0

    def add(self, key: str) -> None:
        """Look at it soon; as often as one likes."""
        self._queue.add(key)
        self._changed.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is ready and nothing is in work."""
        return not self._in_work and not len(self._queue)

    async def run(self) -> None:
        """Work until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._hands):
                group.create_task(self._hand())

    async def _hand(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            key = self._queue.take(now())
            if key is None:
                await self._wait(self._queue.next_due(now()))
                continue
            self._in_work += 1
            try:
                await self._one(key, now)
            finally:
                self._in_work -= 1
                self._changed.set()

    async def _one(self, key: str, now: Callable[[], float]) -> None:
        try:
            again = await self._work(key)
        except errors.Conflict as error:
            # The copy was a moment old; the next look sees what it is now.
            _log.debug("%s %s: %s", self._name, key, error.message)
            self._queue.failed(key, now())
        except errors.ApiError as error:
            delay = self._queue.failed(key, now())
            _log.warning("%s %s: %s; again in %.3g s", self._name, key, error.message, delay)
            self._failed(key, error)
        except Exception as error:  # noqa: BLE001 one key that cannot be handled must not keep the others waiting
            delay = self._queue.failed(key, now())
            _log.exception("%s %s failed; again in %.3g s", self._name, key, delay)
            self._failed(key, error)
        else:
            self._queue.succeeded(key)
            self._succeeded(key)
            if again is not None:
                self._queue.add_after(key, again, now())

    async def _wait(self, seconds: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
