"""What is being prepared for which run: once a run, beside everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fairway.engines.local.provision.prepare import Prepared
from fairway.engines.local.provision.programs import Say
from fairway.state.job import Job, JobKey

MOST_KEPT = 256
"""Finished preparations remembered; one that was forgotten is made again, which finds everything done."""
TELL_EVERY = 0.5
"""Seconds between two lines of progress that are passed on."""


class Prepares(Protocol):
    """Makes code and environment ready."""

    async def prepare(self, job: Job, say: Say) -> Prepared:
        """Do it, or find it done; `say` hears what is being done. Raises `FairwayError` when it cannot be."""
        ...


@dataclass(slots=True)
class _Preparation:
    task: asyncio.Task[Prepared] | None = None
    said: str = ""
    told: float = field(default=float("-inf"))

    @property
    def busy(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def problem(self) -> BaseException | None:
        done = self.task is not None and self.task.done() and not self.task.cancelled()
        return self.task.exception() if self.task is not None and done else None

    @property
    def result(self) -> Prepared | None:
        if self.task is None or not self.task.done() or self.task.cancelled() or self.task.exception() is not None:
            return None
        return self.task.result()


class Preparing:
    """Begins preparations and remembers how they ended."""

    def __init__(self, preparer: Prepares, wake: Callable[[], None]) -> None:
        self._preparer = preparer
        self._wake = wake
        self._runs: dict[JobKey, _Preparation] = {}

    def begin(self, job: Job) -> None:
        """Prepare, unless that is under way or done. What failed before is tried again."""
        known = self._runs.get(job.key)
        if known is not None and (known.busy or known.result is not None):
            return
        self._make_room()
        fresh = self._runs[job.key] = _Preparation()
        loop = asyncio.get_running_loop()
        fresh.task = loop.create_task(self._preparer.prepare(job, lambda line: self._said(fresh, line)))
        fresh.task.add_done_callback(lambda _: self._wake())

    def busy(self, key: JobKey) -> bool:
        """Whether it is under way now. A run that nobody asked to prepare is not: binding will ask."""
        known = self._runs.get(key)
        return known is not None and known.busy

    def said(self, key: JobKey) -> str:
        """What is being done, in words; empty when there is nothing to say."""
        known = self._runs.get(key)
        return known.said if known is not None and known.busy else ""

    def result(self, key: JobKey) -> Prepared | None:
        """What was prepared; None when it is not there."""
        known = self._runs.get(key)
        return known.result if known is not None else None

    def problem(self, key: JobKey) -> BaseException | None:
        """Why it could not be prepared; None when it could, or is not known yet."""
        known = self._runs.get(key)
        return known.problem if known is not None else None

    def forget(self, key: JobKey) -> None:
        """Drop it; what is under way is given up."""
        known = self._runs.pop(key, None)
        if known is not None and known.task is not None:
            known.task.cancel()

    def close(self) -> None:
        """Give up everything."""
        for key in list(self._runs):
            self.forget(key)

    def _said(self, preparation: _Preparation, line: str) -> None:
        preparation.said = line
        now = time.monotonic()
        if now - preparation.told >= TELL_EVERY:
            preparation.told = now
            self._wake()

    def _make_room(self) -> None:
        done = [key for key, known in self._runs.items() if not known.busy]
        for key in done[: max(0, len(self._runs) - MOST_KEPT + 1)]:
            del self._runs[key]
