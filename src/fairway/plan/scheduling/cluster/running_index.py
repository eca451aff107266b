"""Index of running gangs for preemption: by queue and priority, and by whether they can shrink."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.gang import WHOLE, GangShape, TaskSeat
from fairway.plan.scheduling.gang_request import RunningGang
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.state.job import JobKey
from fairway.state.queue import GPU_TYPE

Class = tuple[str, int]
"""Queue and priority."""
Alike = tuple[float, frozenset[str]]
"""A gang's weight, and the GPU types that it holds."""
Newest = tuple[float, JobKey]
"""Negated time since which a gang's work would be lost, so that the latest comes first, and its key."""


class RunningGangIndex:
    """Keys only; the ledger holds the gangs. Iteration order is not significant."""

    def __init__(self) -> None:
        self.classes: dict[Class, dict[JobKey, Alike]] = {}
        self._newest: dict[Class, dict[Alike, list[Newest]]] = {}
        """Sorted gangs by class and weight. The order never changes: the gang with the least work to lose stays the cheapest."""
        self.elastic: dict[JobKey, None] = {}
        """Gangs that can resume and have a variable size."""
        self.surplus: dict[JobKey, None] = {}
        """Elastic gangs that run with more tasks than their minimum."""
        self.extra: dict[JobKey, tuple[TaskSeat, ...]] = {}
        """The dispensable seats of gangs that have any."""
        self.dispensable: dict[Class, int] = {}
        """Number of gangs of a class with dispensable seats."""
        self.leaving: dict[JobKey, None] = {}
        self.held: dict[Class, Amounts] = {}
        """Total amounts held by a class, without gangs that are leaving."""
        self.changes = 0
        """Incremented when a gang is added or removed."""

    def add(self, running: RunningGang, taken: Mapping[str, int]) -> None:
        """Add a running gang and what it holds."""
        self.changes += 1
        request = running.request
        of = (request.queue, request.priority)
        alike = (weight_of(request.gang), frozenset(name for name in taken if name.startswith(GPU_TYPE)))
        self.classes.setdefault(of, {})[request.key] = alike
        insort(self._newest.setdefault(of, {}).setdefault(alike, []), (-lost_since(running), request.key))
        if not running.leaving:
            resource_amount.add(self.held.setdefault(of, {}), taken)
        extra = surplus_of(running)
        if extra:
            self.extra[request.key] = extra
            self.dispensable[of] = self.dispensable.get(of, 0) + 1
        if running.leaving:
            self.leaving[request.key] = None
        elif request.resumes and any(part.most > part.least for part in request.gang.parts):
            self.elastic[request.key] = None
            if len(running.seats) > request.gang.size:
                self.surplus[request.key] = None

    def remove(self, running: RunningGang, taken: Mapping[str, int]) -> None:
        """Remove a gang that has ended or is about to be added again."""
        self.changes += 1
        request = running.request
        of = (request.queue, request.priority)
        if not running.leaving:
            resource_amount.add(self.held[of], taken, -1)
        members, newest = self.classes[of], self._newest[of]
        alike = members.pop(request.key)
        del newest[alike][bisect_left(newest[alike], (-lost_since(running), request.key))]
        if not newest[alike]:
            del newest[alike]
        if not members:
            del self.classes[of], self._newest[of]
            self.held.pop(of, None)
        self.leaving.pop(request.key, None)
        self.elastic.pop(request.key, None)
        self.surplus.pop(request.key, None)
        if self.extra.pop(request.key, ()):
            self.dispensable[of] -= 1
            if not self.dispensable[of]:
                del self.dispensable[of]

    def newest(self, of: Class, types: Collection[str] | None) -> Iterator[tuple[float, list[Newest]]]:
        """Yield the gangs of a class that hold GPUs of any of these types (None: all), as weight and sorted list."""
        for (weight, held), members in self._newest.get(of, {}).items():
            if types is None or not held.isdisjoint(types):
                yield weight, members

    def queues(self) -> set[str]:
        """Return the queues with running gangs."""
        return {queue for queue, _ in self.classes}

    def of_queue(self, name: str) -> Iterator[JobKey]:
        """Yield the running gangs of this queue."""
        for (queue, _), members in self.classes.items():
            if queue == name:
                yield from members


def surplus_of(running: RunningGang) -> tuple[TaskSeat, ...]:
    """Return the seats beyond the gang's minimum, the last first; none when the gang could not resume."""
    if not running.request.resumes:
        return ()
    remaining = {part.role: part.least for part in running.request.gang.parts}
    extra = []
    # Keep the first placed tasks, whatever their indexes are: a task with a lower index may have been lost.
    for seat in sorted(running.seats, key=lambda seat: (seat.index, seat.role)):
        if remaining.get(seat.role, 0) > 0:
            remaining[seat.role] -= 1
        else:
            extra.append(seat)
    return tuple(sorted(extra, key=lambda seat: (-seat.index, seat.role)))


def lost_since(running: RunningGang) -> float:
    """Return the time since which work would be lost by an eviction: its last checkpoint, or its start."""
    if running.saved is None or not running.request.resumes:
        return running.since
    return max(running.since, running.saved)


def weight_of(gang: GangShape) -> float:
    """Return a gang's weight: its GPUs, or cores where it has no GPUs."""
    if gang.gpus:
        return gang.gpus / WHOLE
    return sum(part.least * part.shape.cpu for part in gang.parts) / 1000
