"""Committing object by object: what cannot be stored is one object's failure, and the rest is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairway.app.ports import Changes, MetricPoint, Store
from fairway.state.event import Event
from fairway.state.job import Job, JobKey
from fairway.state.task import Task

NOTE_LIMIT = 500
"""Characters of a cause that its event keeps."""


@dataclass(slots=True)
class Rejected:
    """What a store did not accept, each with its cause."""

    runs: dict[JobKey, Exception] = field(default_factory=dict)
    """Runs of which nothing of the changes was stored."""
    points: dict[JobKey, Exception] = field(default_factory=dict)
    """Runs of which everything but the metric points was stored; the points are dropped."""
    memory: Exception | None = None
    """The scheduler's memory."""
    rest: Exception | None = None
    """What belongs to no run: queues, events of other objects."""

    def __bool__(self) -> bool:
        """Whether anything was rejected."""
        return bool(self.runs or self.points or self.memory or self.rest)


def commit_each(store: Store, changes: Changes, now: float) -> Rejected:
    """Store all changes at once or, when that fails, object by object.

    The changes of one run are stored together or not at all, except that metric points which cannot be stored are dropped.
    Raises what the store raised when it accepts nothing at all: then the store is at fault, not an object.
    """
    first = _problem(store, changes)
    if first is None:
        return Rejected()
    parts, rest = _split(changes)
    rejected = Rejected()
    stored = [_commit_run(store, run, part, rejected) for run, part in parts.items()]
    if changes.memory is not None and not rejected.runs:
        # Otherwise it tells of starts that were not stored.
        rejected.memory = _problem(store, Changes(memory=changes.memory))
        stored.append(rejected.memory is None)
    if rest != Changes():
        rejected.rest = _problem(store, rest)
        stored.append(rejected.rest is None)
    if not any(stored):
        note = Event(now, "store", "Rejected", str(first)[:NOTE_LIMIT])
        if _problem(store, Changes(events=(note,))) is not None:
            # It takes nothing, as when the disk is full.
            raise first
    return rejected


def _commit_run(store: Store, run: JobKey, part: Changes, rejected: Rejected) -> bool:
    """Store one run's part, if need be without its points. Returns whether anything was stored."""
    problem = _problem(store, part)
    if problem is None:
        return True
    bare = replace(part, points=())
    if bare == Changes():
        rejected.points[run] = problem
        return False
    if part.points and _problem(store, bare) is None:
        rejected.points[run] = problem
        return True
    rejected.runs[run] = problem
    return False


def _problem(store: Store, changes: Changes) -> Exception | None:
    """Commit; returns what the store raised, None when it took all."""
    try:
        store.commit(changes)
    except Exception as problem:  # noqa: BLE001 - whatever one object provokes, the others are stored.
        return problem
    return None


def _split(changes: Changes) -> tuple[dict[JobKey, Changes], Changes]:
    """The part of each run, in order, and what belongs to no run."""
    parts: dict[JobKey, dict[str, list[Any]]] = {}

    def add(run: JobKey, kind: str, value: object) -> None:
        parts.setdefault(run, {}).setdefault(kind, []).append(value)

    for job in changes.jobs:
        add(job.key, "jobs", job)
    for task in changes.tasks:
        add(task.key.run, "tasks", task)
    for point in changes.points:
        add(point[0], "points", point)
    for key in changes.deleted:
        add(key, "deleted", key)
    named = {str(run): run for run in parts}
    others = []
    for event in changes.events:
        run = named.get(event.run)
        if run is None:
            others.append(event)
        else:
            add(run, "events", event)
    rest = replace(changes, jobs=(), tasks=(), points=(), deleted=(), events=tuple(others), memory=None)
    return {run: _changes(**part) for run, part in parts.items()}, rest


def _changes(
    jobs: Sequence[Job] = (),
    tasks: Sequence[Task] = (),
    points: Sequence[tuple[JobKey, MetricPoint]] = (),
    deleted: Sequence[JobKey] = (),
    events: Sequence[Event] = (),
) -> Changes:
    return Changes(jobs=tuple(jobs), tasks=tuple(tasks), points=tuple(points), deleted=tuple(deleted), events=tuple(events))
