"""Queues side by side: what each got of the GPUs, held against what was its due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.simulation.queue.entry import Entry
from fairway.simulation.queue.floor import Nodes
from fairway.simulation.queue.hall import Hall
from fairway.simulation.queue.outcome import HOUR
from fairway.simulation.queue.replay import Replay
from fairway.simulation.queue.scheduled import Scheduled
from fairway.state.queue import Queue


@dataclass(frozen=True, slots=True)
class Moment:
    """What was so for a while."""

    at: float
    lasted: float
    held: Mapping[str, int]
    """GPUs that runs of a queue hold."""
    wanted: Mapping[str, int]
    """GPUs that its runs hold or wait for."""
    least: Mapping[str, int]
    """GPUs that the smallest of its runs that wait asks for."""

    def is_full(self, queue: str, gpus: float) -> bool:
        """Whether the queue holds so many GPUs, or as many of them as runs of its sizes can make use of."""
        return self.held[queue] + self.least.get(queue, 0) > gpus


@dataclass(frozen=True, slots=True)
class Share:
    """What one queue got in all."""

    queue: str
    held_h: float
    """GPU-hours that its runs held."""
    due_h: float
    """GPU-hours that were its due of those that all queues held: at each moment its part by weight, or what it wanted where that
    was less; what one does not want is the others' by weight. So nobody is denied what nobody asks for."""
    part: float
    """Of the GPU-hours that all queues held."""

    @property
    def off(self) -> float:
        """How far it is from its due, as a part of that."""
        return abs(self.held_h - self.due_h) / self.due_h if self.due_h else 0.0


def watch(entries: Sequence[Entry], nodes: Nodes, queues: Sequence[Queue], until: float, grace: float) -> Iterator[Moment]:
    """Play the queues with the scheduler of production until then. Who must leave has left after `grace` seconds."""
    replay = Replay(entries, nodes, Scheduled(queues, grace))
    before = Moment(0.0, 0.0, Counter(), Counter(), {})
    while replay.step() is not None and replay.hall.now < until:
        if replay.hall.now > before.at:
            yield replace(before, lasted=replay.hall.now - before.at)
        before = _seen(replay.hall)
    yield replace(before, lasted=until - before.at)


def _seen(hall: Hall) -> Moment:
    held, wanted, least = Counter[str](), Counter[str](), dict[str, int]()
    for job in hall.running.values():
        held[job.entry.queue] += sum(gpus for _, gpus in job.places)
    for job in hall.waiting.values():
        queue, gpus = job.entry.queue, hall.floor.nodes.whole(job.entry.gpus)
        wanted[queue] += gpus
        least[queue] = min(gpus, least.get(queue, gpus))
    return Moment(hall.now, 0.0, held, wanted + held, least)


def shares(moments: Sequence[Moment], queues: Sequence[Queue]) -> dict[str, Share]:
    """What each queue got in that time, by name."""
    held, due = Counter[str](), Counter[str]()
    for moment in moments:
        for name, gpus in dues(moment, queues).items():
            due[name] += gpus * moment.lasted  # type: ignore[assignment]
            held[name] += moment.held[name] * moment.lasted  # type: ignore[assignment]
    total = max(1.0, sum(held.values()))
    names = [queue.name for queue in queues]
    return {name: Share(name, held[name] / HOUR, due[name] / HOUR, held[name] / total) for name in names}


def dues(moment: Moment, queues: Sequence[Queue]) -> dict[str, float]:
    """How many of the GPUs that are held at that moment are due to each queue: dealt out by weight to those who want them."""
    found = {queue.name: 0.0 for queue in queues}
    left = float(sum(moment.held.values()))
    wanting = [queue for queue in queues if moment.wanted[queue.name]]
    while wanting and left > 0:
        each = left / sum(queue.weight for queue in wanting)
        content = [queue for queue in wanting if moment.wanted[queue.name] <= each * queue.weight]
        for queue in content or wanting:
            found[queue.name] = min(float(moment.wanted[queue.name]), each * queue.weight)
        if not content:
            break
        left -= sum(found[queue.name] for queue in content)
        wanting = [queue for queue in wanting if queue not in content]
    return found


def back_after(moments: Sequence[Moment], queue: str, gpus: float, since: float) -> float | None:
    """Seconds from `since` until the queue has so many GPUs for the first time; None: it never had."""
    return next((moment.at - since for moment in moments if moment.at >= since and moment.is_full(queue, gpus)), None)
