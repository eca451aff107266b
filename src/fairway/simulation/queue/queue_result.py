"""Results of a simulated queue, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairway.simulation.queue.recorded_job import RecordedJob

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class CompletedJob:
    """One job that is over."""

    entry: RecordedJob
    started: float
    """Time of the first start."""
    ended: float
    evictions: int
    moves: int
    """Number of evictions that only moved it to other GPUs."""

    @property
    def completion(self) -> float:
        """Seconds from submission to the end."""
        return self.ended - self.entry.submitted


@dataclass(frozen=True, slots=True)
class QueueResult:
    """All jobs of a queue under one policy. Times whose names end in `_h` are in hours."""

    policy: str
    nodes: int
    gpus_per_node: int
    jobs: int
    average_jct_h: float
    median_jct_h: float
    p99_jct_h: float
    average_wait_h: float
    """Time in the system beyond the required run time: waiting, and the cost of interruptions."""
    average_first_wait_h: float
    """Time until the first start."""
    utilisation: float
    """Part of the GPUs held, from the arrival of the first job until that of the last."""
    makespan_h: float
    preemptions: int
    preemptions_per_job: float
    moves: int
    records: tuple[CompletedJob, ...]
    busy: tuple[tuple[float, int], ...]
    """(time, GPUs held from then on), in seconds."""

    def figures(self) -> dict[str, object]:
        """Return all values except the individual jobs."""
        left_out = ("records", "busy")
        return {name: getattr(self, name) for name in self.__slots__ if name not in left_out}


def summarise(
    policy: str, nodes: tuple[int, int], records: Sequence[CompletedJob], busy: Sequence[tuple[float, int]]
) -> QueueResult:
    """Return the outcome of a queue that is done. There must be at least one job."""
    completions = sorted(record.completion for record in records)
    count = len(records)
    first = min(record.entry.submitted for record in records)
    last = max(record.entry.submitted for record in records)
    end = max(record.ended for record in records)
    waits = sum(record.completion - record.entry.duration for record in records)
    evictions = sum(record.evictions for record in records)
    return QueueResult(
        policy=policy,
        nodes=nodes[0],
        gpus_per_node=nodes[1],
        jobs=count,
        average_jct_h=sum(completions) / count / HOUR,
        median_jct_h=completions[count // 2] / HOUR,
        p99_jct_h=completions[min(count - 1, int(0.99 * count))] / HOUR,
        average_wait_h=waits / count / HOUR,
        average_first_wait_h=sum(record.started - record.entry.submitted for record in records) / count / HOUR,
        utilisation=average_busy(busy, first, max(last, first + 1.0)) / (nodes[0] * nodes[1]),
        makespan_h=(end - first) / HOUR,
        preemptions=evictions,
        preemptions_per_job=evictions / count,
        moves=sum(record.moves for record in records),
        records=tuple(records),
        busy=tuple(busy),
    )


def average_busy(busy: Sequence[tuple[float, int]], start: float, end: float) -> float:
    """Return the mean number of GPUs held between two times."""
    total, held, since = 0.0, 0, start
    for time, gpus in busy:
        if time >= end:
            break
        total += held * max(0.0, time - since)
        held, since = gpus, max(start, time)
    return (total + held * (end - since)) / (end - start)


def usage_curve(outcome: QueueResult, points: int = 200) -> list[tuple[float, float]]:
    """Return the part of the GPUs held, averaged over equal spans of time: (hours since the first job arrived, 0 to 1)."""
    start = min(record.entry.submitted for record in outcome.records)
    span = max(1.0, outcome.makespan_h * HOUR) / points
    total = outcome.nodes * outcome.gpus_per_node
    curve: list[tuple[float, float]] = []
    position, held = 0, 0
    for point in range(points):
        begin, end = start + point * span, start + (point + 1) * span
        area, since = 0.0, begin
        while position < len(outcome.busy) and outcome.busy[position][0] < end:
            time, gpus = outcome.busy[position]
            area += held * max(0.0, time - since)
            held, since, position = gpus, max(since, time), position + 1
        area += held * (end - since)
        curve.append((point * span / HOUR, area / span / total))
    return curve
