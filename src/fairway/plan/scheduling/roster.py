"""Running gangs by what matters when somebody must make room: their queue and priority, whether they can do with less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairway.plan.scheduling import amounts
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.request import Running
from fairway.plan.scheduling.shape import WHOLE, Gang
from fairway.state.job import JobKey

Class = tuple[str, int]
"""Queue and priority."""
Worth = tuple[float, float, Mapping[str, int]]
"""Since when the work of a gang would be lost if it left, what it takes of the machines as one number, and what it holds."""


class Roster:
    """Names only; the ledger knows more of each. Nobody may rely on the order."""

    def __init__(self) -> None:
        self.classes: dict[Class, dict[JobKey, Worth]] = {}
        self.elastic: dict[JobKey, None] = {}
        """Gangs that can resume and could run with more or fewer tasks than they have at the least."""
        self.surplus: dict[JobKey, None] = {}
        """Those of them that run with more tasks than the least."""
        self.leaving: dict[JobKey, None] = {}
        self.held: dict[Class, Amounts] = {}
        """What those of a class hold together, apart from those that are leaving."""

    def add(self, running: Running, taken: Mapping[str, int]) -> None:
        """It runs, and holds so much."""
        request = running.request
        worth = (lost_since(running), weight_of(request.gang), taken)
        self.classes.setdefault((request.queue, request.priority), {})[request.key] = worth
        if not running.leaving:
            amounts.add(self.held.setdefault((request.queue, request.priority), {}), taken)
        if running.leaving:
            self.leaving[request.key] = None
        elif request.resumes and any(part.most > part.least for part in request.gang.parts):
            self.elastic[request.key] = None
            if len(running.seats) > request.gang.size:
                self.surplus[request.key] = None

    def remove(self, running: Running, taken: Mapping[str, int]) -> None:
        """It runs no longer, or is about to be added anew."""
        request = running.request
        if not running.leaving:
            amounts.add(self.held[request.queue, request.priority], taken, -1)
        members = self.classes[request.queue, request.priority]
        del members[request.key]
        if not members:
            del self.classes[request.queue, request.priority]
            self.held.pop((request.queue, request.priority), None)
        self.leaving.pop(request.key, None)
        self.elastic.pop(request.key, None)
        self.surplus.pop(request.key, None)

    def queues(self) -> set[str]:
        """The queues of which somebody runs."""
        return {queue for queue, _ in self.classes}

    def of_queue(self, name: str) -> Iterator[JobKey]:
        """Who runs of this queue."""
        for (queue, _), members in self.classes.items():
            if queue == name:
                yield from members


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
