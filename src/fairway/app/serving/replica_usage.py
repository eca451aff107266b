"""Resource usage of ready replicas, measured in the background, because the engine may answer slowly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from fairway.app.port.port import Clock, Engine, TaskUsage
from fairway.errors import FairwayError
from fairway.state.job import JobState
from fairway.state.serving.load import ReplicaUse
from fairway.state.task import Task
from fairway.units import number, quantity

EVERY = 5.0
"""Interval between two measurements, in seconds."""

log = logging.getLogger("fairway.services")


class ReplicaUsageSampler:
    """Reads the usage from the engine periodically, with at most one request at a time; never blocks the caller."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.seen: Mapping[str, ReplicaUse] = {}
        """The last measurement, by run."""
        self._engine = engine
        self._clock = clock
        self._looked = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def look(self, running: Mapping[str, tuple[JobState, Task]]) -> None:
        """Start a measurement of these runs, if it is due."""
        now = self._clock.now()
        if now < self._looked + EVERY or (self._asking is not None and not self._asking.done()):
            return
        self._looked = now
        self._asking = asyncio.create_task(self._ask(dict(running))) if running else None

    async def close(self) -> None:
        """Stop measuring."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, running: Mapping[str, tuple[JobState, Task]]) -> None:
        try:
            used = await self._engine.usage([task.key for _, task in running.values()])
            now = self._clock.now()
            self.seen = {
                name: part_of(job, task, used[task.key], now) for name, (job, task) in running.items() if task.key in used
            }
        except (OSError, FairwayError) as error:
            log.warning("the resource usage of replicas cannot be read: %s", error)
        except Exception:  # Services are planned without it; the next measurement may succeed.
            log.exception("the resource usage of replicas cannot be read")


def part_of(job: JobState, task: Task, used: TaskUsage, now: float) -> ReplicaUse:
    """Return a replica's usage relative to its limits. The usage of a shared GPU is omitted: other replicas compute on it.

    Negative or non-finite values count as unknown.
    """
    limits = job.spec.roles[task.key.role].limits
    cores = quantity.number(limits.cpu) if limits.cpu else task.need.cpu
    memory = quantity.byte_count(limits.memory) if limits.memory else task.need.memory
    return ReplicaUse(
        now,
        cpu=_part(used.cpu, cores),
        gpu=None if task.shares_gpus else _part(used.gpu, 1.0),
        memory=_part(used.memory, memory),
        held=_part(used.memory, 1.0),
    )


def _part(used: float | None, given: float) -> float | None:
    ratio = number.ratio(used, given)
    return ratio if ratio is not None and ratio >= 0.0 else None
