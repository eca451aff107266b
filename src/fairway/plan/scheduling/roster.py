"""Running gangs by what matters when somebody must make room: their queue and priority, whether they can do with less."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping

from fairway.plan.scheduling import amounts
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.request import Running
from fairway.plan.scheduling.shape import WHOLE, Gang, Seat
from fairway.state.job import JobKey
from fairway.state.queue import GPU_TYPE

Class = tuple[str, int]
"""Queue and priority."""
Alike = tuple[float, frozenset[str]]
"""What a gang takes of the machines as one number, and the types of GPUs that it holds."""
Newest = tuple[float, JobKey]
"""Since when the work of a gang would be lost if it left, below zero: the latest comes first."""


class Roster:
    """Names only; the ledger knows more of each. Nobody may rely on the order."""

    def __init__(self) -> None:
        self.classes: dict[Class, dict[JobKey, Alike]] = {}
        self._newest: dict[Class, dict[Alike, list[Newest]]] = {}
        """Those of a class that are alike, in order. Among them who has least to lose has least to lose for ever."""
        self.elastic: dict[JobKey, None] = {}
        """Gangs that can resume and could run with more or fewer tasks than they have at the least."""
        self.surplus: dict[JobKey, None] = {}
        """Those of them that run with more tasks than the least."""
        self.extra: dict[JobKey, tuple[Seat, ...]] = {}
        """The tasks that gangs could do without; only of those that have any."""
        self.dispensable: dict[Class, int] = {}
        """How many gangs of a class have such tasks."""
        self.leaving: dict[JobKey, None] = {}
        self.held: dict[Class, Amounts] = {}
        """What those of a class hold together, apart from those that are leaving."""
        self.changes = 0
        """Rises whenever anybody comes or goes."""

    def add(self, running: Running, taken: Mapping[str, int]) -> None:
        """It runs, and holds so much."""
        self.changes += 1
        request = running.request
        of = (request.queue, request.priority)
        alike = (weight_of(request.gang), frozenset(name for name in taken if name.startswith(GPU_TYPE)))
        self.classes.setdefault(of, {})[request.key] = alike
        insort(self._newest.setdefault(of, {}).setdefault(alike, []), (-lost_since(running), request.key))
        if not running.leaving:
            amounts.add(self.held.setdefault(of, {}), taken)
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

    def remove(self, running: Running, taken: Mapping[str, int]) -> None:
        """It runs no longer, or is about to be added anew."""
        self.changes += 1
        request = running.request
        of = (request.queue, request.priority)
        if not running.leaving:
            amounts.add(self.held[of], taken, -1)
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
        """Those of a class who hold GPUs of any of these types (None: all), by what they take of the machines."""
        for (weight, held), members in self._newest.get(of, {}).items():
            if types is None or not held.isdisjoint(types):
                yield weight, members

    def queues(self) -> set[str]:
        """The queues of which somebody runs."""
        return {queue for queue, _ in self.classes}

    def of_queue(self, name: str) -> Iterator[JobKey]:
        """Who runs of this queue."""
        for (queue, _), members in self.classes.items():
            if queue == name:
                yield from members


def surplus_of(running: Running) -> tuple[Seat, ...]:
    """The tasks that the gang could do without, the last first; none when it could not go on after that."""
    if not running.request.resumes:
        return ()
    left = {part.role: part.least for part in running.request.gang.parts}
    extra = []
    # The first that sit are kept, whatever their indexes are: a task before them may have been lost.
    for seat in sorted(running.seats, key=lambda seat: (seat.index, seat.role)):
        if left.get(seat.role, 0) > 0:
            left[seat.role] -= 1
        else:
            extra.append(seat)
    return tuple(sorted(extra, key=lambda seat: (-seat.index, seat.role)))


def lost_since(running: Running) -> float:
    """All work since then would be lost if it left: since its last checkpoint, or since its start."""
    if running.saved is None or not running.request.resumes:
        return running.since
    return max(running.since, running.saved)


def weight_of(gang: Gang) -> float:
    """What a gang uses of the machines, as one number: GPUs, or cores where it has none."""
    if gang.gpus:
        return gang.gpus / WHOLE
    return sum(part.least * part.shape.cpu for part in gang.parts) / 1000
