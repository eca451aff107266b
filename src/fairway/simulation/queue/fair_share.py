"""Sharing between queues: the GPUs that each queue got, compared with its fair share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import QueueReplay
from fairway.simulation.queue.queue_result import HOUR
from fairway.simulation.queue.queue_state import SimulatedQueue
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.simulation.queue.scheduler_policy import SchedulerPolicy
from fairway.state.queue import Queue


@dataclass(frozen=True, slots=True)
class QueueUsageSpan:
    """A constant state for some time."""

    at: float
    lasted: float
    held: Mapping[str, int]
    """GPUs held, by queue."""
    wanted: Mapping[str, int]
    """GPUs that runs hold or wait for, by queue."""
    least: Mapping[str, int]
    """GPUs requested by the smallest waiting run, by queue."""

    def is_full(self, queue: str, gpus: float) -> bool:
        """Return whether the queue holds this many GPUs, or as many of them as runs of its sizes can use."""
        return self.held[queue] + self.least.get(queue, 0) > gpus


@dataclass(frozen=True, slots=True)
class QueueFairShare:
    """Totals of one queue."""

    queue: str
    held_h: float
    """GPU-hours that its runs held."""
    due_h: float
    """Fair share of the GPU-hours that all queues held.

    At each moment it is the queue's part by weight, or its demand if that is less; what a queue does not need is divided among
    the others by weight. So GPUs without demand are not counted as missing.
    """
    part: float
    """Part of the GPU-hours that all queues held."""

    @property
    def off(self) -> float:
        """Deviation from the fair share, as a fraction of it."""
        return abs(self.held_h - self.due_h) / self.due_h if self.due_h else 0.0


def watch(
    entries: Sequence[RecordedJob], nodes: EqualNodes, queues: Sequence[Queue], until: float, grace: float
) -> Iterator[QueueUsageSpan]:
    """Replay the queues with the production scheduler until the given time. Evicted runs have left after `grace` seconds."""
    replay = QueueReplay(entries, nodes, SchedulerPolicy(queues, grace))
    moment = QueueUsageSpan(0.0, 0.0, Counter(), Counter(), {})
    while replay.step() is not None and replay.hall.now < until:
        if replay.hall.now > moment.at:
            yield replace(moment, lasted=replay.hall.now - moment.at)
        moment = _seen(replay.hall)
    yield replace(moment, lasted=until - moment.at)


def _seen(hall: SimulatedQueue) -> QueueUsageSpan:
    held, wanted, least = Counter[str](), Counter[str](), dict[str, int]()
    for job in hall.running.values():
        held[job.entry.queue] += sum(gpus for _, gpus in job.places)
    for job in hall.waiting.values():
        queue, gpus = job.entry.queue, hall.floor.nodes.whole(job.entry.gpus)
        wanted[queue] += gpus
        least[queue] = min(gpus, least.get(queue, gpus))
    return QueueUsageSpan(hall.now, 0.0, held, wanted + held, least)


def shares(moments: Sequence[QueueUsageSpan], queues: Sequence[Queue]) -> dict[str, QueueFairShare]:
    """Return the totals of each queue in that time, by name."""
    held, due = Counter[str](), Counter[str]()
    for moment in moments:
        for name, gpus in dues(moment, queues).items():
            due[name] += gpus * moment.lasted  # type: ignore[assignment]
            held[name] += moment.held[name] * moment.lasted  # type: ignore[assignment]
    total = max(1.0, sum(held.values()))
    names = [queue.name for queue in queues]
    return {name: QueueFairShare(name, held[name] / HOUR, due[name] / HOUR, held[name] / total) for name in names}


def dues(moment: QueueUsageSpan, queues: Sequence[Queue]) -> dict[str, float]:
    """Return the fair share of each queue in the GPUs held at that moment: divided by weight among the queues with demand."""
    due = {queue.name: 0.0 for queue in queues}
    remaining = float(sum(moment.held.values()))
    wanting = [queue for queue in queues if moment.wanted[queue.name]]
    while wanting and remaining > 0:
        per_weight = remaining / sum(queue.weight for queue in wanting)
        satisfied = [queue for queue in wanting if moment.wanted[queue.name] <= per_weight * queue.weight]
        for queue in satisfied or wanting:
            due[queue.name] = min(float(moment.wanted[queue.name]), per_weight * queue.weight)
        if not satisfied:
            break
        remaining -= sum(due[queue.name] for queue in satisfied)
        wanting = [queue for queue in wanting if queue not in satisfied]
    return due


def back_after(moments: Sequence[QueueUsageSpan], queue: str, gpus: float, since: float) -> float | None:
    """Return the seconds from `since` until the queue first holds this many GPUs; None if it never does."""
    return next((moment.at - since for moment in moments if moment.at >= since and moment.is_full(queue, gpus)), None)
