"""Wait for changes of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fairway.app.loop.fault_register import LOOP, FaultRegister
from fairway.state.job import JobKey, JobState


class RunWatchers:
    """Coroutines that wait for a change of a run, and callbacks for every change and every end.

    A callback that raises is a fault of the loop; the other callbacks are called nevertheless.
    """

    def __init__(self, faults: FaultRegister) -> None:
        self._faults = faults
        self._waiting: dict[JobKey, set[asyncio.Future[None]]] = {}
        self.changes: list[Callable[[JobKey], None]] = []
        """Called with the key of every run that has changed. Callbacks must not block."""
        self.over: list[Callable[[JobState], None]] = []
        """Called with every run that has ended, after its end is stored. Callbacks must not block, and a crash may skip them."""

    async def changed(self, key: JobKey) -> None:
        """Wait until the run changes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        try:
            await future
        finally:
            self._waiting.get(key, set()).discard(future)

    def tell(self, keys: Iterable[JobKey]) -> None:
        """Wake everything that waits for these runs."""
        for key in keys:
            for call in self.changes:
                with self._faults.contain(LOOP, "announce change"):
                    call(key)
            for future in self._waiting.pop(key, set()):
                if not future.done():
                    future.set_result(None)

    def tell_over(self, job: JobState) -> None:
        """Announce that a run has ended."""
        for call in self.over:
            with self._faults.contain(LOOP, "announce end"):
                call(job)

    def close(self) -> None:
        """Cancel everything that waits."""
        for waiting in self._waiting.values():
            for future in waiting:
                future.cancel()
