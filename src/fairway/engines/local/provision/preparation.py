"""Tracks the preparations of runs: one per run, in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.provision.program_run import Say
from fairway.state.job import JobKey, JobState

MOST_KEPT = 256
"""Limit of finished preparations kept; a dropped one is repeated, which finds everything done."""
TELL_EVERY = 0.5
"""Minimum seconds between two progress messages that are passed on."""


class PreparerPort(Protocol):
    """Prepares code and environment of runs."""

    async def prepare(self, job: JobState, say: Say) -> PreparedRun:
        """Prepare the run, or find it prepared; `say` receives progress messages. Raises `FairwayError` on failure."""
        ...


@dataclass(slots=True)
class _RunPreparation:
    task: asyncio.Task[PreparedRun] | None = None
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
    def result(self) -> PreparedRun | None:
        if self.task is None or not self.task.done() or self.task.cancelled() or self.task.exception() is not None:
            return None
        return self.task.result()


class Preparations:
    """Starts preparations and keeps their results."""

    def __init__(self, preparer: PreparerPort, wake: Callable[[], None]) -> None:
        self._preparer = preparer
        self._wake = wake
        self._runs: dict[JobKey, _RunPreparation] = {}

    def begin(self, job: JobState) -> None:
        """Start the preparation, unless it is in progress or done. A failed one is retried."""
        preparation = self._runs.get(job.key)
        if preparation is not None and (preparation.busy or preparation.result is not None):
            return
        self._make_room()
        new_preparation = self._runs[job.key] = _RunPreparation()
        loop = asyncio.get_running_loop()
        new_preparation.task = loop.create_task(self._preparer.prepare(job, lambda line: self._said(new_preparation, line)))
        new_preparation.task.add_done_callback(lambda _: self._wake())

    def busy(self, key: JobKey) -> bool:
        """Return whether the preparation is in progress. Without a preparation it is not: binding will start one."""
        preparation = self._runs.get(key)
        return preparation is not None and preparation.busy

    def said(self, key: JobKey) -> str:
        """Return the progress message; empty when there is none."""
        preparation = self._runs.get(key)
        return preparation.said if preparation is not None and preparation.busy else ""

    def result(self, key: JobKey) -> PreparedRun | None:
        """Return the result; None when there is none."""
        preparation = self._runs.get(key)
        return preparation.result if preparation is not None else None

    def problem(self, key: JobKey) -> BaseException | None:
        """Return the exception of a failed preparation; None when it succeeded or is not finished."""
        preparation = self._runs.get(key)
        return preparation.problem if preparation is not None else None

    def forget(self, key: JobKey) -> None:
        """Drop the preparation; cancel it if it is in progress."""
        preparation = self._runs.pop(key, None)
        if preparation is not None and preparation.task is not None:
            preparation.task.cancel()

    def close(self) -> None:
        """Cancel and drop all preparations."""
        for key in list(self._runs):
            self.forget(key)

    def _said(self, preparation: _RunPreparation, line: str) -> None:
        preparation.said = line
        now = time.monotonic()
        if now - preparation.told >= TELL_EVERY:
            preparation.told = now
            self._wake()

    def _make_room(self) -> None:
        finished = [key for key, preparation in self._runs.items() if not preparation.busy]
        for key in finished[: max(0, len(self._runs) - MOST_KEPT + 1)]:
            del self._runs[key]
