"""What ready replicas use of what they were given, looked at in the background: an engine takes its time to say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from fairway.app.ports import Clock, Engine, TaskUsage
from fairway.errors import FairwayError
from fairway.state.job import Job
from fairway.state.load import ReplicaUse
from fairway.state.task import Task
from fairway.units import number, quantity

EVERY = 5.0
"""Seconds between two looks."""

log = logging.getLogger("fairway.services")


class UseWatch:
    """Asks the engine now and then, never twice at once; holds nobody up."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.seen: Mapping[str, ReplicaUse] = {}
        """What was seen last, by run."""
        self._engine = engine
        self._clock = clock
        self._looked = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def look(self, running: Mapping[str, tuple[Job, Task]]) -> None:
        """Begin a look at these runs, when it is time for one."""
        now = self._clock.now()
        if now < self._looked + EVERY or (self._asking is not None and not self._asking.done()):
            return
        self._looked = now
        self._asking = asyncio.create_task(self._ask(dict(running))) if running else None

    async def close(self) -> None:
        """Stop looking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, running: Mapping[str, tuple[Job, Task]]) -> None:
        try:
            used = await self._engine.usage([task.key for _, task in running.values()])
            now = self._clock.now()
            self.seen = {
                name: part_of(job, task, used[task.key], now) for name, (job, task) in running.items() if task.key in used
            }
        except (OSError, FairwayError) as error:
            log.warning("what replicas use is not known: %s", error)
        except Exception:  # Services are planned without it; the next look may succeed.
            log.exception("what replicas use is not known")


def part_of(job: Job, task: Task, used: TaskUsage, now: float) -> ReplicaUse:
    """What a replica uses, of what it was given. A GPU that it shares says nothing: others compute on it.

    What is negative or not finite is not known.
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
    found = number.ratio(used, given)
    return found if found is not None and found >= 0.0 else None
