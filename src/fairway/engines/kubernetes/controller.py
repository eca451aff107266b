"""A controller: worker tasks that take keys from a work queue and process a few of them concurrently, until cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.work_queue import WorkQueue

Work = Callable[[str], Awaitable[float | None]]
"""Reconcile the object that the key names. Returns after how many seconds to do so again, or None."""

_log = logging.getLogger(__name__)


class KeyController:
    """Processes every key that is added: never one key twice at the same time, and `hands` keys concurrently."""

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
        """`failed` is called with a key whose work failed other than by a conflict; `succeeded` with one whose work succeeded."""
        self._name = name
        self._failed = failed
        self._succeeded = succeeded
        self._work = work
        self._hands = hands
        self._queue = queue or WorkQueue()
        self._changed = asyncio.Event()
        self._in_work = 0

    def add(self, key: str) -> None:
        """Enqueue a key. Adding a key several times is harmless."""
        self._queue.add(key)
        self._changed.set()

    @property
    def idle(self) -> bool:
        """Whether no key is ready and no key is being processed."""
        return not self._in_work and not len(self._queue)

    async def run(self) -> None:
        """Process keys until cancelled."""
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
            # The cached copy was out of date; the next try sees the current object.
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
